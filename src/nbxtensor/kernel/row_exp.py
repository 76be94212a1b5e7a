"""Exponentials of a row, scaled so that a kernel can start before it knows the row's largest element M.

Write ``x = shift + k ln2 + r`` with k an integer; then ``exp(x - M) = p(r) * 2^(k - K) * c``, where c is one factor for
the whole row: a softmax cancels it. `shift` and K are coarse functions of M alone: shift is 0 where |M| is below 256
(then k and r lose nothing), else M rounded to a multiple of 32, which leaves ``x - shift`` exact for every element that
counts; K is k of M rounded to the nearest of ..., -44, 20, 84, ... (so that M from -8 to 36 shares one). A kernel that
sums while it looks for M takes both from a part of the row; they are wrong only where M lies in another range of 64
powers of two, and then it sums once more. The bits are those of a kernel that knew M from the start.

The powers are kept larger by 2^57: whatever M is within its range, neither an element that counts nor the sum of a row
leaves the normal numbers before the last multiplication, which rounds once. Rows of 16-bit elements take a shorter
p(r), whose error is far below what their results round away.

A NaN or +inf in a row, or a row of -inf alone, makes the sum NaN. LEAN says how a NaN gets there: through the largest
element (where that maximum is one instruction, and a shift and an addition are another), or else through the
exponentials.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import log
from nbxtensor.kernel.math64_exp import exp64_parts
from nbxtensor.kernel.math64_log import log1p64, log64
from nbxtensor.kernel.math64_parts import add_exact, real

LOG2E = 1.4426950216293335
LN2 = 0.6931471824645996
LN2_HIGH = 0.693145751953125  # 15 bits: the first step of the reduction is exact
LN2_LOW = 1.4286067653301870e-06
ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
ROUND_TO_32 = 402653184.0  # 1.5 * 2^28
ROUND_TO_64 = 805306368.0  # 1.5 * 2^29
LIFT = 57.0
MIDDLE = 20.0
FAR = 126.25  # exp(M - 104) rounds to 0, and M is at most 22.2 below or above K ln2
LARGE = 256.0
ROUND_TO_64_OF_FP64 = 4.323455642275676e17  # 1.5 * 2^58
FAR_OF_FP64 = -800.0  # exp(M - 746) rounds to 0
HUGE_OF_FP64 = 1.44115188075855872e17  # 2^57
HUGE = 134217728.0  # 2^27: from here on floats are multiples of 16 or more
ONE = 0x3F800000  # bits of 1.0
SQRT_HALF = 0x3F3504F3  # bits of sqrt(1/2): a mantissa lies between it and its double


@kernel
def small_exp(r):
    """exp(r) for |r| <= 0.3467, within 0.9 ULP."""
    p = tl.fma(r, 0.001381455920636654, 0.008368735201656818)
    p = tl.fma(p, r, 0.04166838899254799)
    p = tl.fma(p, r, 0.1666652113199234)
    p = tl.fma(p, r, 0.4999999403953552)
    p = tl.fma(p, r, 1.0)
    return tl.fma(p, r, 1.0)


@kernel
def short_exp(r):
    """exp(r) for |r| <= 0.3467, within 2.9e-6 of it."""
    p = tl.fma(r, 0.041513729840517044, 0.16787560284137726)
    p = tl.fma(p, r, 0.5000301599502563)
    p = tl.fma(p, r, 0.9999668002128601)
    return tl.fma(p, r, 1.0)


@kernel
def middle_exp(r):
    """exp(r) for |r| <= 0.3467, within 1.6e-7 of it."""
    p = tl.fma(r, 0.008290283381938934, 0.04189809784293175)
    p = tl.fma(p, r, 0.1666763722896576)
    p = tl.fma(p, r, 0.4999914765357971)
    p = tl.fma(p, r, 0.9999997019767761)
    return tl.fma(p, r, 1.0)


@kernel
def larger(most, x, LEAN: tl.constexpr):
    """The larger of the largest so far and an element."""
    if LEAN:
        most = tl.maximum(most, x, propagate_nan=tl.PropagateNan.ALL)
    else:
        most = tl.where(x > most, x, most)
    return most


@kernel
def _either(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@kernel
def largest_of(x, AXIS: tl.constexpr, LEAN: tl.constexpr):
    """The largest element along AXIS; a zero is positive."""
    if LEAN:
        most = tl.reduce(x, AXIS, _either)
    else:
        most = tl.max(x, AXIS)
    return most + 0.0


@kernel
def wide(x):
    """An element in the type that is computed in: fp64 for fp64, else fp32."""
    if x.dtype != tl.float64:
        x = x.to(tl.float32)
    return x


@kernel
def row_terms(largest):
    """What is subtracted from every element, the lowest difference that counts, and the constant that rounds."""
    size = tl.abs(largest)
    if largest.dtype == tl.float64:
        coarse = (largest + real(ROUND_TO_64_OF_FP64)) - real(ROUND_TO_64_OF_FP64)
        shift = tl.where(size < real(HUGE_OF_FP64), coarse, largest)
        terms = shift, shift, shift
    else:
        coarse = tl.where(size < HUGE, (largest + ROUND_TO_32) - ROUND_TO_32, largest)
        shift = tl.where(size < LARGE, 0.0, coarse)
        k = ((tl.fma(largest - shift, LOG2E, -MIDDLE) + ROUND_TO_64) - ROUND_TO_64) + MIDDLE
        terms = shift, tl.fma(k, LN2, -FAR), (ROUND + LIFT) - k
    return terms


@kernel
def guessed(largest):
    """A largest element of a part of a row, to guess terms from: 0 instead of -inf."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@kernel
def any_row(flags):
    """Whether a flag of any row is set, as an integer above 0."""
    flags = flags.to(tl.int32)
    if flags.shape[0] == 2:
        # The CPU compiler takes a reduction of two elements for an expression and forgets what a scalar one reads.
        flags = tl.reshape(tl.broadcast_to(flags[:, None], (2, 2)), (4,))
    return tl.max(flags, 0)


@kernel
def differ(a, b):
    """Whether two sets of terms differ in any row, as an integer above 0; terms of NaN differ from all."""
    return any_row((a[0] != b[0]) | (a[2] != b[2]))


@kernel
def _row_exp64(x, shift):
    """exp(x - shift) * 2^512 of fp64; what rounding takes from the difference counts too."""
    d, rest = add_exact(x, -1.0 * shift)
    far = d < FAR_OF_FP64
    t, s, low = exp64_parts(tl.where(far, FAR_OF_FP64, d), tl.where(far, 0.0, rest))
    power = ((t.to(tl.int64, bitcast=True) + (512 + 1023)) << 52).to(tl.float64, bitcast=True)
    return (s + low) * power


@kernel
def row_exp(x, shift, low, rounding, DTYPE: tl.constexpr, LEAN: tl.constexpr):
    """``p(r) * 2^(k - K + 57)``: exp(x - M) but for the factor of the row, of which DTYPE are the elements."""
    if tl.float64 == DTYPE:
        e = _row_exp64(x, shift)
    else:
        d = x - shift
        if LEAN:
            d = tl.maximum(d, low)
        else:
            d = tl.where(d < low, low, d)
        t = tl.fma(d, LOG2E, rounding)
        n = t - rounding
        if tl.bfloat16 == DTYPE:
            p = short_exp(tl.fma(n, -LN2, d))
        elif tl.float16 == DTYPE:
            p = middle_exp(tl.fma(n, -LN2, d))
        else:
            p = small_exp(tl.fma(n, -LN2_LOW, tl.fma(n, -LN2_HIGH, d)))
        if LEAN:
            e = ((t.to(tl.int32, bitcast=True) << 23) + p.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
        else:
            e = p * ((t.to(tl.int32, bitcast=True) << 23) + ONE).to(tl.float32, bitcast=True)
    return e


@kernel
def quotient(e, total, scale, DTYPE: tl.constexpr):
    """``e / total`` from ``scale = 1 / total``: all but correctly rounded in fp32, as it is meant in 16 bits."""
    if tl.float64 == DTYPE:
        y = e / total
    else:
        y = e * scale
        if tl.float32 == DTYPE:
            y = tl.fma(tl.fma(-1.0 * total, y, e), scale, y)
    return y


@kernel
def with_bad(total, largest):
    """The sum of a row, NaN if its largest element is NaN or infinite."""
    return total + (largest - largest)


@kernel
def divisors(total, lowest, SAFE: tl.constexpr):
    """What `quotient` takes: the sum of a row and its inverse; `lowest`: the row has nothing above -inf."""
    if total.dtype == tl.float64:
        if SAFE:
            total = tl.where(lowest & (total == total), float("inf"), total)
        scale = total
    else:
        scale = tl.div_rn(1.0, total)
        if SAFE:
            scale = tl.where(lowest & (total == total), 0.0, scale)
    return total, scale


@kernel
def _two_sum(a, b):
    """a + b as the rounded sum and its error."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


@kernel
def clear_winner(total, peak):
    """Whether one element, of exponential `peak`, outweighs all others: `log_sum` then needs their sum."""
    return total < peak + peak


@kernel
def _log_sum32(total, peak, near, rest, largest, terms, DTYPE: tl.constexpr):
    """`log_sum` in fp32: of the sum itself, relative to `shift`, or (near) of 1 + rest / peak, relative to M."""
    others = tl.div_rn(rest, peak)
    sums = 1.0 + others
    small = tl.where(near, tl.div_rn(others - (sums - 1.0), sums), total - total)  # NaN stays
    whole = tl.where(near, sums, total).to(tl.int32, bitcast=True)
    k = (whole - SQRT_HALF) >> 23
    mantissa = (whole - (k << 23)).to(tl.float32, bitcast=True)
    k = k.to(tl.float32) + tl.where(near, 0.0, ROUND - terms[2])
    base = tl.where(near, largest, terms[0])
    rounded = tl.fma(k, LN2_LOW, log(mantissa) + small)
    if DTYPE == tl.float32:
        high, low = _two_sum(base, k * LN2_HIGH)
        high, lower = _two_sum(high, rounded)
        low = low + lower
    else:
        high, low = base, tl.fma(k, LN2_HIGH, rounded)
    return high, low


@kernel
def log_sum(total, peak, near, rest, largest, lowest, terms, SAFE: tl.constexpr, DTYPE: tl.constexpr):
    """``M + log(sum of exp(x - M))`` as what `minus_log_sum` takes.

    `total` is the sum of all exponentials, `peak` that of the largest element. Where `near`, `rest` sums the others,
    and the logarithm of ``1 + rest / peak`` keeps its low digits.
    """
    if DTYPE == tl.float64:
        high, low = largest, tl.where(near, log1p64(rest / peak), log64(total / peak))
    else:
        high, low = _log_sum32(total, peak, near, rest, largest, terms, DTYPE)
    if SAFE:
        empty = lowest & (total == total)
        high = tl.where(empty, 0.0, high)
        low = tl.where(empty, 0.0, low)
    return high, low


@kernel
def minus_log_sum(x, high, low, DTYPE: tl.constexpr):
    """``x - (high + low)``; in fp32 rounded once where the result is finite."""
    t = x - high
    if tl.float32 == DTYPE:
        part = t - x
        error = (x - (t - part)) - (high + part)
        y = tl.where(t == float("-inf"), t, t + (error - low))
    else:
        y = t - low
    return y
