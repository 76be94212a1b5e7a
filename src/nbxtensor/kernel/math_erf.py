"""tanh, erf and gelu of fp32.

Near zero tanh and erf are odd polynomials; farther out they are 1 minus something small that an exponential gives.
gelu(x) = x * Phi(x) comes from t * Phi(-t) with t = |x|, where Phi(-t) = exp(-t^2 / 2) * R(t) and R, Mills' ratio, is
M / (t + c) with a polynomial M in t / (t + c). t^2 is kept in two parts, so the negative tail is accurate in relative
terms down to the subnormals.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import copy_sign, magnitude, negate
from nbxtensor.kernel.math_exp import (
    LOG2E,
    MINUS_LN2_HI,
    ROUND,
    clamp_high,
    exp_curve,
    exp_split,
    exp_tail,
    minus_reciprocal,
)


@kernel
def _one_power(t):
    """2^n for the n in the low bits of t (-126 <= n <= 127)."""
    return ((t.to(tl.int32, bitcast=True) << 23) + 0x3F800000).to(tl.float32, bitcast=True)


@kernel
def tanh(x):
    """Hyperbolic tangent of fp32. At most 1.23 ULP."""
    a = magnitude(x)
    z = a * a
    p = tl.fma(z, -0.0058979667, 0.020798625)
    p = tl.fma(p, z, -0.053784717)
    p = tl.fma(p, z, 0.13331936)
    p = tl.fma(p, z, -0.333333)
    near = tl.fma(p * z, a, a)
    c = clamp_high(a, 9.1)
    t, r = exp_split(c + c)
    scale = _one_power(t)
    far = 1.0 - tl.div_rn(2.0, tl.fma(exp_tail(r), scale, scale + 1.0))
    return copy_sign(tl.where(a < 0.6, near, far), x)


@kernel
def erf(x):
    """Error function of fp32. At most 1.06 ULP."""
    a = magnitude(x)
    z = a * a
    p = tl.fma(z, -0.0006542251, 0.0050868657)
    p = tl.fma(p, z, -0.026822243)
    p = tl.fma(p, z, 0.11283162)
    p = tl.fma(p, z, -0.37612608)
    p = tl.fma(p, z, 0.12837917)
    near = tl.fma(p, a, a)
    c = clamp_high(a, 3.95)
    g = tl.fma(c, 0.00020743892, -0.0031534857)
    g = tl.fma(g, c, 0.02265577)
    g = tl.fma(g, c, -0.10479803)
    g = tl.fma(g, c, -0.63622254)
    g = tl.fma(g, c, -1.1282287)
    g = tl.fma(g, c, -6.601641e-05)
    t = tl.fma(g, LOG2E, ROUND)
    r = tl.fma(t - ROUND, MINUS_LN2_HI, g)
    minus = ((t.to(tl.int32, bitcast=True) << 23) - 0x40800000).to(tl.float32, bitcast=True)
    far = tl.fma(exp_tail(r), minus, 1.0 + minus)
    return copy_sign(tl.where(a < 0.8, near, far), x)


@kernel
def gelu(x):
    """x * Phi(x) of fp32, Phi the distribution function of the normal distribution. At most 2.19 ULP."""
    a = clamp_high(tl.abs(x), 14.5)
    r = minus_reciprocal(a + 2.375)
    # e = -a^2 / 2 - n * ln 2 with what rounding left out of a^2, and what r lacks of -1 / (a + c) times the mean slope
    # of ln(R) over ln(-r). The second part of ln 2 is nearly proportional to a^2: M has it.
    h = a * -0.5
    half = a * h
    t = tl.fma(half, LOG2E, ROUND)
    n = t - ROUND
    lost = tl.fma(r, a, tl.fma(r, 2.375, 1.0))
    e = tl.fma(n, MINUS_LN2_HI, half) + tl.fma(lost, 1.375, tl.fma(a, h, negate(half)))
    z = tl.fma(r, -2.375, -0.5546875)
    # minus M(z)
    m = tl.fma(z, 0.0685961, -0.08481234)
    m = tl.fma(m, z, -0.036040723)
    m = tl.fma(m, z, 0.14232905)
    m = tl.fma(m, z, -0.06364886)
    m = tl.fma(m, z, -0.15373658)
    m = tl.fma(m, z, 0.18784858)
    m = tl.fma(m, z, 0.20219733)
    m = tl.fma(m, z, -0.3950246)
    m = tl.fma(m, z, -0.8667526)
    top = tl.fma(m, z, -0.7456446)
    # w = a * (u + low) = R * a * exp(...), in two parts so that two roundings less count.
    u = r * top
    low = tl.fma(r, tl.fma(m, z, -0.7456446 - top), tl.fma(r, top, negate(u)))
    low = tl.fma(u, e, tl.fma(u, (e * e) * exp_curve(e), low))
    w = tl.fma(a, u, a * low)
    power = ((t.to(tl.int32, bitcast=True) << 23) + 0x57800000).to(tl.float32, bitcast=True)  # 2^(n + 48)
    # The smaller of the bits as unsigned integers: x itself, and -0.0 below zero.
    positive = tl.minimum(x.to(tl.uint32, bitcast=True), 0x80000000).to(tl.float32, bitcast=True)
    return tl.fma(w * power, -3.552713678800501e-15, positive)
