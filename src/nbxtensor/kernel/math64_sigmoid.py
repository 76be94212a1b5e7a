"""sigmoid, silu, softplus, tanh and gelu with tanh of fp64.

The logistic functions are made as those of fp32: w / D with D = 1 + 2^n * (1 + r + tail), kept as 2^-100 * D. A
quotient from an approximate reciprocal is corrected by what w leaves over, and there the terms of D enter one by one.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_exp import exp64_parts, exp64_terms
from nbxtensor.kernel.math64_log import log1p64_parts
from nbxtensor.kernel.math64_parts import (
    add_exact,
    add_ordered,
    at_least,
    at_most,
    minus,
    minus_inverse64,
    multiply_exact,
    power_halves64,
    real,
)
from nbxtensor.kernel.math_bits import copy_sign

UNIT64 = 7.888609052210118e-31  # 2^-100
# 2 * sqrt(2 / pi), and 0.044715 times that.
GELU_A_HI = 1.5957691216057308
GELU_A_LO = -9.96930880911092e-17
GELU_B_HI = 0.07135481627260025
GELU_B_LO = -6.175149918155315e-19


@kernel
def _logistic(w, z, rest):
    """w * sigmoid(z + rest) for -800 < z < 42, `rest` within a rounding of z; the sign of a zero is lost."""
    t, r, tail = exp64_terms(minus(z), minus(rest))
    # 2^-100 * (1 + 2^n * (1 + r + tail)): what is divided by, never rounded where it counts.
    s = ((t.to(tl.int64, bitcast=True) << 52) + 0x39B0000000000000).to(tl.float64, bitcast=True)
    both = s + UNIT64
    i = minus_inverse64(tl.fma(s, r + tail, both))
    q = w * i
    large = q * s
    lost = tl.fma(large, r, tl.fma(q, both, w))
    lost = tl.fma(large, tail, tl.fma(q, UNIT64 - (both - s), lost))
    return tl.fma(lost, i, q) * -UNIT64


@kernel
def sigmoid64(x):
    """1 / (1 + exp(-x)) of fp64. At most 0.8 ULP in all samples."""
    return _logistic(real(1.0), at_most(at_least(x, -760.0), 40.0), real(0.0))


@kernel
def silu64(x):
    """x * sigmoid(x) of fp64; silu(-inf) is -0.0, the limit. At most 1.0 ULP in all samples."""
    c = at_least(x, -760.0)
    return tl.where(x > 40.0, x, copy_sign(_logistic(c, c, real(0.0)), x))


@kernel
def gelu_tanh64(x):
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 of fp64, that is x * sigmoid(2 * sqrt(...) * (...))."""
    c = at_most(at_least(x, -21.625), 9.0)
    square, square_low = multiply_exact(c, c)
    p, p_low = multiply_exact(square, real(GELU_B_HI))
    p_low = tl.fma(square, real(GELU_B_LO), tl.fma(square_low, real(GELU_B_HI), p_low))
    p, lost = add_exact(p, real(GELU_A_HI))
    p_low = (lost + real(GELU_A_LO)) + p_low
    z, z_low = multiply_exact(c, p)
    z, z_low = add_ordered(z, tl.fma(c, p_low, z_low))
    return tl.where(x > 9.0, x, copy_sign(_logistic(c, z, z_low), x))


@kernel
def _exp_minus(z, rest):
    """exp(-|z + rest|) in two parts."""
    negative = z < 0.0
    t, s, low = exp64_parts(at_least(tl.where(negative, z, minus(z)), -760.0), tl.where(negative, rest, minus(rest)))
    first, second = power_halves64(t)
    return s * first * second, low * first * second


@kernel
def _softplus_parts(z, rest):
    """log(1 + exp(z + rest)) in two parts, `rest` within a rounding of z."""
    e, e_low = _exp_minus(z, rest)
    high, small = log1p64_parts(e)
    small = tl.fma(e_low, tl.fma(e, tl.fma(e, 0.5, -1.0), 1.0), small)  # about e_low / (1 + e)
    above = z > 0.0
    y, lost = add_exact(tl.where(above, z, real(0.0)), high)
    return y, lost + (small + tl.where(above, rest, real(0.0)))


@kernel
def softplus64(x):
    """log(1 + exp(x)) of fp64. At most 0.7 ULP in all samples."""
    high, low = _softplus_parts(x, real(0.0))
    return tl.where(x > 40.0, x, high + low)


@kernel
def softplus_scaled64(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta of fp64, and x where beta * x > threshold."""
    z = x * beta
    near = tl.abs(z) < 1024.0
    rest = tl.where(near, tl.fma(x, beta, minus(z)), real(0.0))
    high, low = _softplus_parts(tl.where(near, z, real(0.0)), rest)
    limit = tl.where(z > 0.0, x, 0.0 / beta)
    y = tl.where(near, (high + low) / beta, tl.where(z == z, limit, z))
    return tl.where(z > threshold, x, y)


@kernel
def tanh64(x):
    """Hyperbolic tangent of fp64. At most 1.4 ULP in all samples."""
    a = at_most(tl.abs(x), 20.0)
    t, r, tail = exp64_terms(a + a, 0.0)
    # (e - 1) / (e + 1) for e = s + s * r + s * tail
    s = ((t.to(tl.int64, bitcast=True) << 52) + 0x3FF0000000000000).to(tl.float64, bitcast=True)
    over, under = s - 1.0, s + 1.0
    g, h = s * r, s * tail
    i = minus_inverse64(under + (g + h))
    q = (over + (g + h)) * minus(i)
    left, left_low = add_ordered(1.0, minus(q))
    lost = tl.fma(minus(q), under, over) + tl.fma(minus(q), 1.0 - (under - s), -1.0 - (over - s))
    lost = tl.fma(g, left_low, tl.fma(h, left, tl.fma(g, left, lost)))
    y = tl.fma(minus(i), lost, q)
    return copy_sign(tl.where(a < 5.820766091346741e-11, a, y), x)
