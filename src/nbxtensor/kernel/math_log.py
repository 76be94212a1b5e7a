"""log, log2 and log1p of fp32.

x = 2^i * m with m between sqrt(1/2) and sqrt(2), by integer steps; f = m - 1 is exact, and
log(1 + f) = f + f^2 * q(f). Subnormals are scaled up first.
"""

from nbxtensor.compiler.source import kernel, tl

INF = float("inf")
MINUS_INF = float("-inf")
NAN = float("nan")
ROUND = 12582912.0  # 1.5 * 2^23
SMALLEST = 1.1754943508222875e-38  # the smallest normal number
LN2 = 0.6931472
MINUS_LN2 = -0.6931472
INV_LN2_HI = 1.442695
INV_LN2_LO = 1.925963e-08
ROOT_HALF = 0x3F3504F4  # bits of the first float above sqrt(1/2)


@kernel
def log_curve(f):
    """(log(1 + f) - f) / f^2 for sqrt(1/2) <= 1 + f <= sqrt(2)."""
    q = tl.fma(f, -0.076225504, 0.12916268)
    q = tl.fma(q, f, -0.13248438)
    q = tl.fma(q, f, 0.14180446)
    q = tl.fma(q, f, -0.16608323)
    q = tl.fma(q, f, 0.20002016)
    q = tl.fma(q, f, -0.25001612)
    q = tl.fma(q, f, 0.33333325)
    return tl.fma(q, f, -0.49999988)


@kernel
def log_edges(x, y):
    """y for finite x > 0; else what log gives: -inf for both zeros, NaN below and for NaN, +inf as it is."""
    y = tl.where(x > 0.0, y, tl.where(x == 0.0, MINUS_INF, NAN))
    return tl.where(x == INF, INF, y)


@kernel
def log_split(x, origin: tl.constexpr):
    """The exponent i (a float) and the fraction m of x > 0, m at or above the float whose bits are `origin`."""
    tiny = x < SMALLEST
    bits = tl.where(tiny, x * 8388608.0, x).to(tl.int32, bitcast=True)
    i = (bits - origin) >> 23
    m = (bits - (i << 23)).to(tl.float32, bitcast=True)
    scale = (i + 0x4B400000).to(tl.float32, bitcast=True) - tl.where(tiny, 12582935.0, ROUND)
    return scale, m


@kernel
def log(x):
    """Natural logarithm of fp32. At most 0.92 ULP."""
    i, m = log_split(x, ROOT_HALF)
    f = m - 1.0
    y = tl.fma(log_curve(f), f * f, f)
    return log_edges(x, tl.fma(i, LN2, y))


@kernel
def log2(x):
    """Logarithm to base 2 of fp32; exact for powers of two. At most 0.98 ULP."""
    i, m = log_split(x, ROOT_HALF)
    f = m - 1.0
    q = tl.fma(f, -0.110267244, 0.18709423)
    q = tl.fma(q, f, -0.19138958)
    q = tl.fma(q, f, 0.20448573)
    q = tl.fma(q, f, -0.23956738)
    q = tl.fma(q, f, 0.28857145)
    q = tl.fma(q, f, -0.36069867)
    q = tl.fma(q, f, 0.4808982)
    q = tl.fma(q, f, -0.72134733)
    low = tl.fma(f, INV_LN2_LO, q * (f * f))
    return log_edges(x, i + tl.fma(f, INV_LN2_HI, low))


@kernel
def log1p(x):
    """log(1 + x) of fp32. At most 1.46 ULP."""
    u = 1.0 + x
    i = (u.to(tl.int32, bitcast=True) - ROOT_HALF) >> 23
    m = (x.to(tl.int32, bitcast=True) - (i << 23)).to(tl.float32, bitcast=True)
    # f = 2^-i * (1 + x) - 1, rounded once. The factor is 4 * 2^-i, which stays normal for i = 128.
    factor = (0x40800000 - (i << 23)).to(tl.float32, bitcast=True)
    f = m - tl.fma(factor, -0.25, 1.0)
    y = tl.fma(log_curve(f), f * f, f)
    # Signs such that -0.0 stays: (+0) * (-ln 2) + (-0.0).
    back = (0x4B400000 - i).to(tl.float32, bitcast=True) - ROUND
    return log_edges(u, tl.fma(back, MINUS_LN2, y))
