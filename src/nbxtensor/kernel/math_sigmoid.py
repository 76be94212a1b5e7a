"""sigmoid, silu, softplus and gelu with tanh, of fp32.

All rest on exp(z) = 2^n * (1 + e). The logistic functions are 1 / D or x / D with D = 1 + 2^n * (1 + e), kept as
2^-48 * D, which neither overflows nor falls among the subnormals. D itself is never rounded where it counts: a quotient
from an approximate reciprocal is corrected by what 1 or x leave over, and there the terms of D enter one by one.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import magnitude, negate
from nbxtensor.kernel.math_exp import (
    LOG2E,
    MINUS_LN2_HI,
    MINUS_LN2_LO,
    ROUND,
    clamp_high,
    clamp_low,
    exp_curve,
)

UNIT = 3.552713678800501e-15  # 2^-48
MINUS_UNIT = -3.552713678800501e-15
# gelu with tanh is x / (1 + 2^z), z = (1 + delta) * x * (A + B * x^2). A has 20 bits and delta is such that the float B
# holds the ratio of the true factors to 36 bits.
GELU_A = -2.3019638
GELU_B = -0.10293231
GELU_DELTA = 0.00010615547  # delta / (1 + delta)


@kernel
def _unit_power(t):
    """2^(n - 48) for the n in the low bits of t (-78 <= n <= 175)."""
    return ((t.to(tl.int32, bitcast=True) << 23) + 0x27800000).to(tl.float32, bitcast=True)


@kernel
def _minus_inverse(d):
    """-1 / d for 2^-126 <= d < 2^126 within 2^-12.9, never beyond it; NaN passes."""
    r = (-17625088 - d.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    e = tl.fma(d, r, 1.0)
    return tl.fma(r, tl.fma(e, e, e), r)


@kernel
def _exp_parts(x):
    """exp(x) = 2^n * (1 + r + tail): t, whose low bits hold n, then r, exact, and the tail; |x| < 2^20."""
    t = tl.fma(x, LOG2E, ROUND)
    n = t - ROUND
    r = tl.fma(n, MINUS_LN2_HI, x)
    low = n * MINUS_LN2_LO
    near = r + low
    return t, r, tl.fma(near * near, exp_curve(near), low)


@kernel
def sigmoid(x):
    """1 / (1 + exp(-x)) of fp32. At most 1.03 ULP."""
    t, r, tail = _exp_parts(negate(clamp_high(clamp_low(x, -105.0), 54.0)))
    s = _unit_power(t)
    both = s + UNIT
    i = _minus_inverse(tl.fma(s, r + tail, both))
    large = i * s
    lost = tl.fma(large, r, tl.fma(i, both, 1.0))
    lost = tl.fma(large, tail, tl.fma(i, UNIT - (both - s), lost))
    return tl.fma(i, lost, i) * MINUS_UNIT


@kernel
def silu(x):
    """x * sigmoid(x) of fp32; silu(-inf) is -0.0, the limit. At most 1.19 ULP."""
    low = clamp_low(x, -110.0)
    t, r, tail = _exp_parts(negate(low))
    s = _unit_power(t)
    both = s + UNIT
    i = _minus_inverse(tl.fma(s, r + tail, both))
    q = low * i
    large = q * s
    # The signs are such that a zero keeps its own.
    lost = tl.fma(large, r, tl.fma(q, both, low))
    lost = tl.fma(large, tail, tl.fma(q, UNIT - (both - s), lost))
    return tl.where(x > 30.0, x, tl.fma(lost, i, q) * MINUS_UNIT)


@kernel
def gelu_tanh(x):
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 of fp32, that is x / (1 + 2^z).

    z is kept in two parts, its constants too, so that the negative tail is accurate. At most 1.75 ULP.
    """
    low = clamp_low(x, -11.0)
    square = low * low
    p = tl.fma(square, GELU_B, GELU_A)
    rest = tl.fma(square, GELU_B, GELU_A - p)
    rest = tl.fma(tl.fma(low, low, negate(square)), GELU_B, rest)
    t = tl.fma(low, p, ROUND)
    n = t - ROUND
    f = tl.fma(low, p, negate(n)) + tl.fma(n, GELU_DELTA, low * rest)
    # 2^((1 + delta) * f) - 1
    q = tl.fma(f, 0.00015495213, 0.001340758)
    q = tl.fma(q, f, 0.009622049)
    q = tl.fma(q, f, 0.055520963)
    q = tl.fma(q, f, 0.24027753)
    q = tl.fma(q, f, 0.6932208)
    e = q * f
    s = _unit_power(t)
    r = _minus_inverse(tl.fma(s, e, s + UNIT))
    q = low * r
    large = q * s
    lost = tl.fma(large, e, tl.fma(q, UNIT, large + low))
    return tl.where(x > 8.0, x, tl.fma(lost, r, q) * MINUS_UNIT)


@kernel
def _log1p_exp(base, t, r, tail):
    """base + log(1 + exp(...)) in two parts, of an exponent that is not positive, as `_exp_parts` gives it."""
    s = ((t.to(tl.int32, bitcast=True) << 23) + 0x57800000).to(tl.float32, bitcast=True)  # 2^(n + 48)
    small = r + tail
    scaled = tl.fma(small, s, s)
    e = scaled * UNIT
    e_low = tl.fma(small, s, s - scaled) * UNIT
    q = tl.fma(e, -0.0032905191, 0.020086393)
    q = tl.fma(q, e, -0.0574574)
    q = tl.fma(q, e, 0.10661136)
    q = tl.fma(q, e, -0.15344882)
    q = tl.fma(q, e, 0.19692102)
    q = tl.fma(q, e, -0.24958019)
    q = tl.fma(q, e, 0.33330464)
    q = tl.fma(q, e, -0.4999993)
    y = base + e
    other = y - base
    lost = (base - (y - other)) + (e - other)
    # The slope of the logarithm, 1 / (1 + e), is about 1 - e / 2.
    return y, tl.fma(e * e, q, tl.fma(e_low, tl.fma(e, -0.5, 1.0), lost))


@kernel
def softplus(x):
    """log(1 + exp(x)) of fp32. At most 1.49 ULP."""
    t, r, tail = _exp_parts(clamp_low(negate(magnitude(x)), -104.0))
    y, low = _log1p_exp(tl.where(x > 0.0, x, 0.0), t, r, tail)
    return tl.where(x > 18.0, x, y + low)


@kernel
def _softplus(z, rest):
    """log(1 + exp(z + rest)), `rest` within half a unit in the last place of z."""
    t, r, tail = _exp_parts(clamp_low(negate(magnitude(z)), -104.0))
    small = tl.where(z > 0.0, negate(rest), rest)
    y, low = _log1p_exp(tl.where(z > 0.0, z, 0.0), t, r, tail + tl.fma(small, r + tail, small))
    return tl.where(z > 1048576.0, z, y + (low + tl.where(z > 0.0, rest, 0.0)))


@kernel
def softplus_scaled(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta of fp32, and x where beta * x > threshold. At most 2.6 ULP in all samples."""
    z = x * beta
    rest = tl.where(tl.abs(z) < 128.0, tl.fma(x, beta, negate(z)), 0.0)
    return tl.where(z > threshold, x, tl.div_rn(_softplus(z, rest), beta))
