"""tanh, erf and gelu of fp32.

Near zero tanh and erf are odd polynomials; farther out they are 1 minus something small that an exponential gives.
gelu(x) = x * Phi(x) comes from a * Phi(-a) with a = |x|, where Phi(-a) = exp(-a^2 / 2) * R(a) and R, Mills' ratio, is
p / (2.5115 * a * p + b) with polynomials p and b. The exponent takes a^2 unrounded, so the negative tail is accurate in
relative terms down to the subnormals.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import copy_sign, magnitude
from nbxtensor.kernel.math_exp import (
    LOG2E,
    MINUS_LN2_HI,
    ROUND,
    ROUND_ONE,
    clamp_high,
    exp_tail,
    minus_reciprocal,
    minus_reciprocal_near,
    power,
)

LARGE = 18446744073709551616.0  # 2^64
SMALL = 5.421010862427522e-20  # 2^-64


@kernel
def _tanh(x, DIVIDE: tl.constexpr):
    a = magnitude(x)
    z = a * a
    p = tl.fma(z, -0.0058979667, 0.020798625)
    p = tl.fma(p, z, -0.053784717)
    p = tl.fma(p, z, 0.13331936)
    p = tl.fma(p, z, -0.333333)
    near = tl.fma(p * z, a, a)
    c = clamp_high(a, 9.1)
    # exp(2 * c) = 2^n * exp(2 * r)
    t = tl.fma(c, 2 * LOG2E, ROUND_ONE)
    r = tl.fma(t - ROUND_ONE, MINUS_LN2_HI / 2, c)
    q = tl.fma(r, 0.0013821468 * 32, 0.008368663 * 16)
    q = tl.fma(q, r, 0.041668255 * 8)
    q = tl.fma(q, r, 0.16666521 * 4)
    q = tl.fma(q, r, 0.49999994 * 2)
    scale = power(t)
    half = tl.fma(tl.fma(r * r, q, r), scale, tl.fma(scale, 0.5, 0.5))
    if DIVIDE:
        i = tl.div_rn(-1.0, half)
    else:
        # Within 1 ULP, and one more step rounds correctly unless all bits of a significand are ones.
        i = minus_reciprocal(half)
        i = tl.fma(i, tl.fma(half, i, 1.0), i)
    return copy_sign(tl.where(a < 0.6, near, 1.0 + i), x)


@kernel
def tanh(x):
    """Hyperbolic tangent of fp32. At most 1.23 ULP."""
    return _tanh(x, True)


@kernel
def tanh_gpu(x):
    """`tanh`, the same bits for all 2^32 arguments, with the steps of a division in place of one."""
    return _tanh(x, False)


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
    """x * Phi(x) of fp32, Phi the distribution function of the normal distribution. At most 3.62 ULP."""
    a = clamp_high(tl.abs(x), 14.5)
    s = a * a
    # e = a^2 + 2 * n * ln 2. n times the first 16 bits of 2 * ln 2 is exact, so the sum is rounded once. The other bits
    # add a multiple of e, which the curve of exp has, and one of a^2, which p / q has.
    t = tl.fma(s, -0.72134752, ROUND)
    e = tl.fma(a, a, (t - ROUND) * 1.38629150390625)
    # R = p / q, p and a * p times 2^64. b is small beside 2.5115 * a * p but near zero, so that errors of p and of its
    # product with a cancel; near zero their first terms count, which come last.
    p = tl.fma(s, -7.743757e-05 * LARGE, 0.050253976 * LARGE)
    p = tl.fma(p, s, 0.6186914 * LARGE)
    p = tl.fma(tl.fma(s, 0.0043511437 * LARGE, 0.24488853 * LARGE), a, p)
    p = tl.fma(p, a, 0.75 * LARGE)
    b = tl.fma(s, -1.950334e-05, 0.009351939)
    b = tl.fma(b, s, 0.55058485)
    b = tl.fma(tl.fma(s, -0.00043718785, 0.12814856), a, b)
    b = tl.fma(b, a, 1.5)
    ap = a * p
    q = tl.fma(ap, 2.5115 * SMALL, b)
    # times 2^n in the exponent; then times exp(-e / 2) = 1 + e * g
    ap = ((t.to(tl.int32, bitcast=True) << 23) + ap.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    g = tl.fma(e, -0.00025912854, 0.0026186262)
    g = tl.fma(g, e, -0.020834628)
    g = tl.fma(g, e, 0.1249984)
    g = tl.fma(g, e, -0.5000009)
    ape = ap * e
    # minus the quotient, then corrected by what the two parts of the numerator leave over
    r = minus_reciprocal_near(q)
    w = tl.fma(ape, g, ap) * r
    w = tl.fma(tl.fma(ape, g, tl.fma(w, q, ap)), r, w)
    # The smaller of the bits as unsigned integers: x itself, and -0.0 below zero.
    positive = tl.minimum(x.to(tl.uint32, bitcast=True), 0x80000000).to(tl.float32, bitcast=True)
    return tl.fma(w, SMALL, positive)
