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
from nbxtensor.kernel.math64_exp import exp64_parts
from nbxtensor.kernel.math64_log import log1p64, log64
from nbxtensor.kernel.math64_parts import add_exact, real
from nbxtensor.kernel.math_log import log_curve

LOG2E = 1.4426950216293335
LN2 = 0.6931471824645996
LN2_HIGH = 0.693145751953125  # 15 bits: the first step of the reduction is exact
LN2_LOW = 1.4286067653301870e-06
ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
ROUND_TO_32 = 402653184.0  # 1.5 * 2^28
ROUND_TO_64 = 805306368.0  # 1.5 * 2^29
LIFT = 57.0
MIDDLE = 20.0
HUGE_OF_16_BITS = 2097152.0  # 2^21
FAR_OF_16_BITS = 181.0  # powers of two
FAR = 126.25  # exp(M - 104) rounds to 0, and M is at most 22.2 below or above K ln2
LARGE = 256.0
ROUND_TO_64_OF_FP64 = 4.323455642275676e17  # 1.5 * 2^58
FAR_OF_FP64 = -800.0  # exp(M - 746) rounds to 0
HUGE_OF_FP64 = 1.44115188075855872e17  # 2^57
HUGE = 134217728.0  # 2^27: from here on floats are multiples of 16 or more
CLEAR_IN_16_BITS = 0.015625
HUGE_ERROR = 1e32  # above any error of a difference of floats
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
def short_exp2(f):
    """2^f for |f| <= 0.5005, within 2.9e-6 of it."""
    p = tl.fma(f, 0.009582777507603168, 0.05590721219778061)
    p = tl.fma(p, f, 0.24024105072021484)
    p = tl.fma(p, f, 0.6931241154670715)
    return tl.fma(p, f, 1.0)


@kernel
def middle_exp2(f):
    """2^f for |f| <= 0.5005, within 1.6e-7 of it."""
    p = tl.fma(f, 0.0013264591107144952, 0.009671619161963463)
    p = tl.fma(p, f, 0.0555073507130146)
    p = tl.fma(p, f, 0.24022240936756134)
    p = tl.fma(p, f, 0.6931470036506653)
    return tl.fma(p, f, 1.0)


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
    """The largest element along AXIS (2 or more: of folded rows); a zero is positive."""
    if AXIS >= 2:
        x = tl.reduce(x, 1, _either)
    if LEAN:
        most = tl.reduce(x, 1 if AXIS >= 2 else AXIS, _either)
    else:
        most = tl.max(x, AXIS)
    return most + 0.0


@kernel
def wide(x):
    """An element in the type that is computed in: fp64 for fp64, else fp32."""
    if x.dtype == tl.bfloat16:
        x = (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    elif x.dtype != tl.float64:
        x = x.to(tl.float32)
    return x


@kernel
def _coarse(power):
    """The K of a row whose largest element has this power of two."""
    return (((power - MIDDLE) + ROUND_TO_64) - ROUND_TO_64) + MIDDLE


@kernel
def row_terms(largest, DTYPE: tl.constexpr):
    """What `row_exp` needs to know of a row of DTYPE: three numbers, coarse functions of its largest element.

    What is subtracted from an element (16 bits: what it is multiplied with), what is the lowest difference (element)
    that counts, and the constant that rounds.
    """
    size = tl.abs(largest)
    if tl.float64 == DTYPE:
        coarse = (largest + real(ROUND_TO_64_OF_FP64)) - real(ROUND_TO_64_OF_FP64)
        shift = tl.where(size < real(HUGE_OF_FP64), coarse, largest)
        terms = shift, shift, shift
    elif tl.float32 == DTYPE:
        coarse = tl.where(size < HUGE, (largest + ROUND_TO_32) - ROUND_TO_32, largest)
        shift = tl.where(size < LARGE, 0.0, coarse)
        k = _coarse((largest - shift) * LOG2E)
        terms = shift, tl.fma(k, LN2, -FAR), (ROUND + LIFT) - k
    else:
        # A larger M = m * 2^e is brought down to m * 2^17: what is below it, by 2^-8 of it at least, vanishes.
        e = ((largest.to(tl.int32, bitcast=True) >> 23) & 255) - 127
        down = ((127 + 17 - e) << 23).to(tl.float32, bitcast=True)
        up = ((127 - 17 + e) << 23).to(tl.float32, bitcast=True)
        factor = tl.where(size < HUGE_OF_16_BITS, LOG2E, down)
        k = _coarse(largest * factor)
        terms = factor, (k - FAR_OF_16_BITS) * tl.where(size < HUGE_OF_16_BITS, LN2, up), (ROUND + LIFT) - k
    return terms


@kernel
def guessed(largest):
    """A largest element of a part of a row, to guess terms from: 0 instead of -inf."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@kernel
def any_row(flags):
    """Whether a flag of any row is set, as an integer above 0."""
    return tl.max(flags.to(tl.int32), 0)


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
def _scaled(p, t, LEAN: tl.constexpr):
    """p times the power of two in the low bits of t."""
    power = t.to(tl.int32, bitcast=True) << 23
    if LEAN:
        e = (power + p.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    else:
        e = p * (power + ONE).to(tl.float32, bitcast=True)
    return e


@kernel
def _at_least(x, low, LEAN: tl.constexpr):
    if LEAN:
        x = tl.maximum(x, low)
    else:
        x = tl.where(x < low, low, x)
    return x


@kernel
def row_exp(x, first, low, rounding, DTYPE: tl.constexpr, LEAN: tl.constexpr):
    """``p(r) * 2^(k - K + 57)``: exp(x - M) but for the factor of the row, of which DTYPE are the elements."""
    if tl.float64 == DTYPE:
        e = _row_exp64(x, first)
    elif tl.float32 == DTYPE:
        d = _at_least(x - first, low, LEAN)
        t = tl.fma(d, LOG2E, rounding)
        n = t - rounding
        e = _scaled(small_exp(tl.fma(n, -LN2_LOW, tl.fma(n, -LN2_HIGH, d))), t, LEAN)
    else:
        x = _at_least(x, low, LEAN)
        t = tl.fma(x, first, rounding)
        f = tl.fma(x, first, rounding - t)
        if tl.bfloat16 == DTYPE:
            p = short_exp2(f)
        else:
            p = middle_exp2(f)
        e = _scaled(p, t, LEAN)
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
def _quick_two_sum(a, b):
    """The same where a is 0 or |a| >= |b|."""
    s = a + b
    return s, b - (s - a)


@kernel
def clear_winner(total, peak, DTYPE: tl.constexpr):
    """Whether one element, of exponential `peak`, outweighs all others so far that `log_sum` needs their sum.

    In 16 bits that is where they come to less than 2^-6 of it: the logarithm of more loses nothing that shows.
    """
    if tl.float32 == DTYPE or tl.float64 == DTYPE:
        most = peak + peak
    else:
        most = peak * (1.0 + CLEAR_IN_16_BITS)
    return total < most


@kernel
def _log_parts(x):
    """log(x) of a normal x > 0 as an integer times ln2, and the logarithm of what is left."""
    bits = x.to(tl.int32, bitcast=True)
    k = (bits - SQRT_HALF) >> 23
    f = (bits - (k << 23)).to(tl.float32, bitcast=True) - 1.0
    return k.to(tl.float32), tl.fma(log_curve(f), f * f, f)


@kernel
def _joined(base, k, rounded, DTYPE: tl.constexpr, COARSE: tl.constexpr):
    """base + k * ln2 + rounded as what `minus_log_sum` takes; COARSE: base is 0 or far larger than the rest."""
    rounded = tl.fma(k, LN2_LOW, rounded)
    if tl.float32 == DTYPE:
        if COARSE:
            high, low = _quick_two_sum(base, k * LN2_HIGH)
            high, lower = _quick_two_sum(high, rounded)
        else:
            high, low = _two_sum(base, k * LN2_HIGH)
            high, lower = _two_sum(high, rounded)
        low = low + lower
    else:
        high, low = base, tl.fma(k, LN2_HIGH, rounded)
    return high, low


@kernel
def log_sum(total, peak, largest, terms, DTYPE: tl.constexpr):
    """``M + log(sum of exp(x - M))`` as what `minus_log_sum` takes: `total` is the sum, `peak` that of M alone."""
    if tl.float64 == DTYPE:
        high, low = largest, log64(total / peak)
    elif tl.float32 == DTYPE:
        k, rounded = _log_parts(total)
        high, low = _joined(terms[0], k + (ROUND - terms[2]), rounded + (total - total), DTYPE, True)  # NaN stays
    else:
        k, rounded = _log_parts(tl.div_rn(total, peak))
        high, low = _joined(largest, k, rounded + (total - total), DTYPE, False)
    return high, low


@kernel
def log_sum_of_winner(rest, peak, largest, DTYPE: tl.constexpr):
    """The same where one element outweighs all others, which sum to `rest`: M + log(1 + rest / peak)."""
    if tl.float64 == DTYPE:
        high, low = largest, log1p64(rest / peak)
    else:
        others = tl.div_rn(rest, peak)
        sums = 1.0 + others
        k, rounded = _log_parts(sums)
        # What rounding took from the sum, over the sum: 1.5 - sums / 2 is near enough to 1 / sums from 1 to 2.
        small = (others - (sums - 1.0)) * tl.fma(sums, -0.5, 1.5)
        high, low = _joined(largest, k, rounded + small, DTYPE, False)
    return high, low


@kernel
def emptied(factors, total, lowest, SAFE: tl.constexpr):
    """Factors of `minus_log_sum` that give -inf for a row of -inf alone (SAFE)."""
    high, low = factors[0], factors[1]
    if SAFE:
        empty = lowest & (total == total)
        high = tl.where(empty, 0.0, high)
        low = tl.where(empty, 0.0, low)
    return high, low


@kernel
def either(near, a, b):
    """Factors `a` of rows with a winner, `b` of the others."""
    return tl.where(near, a[0], b[0]), tl.where(near, a[1], b[1])


@kernel
def minus_log_sum(x, high, low, DTYPE: tl.constexpr):
    """``x - (high + low)``; in fp32 rounded once where ``|high| >= |x|``, within 1.5 ULP elsewhere."""
    t = x - high
    if tl.float32 == DTYPE:
        # The minimum drops what is no error where t is -inf: NaN, or +inf if `x` is finite.
        y = t + (tl.minimum(x - (t + high), HUGE_ERROR) - low)
    else:
        y = t - low
    return y
