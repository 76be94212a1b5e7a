"""tanh, erf and gelu of fp32.

Near zero tanh and erf are odd polynomials; farther out they are 1 minus something small that an exponential gives.
gelu(x) = x * Phi(x) comes from w = t * Phi(-t) with t = |x|, where Phi(-t) = exp(-t^2 / 2) * R(t) and R, Mills' ratio
up to a factor, is a polynomial in 3 / (t + 3). t^2 is kept in two parts, so the negative tail is accurate in relative
terms down to the subnormals.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import copy_sign, magnitude, negate
from nbxtensor.kernel.math_exp import (
    LOG2E,
    MINUS_LN2_HI,
    MINUS_LN2_LO,
    ROUND,
    clamp_high,
    exp_curve,
    exp_split,
    exp_tail,
    minus_reciprocal,
    power_halves,
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
    """x * Phi(x) of fp32, Phi the distribution function of the normal distribution. At most 2.2 ULP."""
    a = clamp_high(magnitude(x), 14.5)
    square = a * a
    half = square * -0.5
    t = tl.fma(half, LOG2E, ROUND)
    n = t - ROUND
    # q = 3 / (a + 3). Its relative error, lost / 3, times the slope of ln(R) over ln(q), joins r.
    d = a + 3.0
    q = minus_reciprocal(d) * -3.0
    lost = tl.fma(negate(q), a - (d - 3.0), tl.fma(negate(q), d, 3.0))
    # -a^2 / 2 - n * ln 2 with all that rounding left out, joined from small to large.
    rest = tl.fma(tl.fma(a, a, negate(square)), -0.5, lost * tl.fma(q, 0.5, 0.31))
    main = tl.fma(n, MINUS_LN2_HI, half)
    rest = tl.fma(n, MINUS_LN2_LO, rest)
    r = main + rest
    m = tl.fma(q, -0.027218163, 0.15192533)
    m = tl.fma(m, q, -0.3193446)
    m = tl.fma(m, q, 0.2770891)
    m = tl.fma(m, q, -0.096782625)
    m = tl.fma(m, q, 0.14061445)
    m = tl.fma(m, q, 0.1061319)
    m = tl.fma(m, q, 0.13474558)
    top = tl.fma(m, q, 0.13283375)
    under = tl.fma(m, q, 0.13283375 - top)
    m = top
    # w + low = a * R(a) = a * (q * m + 5.3e-6)
    aq = a * q
    floor = a * 5.3090366e-06
    w = tl.fma(aq, m, floor)
    low = tl.fma(aq, m, negate(w)) + floor
    low = tl.fma(tl.fma(a, q, negate(aq)), m, low)
    low = tl.fma(aq, under, low)
    first, second = power_halves(t)
    # times 1 + r + r^2 * (...), joined from small to large
    low = tl.fma(w, tl.fma(r * r, exp_curve(r), (main - r) + rest), low)
    w = w + tl.fma(w, r, low)
    y = tl.fma(negate(second), w * first, tl.where(x < 0.0, -0.0, x))
    return tl.where(a < 7.450580596923828e-09, x * 0.5, y)
