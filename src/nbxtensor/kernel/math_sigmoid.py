"""sigmoid, silu, softplus and gelu with tanh, of fp32.

All rest on exp(z) = 2^n * (1 + e). The logistic functions are u / (u + s * (1 + e)) with powers of two u = 2^-(n / 2)
and s = 2^(n - n / 2) where n > 0, and u = 1 elsewhere: nothing overflows, and subnormal results are rounded once.
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
    exp_split,
    exp_tail,
    minus_reciprocal,
    power_halves,
)

# -2 * sqrt(2 / pi), and that times 0.044715, in two parts each.
GELU_A = -1.5957692
GELU_A_LO = 4.534068e-08
GELU_B = -0.071354814
GELU_B_LO = -2.3988325e-09


@kernel
def _logistic(t, r):
    """From a reduced exponent z <= 113: -u, d = u + s * (1 + e), and what the rounding of d left out."""
    e = exp_tail(r)
    bits = t.to(tl.int32, bitcast=True)
    half = tl.maximum(bits, 0x4B400000) >> 1
    s = (((bits - half) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    minus_u = (-1082130432 - (half << 23)).to(tl.float32, bitcast=True)
    both = s - minus_u
    d = tl.fma(s, e, both)
    return minus_u, d, tl.fma(s, e, both - d) + ((s - both) - minus_u)


@kernel
def _ratio(minus_top, inverse, d, rest):
    """-minus_top / (d + rest), given -1 / d within 1 ULP. The signs are such that a zero keeps its own."""
    q = minus_top * inverse
    lost = tl.fma(q, rest, tl.fma(q, d, minus_top))
    return tl.fma(lost, inverse, q)


@kernel
def sigmoid(x):
    """1 / (1 + exp(-x)) of fp32. At most 0.97 ULP."""
    t, r = exp_split(clamp_low(clamp_high(negate(x), 105.0), -87.0))
    minus_u, d, rest = _logistic(t, r)
    return _ratio(minus_u, tl.div_rn(-1.0, d), d, rest)


@kernel
def silu(x):
    """x * sigmoid(x) of fp32; silu(-inf) is -0.0, the limit. At most 1.15 ULP."""
    low = clamp_low(x, -110.0)
    t, r = exp_split(negate(low))
    minus_u, d, rest = _logistic(t, r)
    return tl.where(x > 30.0, x, _ratio(low * minus_u, tl.div_rn(-1.0, d), d, rest))


@kernel
def gelu_tanh(x):
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 of fp32, that is x / (1 + exp(z)).

    z = x * (A + B * x^2) is kept in two parts, its constants too, so that the negative tail is accurate.
    At most 1.13 ULP.
    """
    low = clamp_low(x, -11.0)
    square = low * low
    cubic = square * GELU_B
    p = cubic + GELU_A
    part = p - GELU_A
    rest = (GELU_A - (p - part)) + (cubic - part)
    rest = tl.fma(square, GELU_B, negate(cubic)) + rest
    rest = tl.fma(square, GELU_B_LO, rest + GELU_A_LO)
    rest = tl.fma(tl.fma(low, low, negate(square)), GELU_B, rest)
    z = low * p
    rest = tl.fma(low, rest, tl.fma(low, p, negate(z)))
    t = tl.fma(z, LOG2E, ROUND)
    n = t - ROUND
    r = tl.fma(n, MINUS_LN2_HI, z) + tl.fma(n, MINUS_LN2_LO, rest)
    minus_u, d, rest = _logistic(t, r)
    return tl.where(x > 8.0, x, _ratio(low * minus_u, minus_reciprocal(d), d, rest))


@kernel
def _softplus(z, rest):
    """log(1 + exp(z + rest)), `rest` within half a unit in the last place of z."""
    c = clamp_low(negate(magnitude(z)), -104.0)
    t = tl.fma(c, LOG2E, ROUND)
    n = t - ROUND
    r = tl.fma(n, MINUS_LN2_HI, c) + tl.fma(n, MINUS_LN2_LO, tl.where(z > 0.0, negate(rest), rest))
    return tl.where(z > 0.0, z, 0.0) + (_log1p_exp(t, r) + tl.where(z > 0.0, rest, 0.0))


@kernel
def _log1p_exp(t, r):
    """log(1 + exp(n * ln 2 + r)) for an exponent that is not positive."""
    first, second = power_halves(t)
    e = tl.fma(exp_tail(r), first, first) * second
    q = tl.fma(e, -0.0032905191, 0.020086393)
    q = tl.fma(q, e, -0.0574574)
    q = tl.fma(q, e, 0.10661136)
    q = tl.fma(q, e, -0.15344882)
    q = tl.fma(q, e, 0.19692102)
    q = tl.fma(q, e, -0.24958019)
    q = tl.fma(q, e, 0.33330464)
    q = tl.fma(q, e, -0.4999993)
    return tl.fma(e * e, q, e)


@kernel
def softplus(x):
    """log(1 + exp(x)) of fp32. At most 1.88 ULP."""
    t, r = exp_split(clamp_low(negate(magnitude(x)), -104.0))
    return tl.where(x > 0.0, x, 0.0) + _log1p_exp(t, r)


@kernel
def softplus_scaled(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta of fp32, and x where beta * x > threshold. At most 2.6 ULP in all samples."""
    z = x * beta
    rest = tl.where(tl.abs(z) < 128.0, tl.fma(x, beta, negate(z)), 0.0)
    return tl.where(z > threshold, x, tl.div_rn(_softplus(z, rest), beta))
