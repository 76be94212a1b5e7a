"""Shorter forms for results that are rounded to 16 bits: exp, sin, cos, tanh, erf, sigmoid, silu, softplus, gelu.

Arguments are 16-bit floats widened to fp32. Errors are near 2^-22 of the result, so what is rounded to float16 or
bfloat16 is never off by more than one unit, and correctly rounded for more than 99.9 % of all arguments. Squares of
arguments are exact in fp32, and one step of reduction is enough.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import copy_sign, magnitude, negate
from nbxtensor.kernel.math_exp import LOG2E, MINUS_LN2_HI, ROUND, clamp_high, clamp_low, minus_reciprocal, power_halves
from nbxtensor.kernel.math_trig import HUGE, INFINITE, huge_angle, huge_turns, largest

INV_PI = 0.31830987
MINUS_PI_1 = -3.141592502593994
MINUS_PI_2 = -1.5099578831723193e-07


@kernel
def _exp_parts(x):
    """t with n in its low bits, and e = exp(x - n * ln 2) - 1."""
    t = tl.fma(x, LOG2E, ROUND)
    r = tl.fma(t - ROUND, MINUS_LN2_HI, x)
    q = tl.fma(r, 0.008312681, 0.04189019)
    q = tl.fma(q, r, 0.16667113)
    q = tl.fma(q, r, 0.4999923)
    return t, tl.fma(r * r, q, r)


@kernel
def _one_power(t, offset: tl.constexpr):
    """2^n for the n in the low bits of t, in bits 0x3F800000 + n * 2^23; another offset scales or negates it."""
    return ((t.to(tl.int32, bitcast=True) << 23) + offset).to(tl.float32, bitcast=True)


@kernel
def exp_fast16(x):
    """e^x for a 16-bit result."""
    t, e = _exp_parts(clamp_high(clamp_low(x, -104.0), 89.0))
    first, second = power_halves(t)
    return tl.fma(e, first, first) * second


@kernel
def _sine(a, h, flip, size, quarter: tl.constexpr):
    """sin(a - h * pi) by its bits' flip; huge arguments from the integer product, `quarter` in units of 2^-63."""
    r = tl.fma(h, MINUS_PI_2, tl.fma(h, MINUS_PI_1, a))
    if largest(size) >= HUGE:
        huge = (size >= HUGE) & (size < INFINITE)
        turns = huge_turns(size) + quarter
        angle, _ = huge_angle(turns << 1)
        r = tl.where(huge, angle + angle, r)
        flip = tl.where(huge, ((turns ^ (turns << 1)) >> 32).to(tl.int32), flip)
    z = r * r
    s = tl.fma(z, 2.599518e-06, -0.0001980685)
    s = tl.fma(s, z, 0.00833303)
    s = tl.fma(s, z, -0.16666658)
    return tl.fma(s * z, r, r).to(tl.int32, bitcast=True), flip


@kernel
def sin_fast16(x):
    """Sine for a 16-bit result."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    a = size.to(tl.float32, bitcast=True)
    t = tl.fma(a, INV_PI, ROUND)
    y, flip = _sine(a, t - ROUND, t.to(tl.int32, bitcast=True) << 31, size, 0)
    return (y ^ ((flip ^ bits) & -2147483648)).to(tl.float32, bitcast=True)


@kernel
def cos_fast16(x):
    """Cosine for a 16-bit result."""
    size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    a = size.to(tl.float32, bitcast=True)
    t = tl.fma(a, INV_PI, -0.5) + ROUND
    flip = (t.to(tl.int32, bitcast=True) + 1) << 31
    y, flip = _sine(a, (t - ROUND) + 0.5, flip, size, 0x4000000000000000)
    return (y ^ (flip & -2147483648)).to(tl.float32, bitcast=True)


@kernel
def tanh_fast16(x):
    """Hyperbolic tangent for a 16-bit result."""
    a = magnitude(x)
    z = a * a
    p = tl.fma(z, 0.016437864, -0.052672006)
    p = tl.fma(p, z, 0.13320729)
    p = tl.fma(p, z, -0.33332947)
    near = tl.fma(p * z, a, a)
    c = clamp_high(a, 9.1)
    t, e = _exp_parts(c + c)
    scale = _one_power(t, 0x3F800000)
    far = tl.fma(minus_reciprocal(tl.fma(e, scale, scale + 1.0)), 2.0, 1.0)
    return copy_sign(tl.where(a < 0.55, near, far), x)


@kernel
def erf_fast16(x):
    """Error function for a 16-bit result."""
    a = magnitude(x)
    z = a * a
    p = tl.fma(z, 0.0042645265, -0.026459387)
    p = tl.fma(p, z, 0.112765945)
    p = tl.fma(p, z, -0.37612188)
    p = tl.fma(p, z, 0.12837912)
    near = tl.fma(p, a, a)
    c = clamp_high(a, 3.95)
    g = tl.fma(c, -0.0014641776, 0.017135072)
    g = tl.fma(g, c, -0.09552632)
    g = tl.fma(g, c, -0.64466965)
    g = tl.fma(g, c, -1.1242653)
    g = tl.fma(g, c, -0.00081539183)
    t, e = _exp_parts(g)
    minus = _one_power(t, -1082130432)
    far = tl.fma(e, minus, 1.0 + minus)
    return copy_sign(tl.where(a < 0.7, near, far), x)


@kernel
def _logistic16(z):
    """For -87 <= z <= 113: -u and -1 / (u * (1 + exp(z))), u a power of two that keeps both in range."""
    t, e = _exp_parts(z)
    bits = t.to(tl.int32, bitcast=True)
    half = tl.maximum(bits, 0x4B400000) >> 1
    s = (((bits - half) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    minus_u = (-1082130432 - (half << 23)).to(tl.float32, bitcast=True)
    return minus_u, minus_reciprocal(tl.fma(e, s, s - minus_u))


@kernel
def sigmoid_fast16(x):
    """1 / (1 + exp(-x)) for a 16-bit result."""
    minus_u, inverse = _logistic16(clamp_high(clamp_low(negate(x), -87.0), 105.0))
    return minus_u * inverse


@kernel
def silu_fast16(x):
    """x * sigmoid(x) for a 16-bit result."""
    low = clamp_low(x, -110.0)
    minus_u, inverse = _logistic16(clamp_low(negate(low), -87.0))
    return (low * minus_u) * inverse


@kernel
def gelu_tanh_fast16(x):
    """gelu with tanh for a 16-bit result."""
    low = clamp_low(x, -11.0)
    z = low * tl.fma(low * low, -0.071354814, -1.5957692)
    minus_u, inverse = _logistic16(clamp_low(z, -87.0))
    return (low * minus_u) * inverse


@kernel
def softplus_fast16(x):
    """log(1 + exp(x)) for a 16-bit result."""
    t, e = _exp_parts(clamp_low(negate(magnitude(x)), -104.0))
    first, second = power_halves(t)
    e = tl.fma(e, first, first) * second
    q = tl.fma(e, -0.008776237, 0.044977862)
    q = tl.fma(q, e, -0.1090119)
    q = tl.fma(q, e, 0.17846535)
    q = tl.fma(q, e, -0.2453666)
    q = tl.fma(q, e, 0.33284035)
    q = tl.fma(q, e, -0.4999818)
    return tl.where(x > 0.0, x, 0.0) + tl.fma(e * e, q, e)


@kernel
def gelu_fast16(x):
    """x * Phi(x) for a 16-bit result."""
    a = clamp_high(magnitude(x), 14.5)
    t, e = _exp_parts((a * a) * -0.5)
    q = minus_reciprocal(a + 2.5) * -2.5
    m = tl.fma(q, -0.039221615, 0.19896188)
    m = tl.fma(m, q, -0.3707088)
    m = tl.fma(m, q, 0.24802536)
    m = tl.fma(m, q, -0.010647077)
    m = tl.fma(m, q, 0.15779412)
    m = tl.fma(m, q, 0.15591827)
    m = tl.fma(m, q, 0.15988918)
    m = tl.fma(m, q, -1.12821435e-05)
    first, second = power_halves(t)
    w = (m * a) * first
    y = tl.fma(negate(second), tl.fma(w, e, w), tl.where(x < 0.0, -0.0, x))
    return tl.where(a < 7.450580596923828e-09, x * 0.5, y)
