"""sigmoid, silu, softplus, tanh and gelu with tanh of fp64.

The logistic functions are w * sigmoid(z) = w * e / (1 + 2^n * e) with e = exp(-|z|) or 1: numerator and denominator in
two parts, one division, and what it leaves over goes into the result before its last rounding.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_exp import exp64_parts, expm1_parts64
from nbxtensor.kernel.math64_log import log1p64_parts
from nbxtensor.kernel.math64_parts import (
    ROUND64,
    add_exact,
    add_ordered,
    at_least,
    at_most,
    divide_exact,
    minus,
    multiply_exact,
    power_halves64,
    real,
)
from nbxtensor.kernel.math_bits import copy_sign

# 2 * sqrt(2 / pi), and 0.044715 times that.
GELU_A_HI = 1.5957691216057308
GELU_A_LO = -9.96930880911092e-17
GELU_B_HI = 0.07135481627260025
GELU_B_LO = -6.175149918155315e-19


@kernel
def _exp_minus(z, rest):
    """exp(-|z + rest|), as `exp64_parts` gives it, and both parts of 2^n * (s + low)."""
    negative = z < 0.0
    t, s, low = exp64_parts(at_least(tl.where(negative, z, minus(z)), -800.0), tl.where(negative, rest, minus(rest)))
    first, second = power_halves64(t)
    return t, s, low, s * first * second, low * first * second


@kernel
def _logistic(w, z, rest):
    """w * sigmoid(z + rest) of a finite w, `rest` within a rounding of z, up to the sign of a zero."""
    t, s, low, e, e_low = _exp_minus(z, rest)
    d, lost = add_ordered(1.0, e)
    below = z < 0.0
    p, p_low = multiply_exact(w, tl.where(below, s, real(1.0)))
    q, q_low = divide_exact(p, tl.where(below, tl.fma(w, low, p_low), real(0.0)), d, lost + e_low, 1.0 / d)
    first, second = power_halves64(tl.where(below, t, real(ROUND64)))
    return (q + q_low) * first * second


@kernel
def sigmoid64(x):
    """1 / (1 + exp(-x)) of fp64. At most 0.6 ULP in all samples."""
    return _logistic(1.0, x, real(0.0))


@kernel
def silu64(x):
    """x * sigmoid(x) of fp64; silu(-inf) is -0.0, the limit. At most 0.6 ULP in all samples."""
    c = at_least(x, -800.0)
    return tl.where(x > 40.0, x, copy_sign(_logistic(c, c, real(0.0)), x))


@kernel
def gelu_tanh64(x):
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 of fp64, that is x * sigmoid(2 * sqrt(...) * (...))."""
    c = at_most(at_least(x, -30.0), 30.0)
    square, square_low = multiply_exact(c, c)
    p, p_low = multiply_exact(square, real(GELU_B_HI))
    p_low = tl.fma(square, real(GELU_B_LO), tl.fma(square_low, real(GELU_B_HI), p_low))
    p, lost = add_exact(p, real(GELU_A_HI))
    p_low = (lost + real(GELU_A_LO)) + p_low
    z, z_low = multiply_exact(c, p)
    z, z_low = add_ordered(z, tl.fma(c, p_low, z_low))
    return tl.where(x > 9.0, x, copy_sign(_logistic(c, z, z_low), x))


@kernel
def _softplus_parts(z, rest):
    """log(1 + exp(z + rest)) in two parts, `rest` within a rounding of z."""
    _, _, _, e, e_low = _exp_minus(z, rest)
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
    """Hyperbolic tangent of fp64. At most 0.7 ULP in all samples."""
    a = at_most(tl.abs(x), 20.0)
    high, low = expm1_parts64(a + a)
    # h / (1 + h) for h = (exp(2 a) - 1) / 2
    d, lost = add_exact(high, real(1.0))
    q, q_low = divide_exact(high, low, d, lost + low, 1.0 / d)
    return copy_sign(tl.where(a < 5.820766091346741e-11, a, q + q_low), x)
