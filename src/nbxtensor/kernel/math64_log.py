"""log and log1p of fp64.

x = 2^i * m with m between sqrt(1/2) and sqrt(2), f = m - 1, s = f / (2 + f):
log(1 + f) = f - f^2 / 2 + s * (f^2 / 2 + R(s^2)). The first terms, i * ln 2 among them, are added in two parts.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_parts import ROUND64, add_exact, add_ordered, minus, poly, real

INF = float("inf")
MINUS_INF = float("-inf")
NAN = float("nan")
LN2_HI = 0.6931471805601177  # 40 bits: its product with an exponent is exact
LN2_LO = -1.7239444525614835e-13
ROOT_HALF64 = 0x3FE6A09E667F3BCD  # bits of the first fp64 above sqrt(1/2)


@kernel
def log64_edges(x, y):
    """y for finite x > 0; else what log gives: -inf for both zeros, NaN below and for NaN, +inf as it is."""
    y = tl.where(x > 0.0, y, tl.where(x == 0.0, real(MINUS_INF), real(NAN)))
    return tl.where(x == INF, x, y)


@kernel
def log64_split(x):
    """The exponent i (an fp64) and the fraction m of x > 0, sqrt(1/2) < m < sqrt(2)."""
    tiny = x < real(2.2250738585072014e-308)
    bits = tl.where(tiny, x * 18014398509481984.0, x).to(tl.int64, bitcast=True)
    i = (bits - ROOT_HALF64) >> 52
    m = (bits - (i << 52)).to(tl.float64, bitcast=True)
    offset = tl.where(tiny, real(ROUND64 + 54.0), real(ROUND64))
    return (i + 0x4338000000000000).to(tl.float64, bitcast=True) - offset, m


@kernel
def log64_parts(i, f, rest):
    """i * ln 2 + log(1 + f + rest) in two parts; `rest` within a rounding of f."""
    s = f / (f + 2.0)
    z = s * s
    q = poly(
        z,
        (
            0.1323508159313941,
            0.13252116142170609,
            0.1538699017214686,
            0.18181778328268203,
            0.2222222260725315,
            0.2857142856940973,
            0.40000000000004926,
            0.6666666666666666,
        ),
    )
    half = f * -0.5
    square = f * half
    square_low = tl.fma(f, half, minus(square))
    high, low1 = add_ordered(i * LN2_HI, f)
    high, low2 = add_ordered(high, square)
    low = tl.fma(i, real(LN2_LO), square_low + tl.fma(minus(f), rest, rest))
    return high, (low1 + low2) + tl.fma(s, tl.fma(z, q, minus(square)), low)


@kernel
def log64(x):
    """Natural logarithm of fp64. At most 0.6 ULP in all samples."""
    i, m = log64_split(x)
    high, low = log64_parts(i, m - 1.0, 0.0)
    return log64_edges(x, high + low)


@kernel
def log1p64_parts(x):
    """log(1 + x) in two parts, for a finite x > -1."""
    u = 1.0 + x
    i = (u.to(tl.int64, bitcast=True) - ROOT_HALF64) >> 52
    m = (x.to(tl.int64, bitcast=True) - (i << 52)).to(tl.float64, bitcast=True)
    # f = 2^-i * (1 + x) - 1. The factor is 4 * 2^-i, which stays normal for i = 1024.
    factor = (0x4010000000000000 - (i << 52)).to(tl.float64, bitcast=True)
    f, rest = add_exact(m, tl.fma(factor, 0.25, -1.0))
    return log64_parts((i + 0x4338000000000000).to(tl.float64, bitcast=True) - ROUND64, f, rest)


@kernel
def log1p64(x):
    """log(1 + x) of fp64. At most 0.65 ULP in all samples."""
    high, low = log1p64_parts(x)
    y = log64_edges(1.0 + x, high + low)
    return tl.where(tl.abs(x) < 5.551115123125783e-17, x, y)  # also keeps -0.0
