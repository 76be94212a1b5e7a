"""Functions whose argument and result are float16: exp, sin, cos, tanh, erf, sigmoid, silu, softplus, gelu.

They take the argument widened to fp32 and are within about 2^-22 of the result, so that what is rounded to 11 bits is
rarely not the nearest. Arguments are clamped where the result no longer changes, and curves are fitted that far; no
float16 comes near the ends of the range of fp32.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import negate
from nbxtensor.kernel.math_exp import LN2_HI, LOG2E, ROUND, ROUND_ONE, clamp_high, clamp_low, power
from nbxtensor.kernel.math_trig import INV_PI, PI_1, PI_2


@kernel
def _exp_curve(r):
    """exp(r) for |r| <= ln(2) / 2, to 2^-23.4; exact for zero."""
    p = tl.fma(r, 0.008289719, 0.04189784)
    p = tl.fma(p, r, 0.16667648)
    p = tl.fma(p, r, 0.4999915)
    p = tl.fma(p, r, 0.9999997)
    return tl.fma(p, r, 1.0)


@kernel
def _quotient(x, d):
    """x / d within about 1 ULP, for 2^-126 <= d < 2^126."""
    r = (2129858560 - d.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    e = tl.fma(negate(d), r, 1.0)
    r = tl.fma(r, tl.fma(e, e, e), r)
    q = x * r
    return tl.fma(q, tl.fma(negate(d), r, 1.0), q)


@kernel
def exp_f16(x):
    """e^x for a float16."""
    c = clamp_high(clamp_low(x, -18.0), 12.0)
    t = tl.fma(c, LOG2E, ROUND_ONE)
    return _exp_curve(tl.fma(t - ROUND_ONE, -LN2_HI, c)) * power(t)


@kernel
def _logistic(x, z):
    """x / (1 + exp(-z))."""
    t = tl.fma(z, -LOG2E, ROUND_ONE)
    p = _exp_curve(tl.fma(t - ROUND_ONE, -LN2_HI, negate(z)))
    return _quotient(x, tl.fma(p, power(t), 1.0))


@kernel
def sigmoid_f16(x):
    """1 / (1 + exp(-x)) for a float16."""
    return _logistic(1.0, clamp_high(clamp_low(x, -18.0), 12.0))


@kernel
def silu_f16(x):
    """x * sigmoid(x) for a float16."""
    low = clamp_low(x, -22.0)
    return _logistic(low, clamp_high(low, 12.0))


@kernel
def gelu_tanh_f16(x):
    """gelu with tanh for a float16."""
    low = clamp_low(x, -6.0)
    z = low * tl.fma(low * low, 0.071354814, 1.5957692)
    return _logistic(low, clamp_high(z, 12.0))


@kernel
def softplus_f16(x):
    """log(1 + exp(x)) for a float16."""
    a = clamp_low(negate(tl.abs(x)), -18.0)
    t = tl.fma(a, LOG2E, ROUND_ONE)
    e = _exp_curve(tl.fma(t - ROUND_ONE, -LN2_HI, a)) * power(t)
    # Odd and even powers apart: two short chains.
    z = e * e
    odd = tl.fma(z, 0.04415312, 0.17752557)
    odd = tl.fma(odd, z, 0.3327611)
    odd = tl.fma(odd, z, 0.9999998)
    even = tl.fma(z, -0.008556089, -0.107777216)
    even = tl.fma(even, z, -0.24498463)
    even = tl.fma(even, z, -0.49997464)
    positive = tl.maximum(x.to(tl.int32, bitcast=True), 0).to(tl.float32, bitcast=True)
    return tl.fma(even, z, tl.fma(odd, e, positive))


@kernel
def tanh_f16(x):
    """Hyperbolic tangent for a float16."""
    c = clamp_high(clamp_low(x, -4.6), 4.6)
    z = c * c
    p = tl.fma(z, 5.4347424e-06, 0.0025482893)
    p = tl.fma(p, z, 0.12587093)
    p = tl.fma(p, z, 1.0)
    q = tl.fma(z, 0.0001739007, 0.022283481)
    q = tl.fma(q, z, 0.459204)
    q = tl.fma(q, z, 1.0)
    return _quotient(c * p, q)


@kernel
def erf_f16(x):
    """Error function for a float16."""
    c = clamp_high(clamp_low(x, -2.75), 2.75)
    z = c * c
    p = tl.fma(z, -3.6822212e-11, 2.1646993e-09)
    p = tl.fma(p, z, -5.8921067e-08)
    p = tl.fma(p, z, 9.989859e-07)
    p = tl.fma(p, z, -1.2029051e-05)
    p = tl.fma(p, z, 0.00011140122)
    p = tl.fma(p, z, -0.0008350545)
    p = tl.fma(p, z, 0.005196091)
    p = tl.fma(p, z, -0.026842395)
    p = tl.fma(p, z, 0.11282719)
    p = tl.fma(p, z, -0.37612444)
    p = tl.fma(p, z, 1.1283791)
    return c * p


@kernel
def gelu_f16(x):
    """x * Phi(x) for a float16: a * Phi(-a), a = |x|, is a * exp(-a^2 / 2) times Mills' ratio, p / q."""
    a = clamp_high(tl.abs(x), 5.9)
    s = a * a
    t = tl.fma(s, LOG2E / -2, ROUND_ONE)
    e = tl.fma(t - ROUND_ONE, 2 * LN2_HI, s)
    g = tl.fma(e, -0.008289719 / 32, 0.04189784 / 16)
    g = tl.fma(g, e, -0.16667648 / 8)
    g = tl.fma(g, e, 0.4999915 / 4)
    g = tl.fma(g, e, -0.9999997 / 2)
    g = tl.fma(g, e, 1.0)
    p = tl.fma(a, 0.013561428, 0.10415303)
    p = tl.fma(p, a, 0.3339736)
    p = tl.fma(p, a, 0.5)
    q = tl.fma(a, 0.034014653, 0.26050907)
    q = tl.fma(q, a, 0.87790084)
    q = tl.fma(q, a, 1.4658287)
    q = tl.fma(q, a, 1.0)
    # The smaller of the bits as unsigned integers: x itself, and -0.0 below zero.
    positive = tl.minimum(x.to(tl.uint32, bitcast=True), 0x80000000).to(tl.float32, bitcast=True)
    return tl.fma(negate(a * power(t)), _quotient(p * g, q), positive)


@kernel
def _sine(r, flip):
    """sin(r) for |r| <= pi / 2; a `flip` of -2^31 negates it."""
    z = r * r
    s = tl.fma(z, 2.599518e-06, -0.0001980685)
    s = tl.fma(s, z, 0.00833303)
    s = tl.fma(s, z, -0.16666658)
    s = tl.fma(s, z, 1.0)
    return ((r * s).to(tl.int32, bitcast=True) + flip).to(tl.float32, bitcast=True)


@kernel
def sin_f16(x):
    """Sine of a float16."""
    t = tl.fma(x, INV_PI, ROUND)
    h = t - ROUND
    r = tl.fma(h, -PI_2, tl.fma(h, -PI_1, x))
    return _sine(r, t.to(tl.int32, bitcast=True) << 31)


@kernel
def cos_f16(x):
    """Cosine of a float16."""
    t = tl.fma(x, INV_PI, -0.5) + ROUND
    h = (t - ROUND) + 0.5
    r = tl.fma(h, PI_2, tl.fma(h, PI_1, negate(x)))
    return _sine(r, t.to(tl.int32, bitcast=True) << 31)
