"""Exponentials of a row relative to its largest element M, without a rounded difference.

Write ``x = k ln2 + r`` with k an integer; then ``exp(x - M) = p(r) * 2^(k - K) * exp(K ln2 - M)``, where K is the
integer of M and the last factor is one for the whole row: a softmax cancels it. Where |M| is 256 or more, k would lose
precision, so M is subtracted first, which is exact for every element within a factor of two of M; all others vanish.
The powers are kept larger by 2^64, so that nothing is subnormal before the last multiplication, which rounds once.
A NaN or +inf in a row, or a row of -inf alone, makes every sum NaN.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import log

LOG2E = 1.4426950216293335
LN2_HIGH = 0.693145751953125  # 15 bits: the first step of the reduction is exact
LN2_LOW = 1.4286067653301870e-06
ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
BIAS = 191.0  # 127 of the exponent field, and 2^64
LIFT = 5.421010862427522e-20  # 2^-64
FAR = 110.0  # exp(-110) is 0 in float32
LARGE = 256.0
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
def row_terms(largest):
    """What is subtracted from every element, the lowest difference that counts, the rounding constant, K, M - shift."""
    shift = tl.where(tl.abs(largest) < LARGE, 0.0, largest)
    base = largest - shift
    k = tl.fma(base, LOG2E, ROUND) - ROUND
    return shift, base - FAR, (ROUND + BIAS) - k, k, base


@kernel
def row_exp(x, shift, low, rounding):
    """``p(r) * 2^(k - K + 64)``: exp(x - M) but for the factor of the row, times 2^64. NaN stays NaN."""
    d = x - shift
    d = tl.where(d < low, low, d)
    t = tl.fma(d, LOG2E, rounding)
    n = t - rounding
    r = tl.fma(n, -LN2_LOW, tl.fma(n, -LN2_HIGH, d))
    power = (t.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    return small_exp(r) * power


@kernel
def quotient(e, total, scale):
    """``e / total``, all but correctly rounded, from ``scale = 1 / total``."""
    y = e * scale
    return tl.fma(tl.fma(-1.0 * total, y, e), scale, y)


@kernel
def reciprocal_sum(total, lowest, SAFE: tl.constexpr):
    """What every exponential of the row is multiplied with; `lowest`: the row has nothing above -inf."""
    scale = tl.div_rn(1.0, total)
    if SAFE:
        scale = tl.where(lowest & (total == total), 0.0, scale)
    return scale


@kernel
def _two_sum(a, b):
    """a + b as the rounded sum and its error."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


@kernel
def log_sum(rest, count, largest, terms, lowest, SAFE: tl.constexpr):
    """``M + log(count + others)`` as a sum of two floats; `rest` sums the exponentials below the largest element."""
    delta = tl.fma(terms[3], LN2_LOW, tl.fma(terms[3], LN2_HIGH, -1.0 * terms[4]))
    others = (rest * LIFT) * small_exp(delta)
    ones = count.to(tl.float32)
    total = ones + others
    small = tl.div_rn(others - (total - ones), total)
    bits = total.to(tl.int32, bitcast=True) - SQRT_HALF
    k = bits >> 23
    mantissa = (total.to(tl.int32, bitcast=True) - (k << 23)).to(tl.float32, bitcast=True)
    k = k.to(tl.float32)
    high, low = _two_sum(largest, k * LN2_HIGH)
    high, lower = _two_sum(high, tl.fma(k, LN2_LOW, log(mantissa) + small))
    low = low + lower
    if SAFE:
        empty = lowest & (rest == rest)
        high = tl.where(empty, 0.0, high)
        low = tl.where(empty, 0.0, low)
    return high, low


@kernel
def minus_log_sum(x, high, low):
    """``x - (high + low)``, rounded once where the result is finite."""
    t = x - high
    part = t - x
    error = (x - (t - part)) - (high + part)
    return tl.where(t == float("-inf"), t, t + (error - low))
