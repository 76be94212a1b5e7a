"""exp, exp2 and expm1 of fp32, and the pieces that the sigmoid family shares.

Reduction: `t = fma(x, log2(e), 1.5 * 2^23)` rounds the multiple n of ln 2 to an integer, in the low bits of t. What
is left, r, lies within ln(2) / 2, and `e = r + r^2 * q(r)` is exp(r) - 1. The factor 2^n is built from the bits of t
in two halves, so that results overflow to infinity and round to subnormals by themselves. Clamps let NaN pass.
"""

from nbxtensor.compiler.source import kernel, tl

ROUND = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
ROUND_ONE = 12583039.0  # the same plus the bias of an exponent: see `power`
LOG2E = 1.442695
MINUS_LN2_HI = -0.6931472
MINUS_LN2_LO = 1.9046542e-09
LN2_HI = 0.6931472
LN2_LO = -1.9046542e-09


@kernel
def clamp_low(x, low):
    """The larger of x and a constant other than zero; NaN passes."""
    return tl.maximum(x, low, propagate_nan=tl.PropagateNan.ALL)


@kernel
def clamp_high(x, high):
    """The smaller of x and a constant other than zero; NaN passes."""
    return tl.minimum(x, high, propagate_nan=tl.PropagateNan.ALL)


@kernel
def minus_reciprocal_near(d):
    """-1 / d for 2^-126 <= d < 2^126, to 2^-12.9; NaN passes.

    An integer subtraction gives it to 5 %, a cubic step the rest.
    """
    r = (-17625088 - d.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    e = tl.fma(d, r, 1.0)
    return tl.fma(r, tl.fma(e, e, e), r)


@kernel
def minus_reciprocal(d):
    """-1 / d for 2^-126 <= d < 2^126, within about 1 ULP; NaN passes.

    A quadratic step more than `minus_reciprocal_near`: half the cost of a correctly rounded division on a GPU.
    """
    r = minus_reciprocal_near(d)
    return tl.fma(r, tl.fma(d, r, 1.0), r)


@kernel
def exp_split(x):
    """For |x| < 2^20: t, whose low bits hold n = round(x / ln 2), and r = x - n * ln 2."""
    t = tl.fma(x, LOG2E, ROUND)
    n = t - ROUND
    r = tl.fma(n, MINUS_LN2_HI, x)
    return t, tl.fma(n, MINUS_LN2_LO, r)


@kernel
def exp_curve(r):
    """(exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2; times r^2 it is good to 2^-28."""
    q = tl.fma(r, 0.0013821468, 0.008368663)
    q = tl.fma(q, r, 0.041668255)
    q = tl.fma(q, r, 0.16666521)
    return tl.fma(q, r, 0.49999994)


@kernel
def exp_tail(r):
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return tl.fma(r * r, exp_curve(r), r)


@kernel
def power(t):
    """The power of two whose exponent field is the low bits of t: 2^n where t is n + `ROUND_ONE`, |n| <= 126."""
    return (t.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)


@kernel
def power_halves(t):
    """2^(n >> 1) and 2^(n - (n >> 1)), their product 2^n, for the n in the low bits of t (|n| <= 252)."""
    bits = t.to(tl.int32, bitcast=True)
    half = bits >> 1
    first = (half << 23) + 0x3F800000
    second = ((bits - half) << 23) + 0x3F800000
    return first.to(tl.float32, bitcast=True), second.to(tl.float32, bitcast=True)


@kernel
def exp(x):
    """e^x of fp32. At most 0.98 ULP."""
    t, r = exp_split(clamp_high(clamp_low(x, -104.0), 89.0))
    # One degree more than exp_tail: it takes the largest error below 1 ULP.
    q = tl.fma(r, 0.00019740243, 0.0013935079)
    q = tl.fma(q, r, 0.00833357)
    q = tl.fma(q, r, 0.041666463)
    q = tl.fma(q, r, 0.16666666)
    q = tl.fma(q, r, 0.5)
    e = tl.fma(r * r, q, r)
    first, second = power_halves(t)
    return tl.fma(e, first, first) * second


@kernel
def exp2_tail(r):
    """2^r - 1 for |r| <= 1/2."""
    q = tl.fma(r, 0.00015462497, 0.0013390211)
    q = tl.fma(q, r, 0.009618063)
    q = tl.fma(q, r, 0.05550362)
    q = tl.fma(q, r, 0.2402265)
    q = tl.fma(q, r, LN2_LO)
    return tl.fma(r, LN2_HI, q * r)


@kernel
def exp2(x):
    """2^x of fp32; exact for integers. At most 0.89 ULP."""
    x = clamp_high(clamp_low(x, -151.0), 129.0)
    t = x + ROUND
    e = exp2_tail(x - (t - ROUND))
    first, second = power_halves(t)
    return tl.fma(e, first, first) * second


@kernel
def expm1(x):
    """e^x - 1 of fp32. At most 1.47 ULP."""
    t, r = exp_split(clamp_high(clamp_low(x, -25.0), 89.0))
    e = exp_tail(r)
    # Half of 2^n, which stays finite for n = 128; doubling at the end is exact.
    half = ((t.to(tl.int32, bitcast=True) << 23) + 0x3F000000).to(tl.float32, bitcast=True)
    y = tl.fma(e, half, half - 0.5)
    y = tl.where(t == ROUND, e, y + y)
    return tl.where(tl.abs(x) < 2.9802322387695312e-08, x, y)  # also keeps -0.0
