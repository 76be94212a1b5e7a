"""pow of fp32, with all special cases of IEEE 754.

|x|^y = 2^(y * log2 |x|). The logarithm and its product with y are kept in two parts (about 2^-34 relative), so the
error stays that of the last steps whatever the exponent. log2(m) = s * (C0 + C1 s^2 + ...) with s = (m - 1) / (m + 1).
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import magnitude, negate
from nbxtensor.kernel.math_exp import ROUND, clamp_high, clamp_low, exp2_tail, minus_reciprocal, power_halves
from nbxtensor.kernel.math_log import ROOT_HALF, log_split

INF = float("inf")
NAN = float("nan")
C0_HI = 2.88539
C0_LO = 3.851926e-08
C1_HI = 0.9617967
C1_LO = -7.028462e-09


@kernel
def _log2_parts(a):
    """log2 of a finite a > 0 as the sum of two floats."""
    i, m = log_split(a, ROOT_HALF)
    minus = 1.0 - m
    g = m + 1.0
    inverse = minus_reciprocal(g)
    s = minus * inverse
    s_low = tl.fma(s, m - (g - 1.0), tl.fma(s, g, minus)) * inverse
    z = s * s
    z_low = tl.fma(s + s, s_low, tl.fma(s, s, negate(z)))
    p = tl.fma(z, 0.33782575, 0.4118498)
    p = tl.fma(p, z, 0.5770802)
    p = tl.fma(p, z, C1_LO)
    top = z * C1_HI
    top_low = tl.fma(z, C1_HI, negate(top)) + tl.fma(z_low, C1_HI, z * p)
    u = top + C0_HI
    u_low = ((C0_HI - u) + top) + (top_low + C0_LO)
    v = s * u
    v_low = tl.fma(s, u, negate(v)) + tl.fma(s, u_low, s_low * u)
    high = i + v
    return high, ((i - high) + v) + v_low


@kernel
def _is_integer(size):
    """Whether a float >= 0 is an integer (infinity is)."""
    return (size >= 8388608.0) | ((size + 8388608.0) - 8388608.0 == size)


@kernel
def pow(x, y):
    """x^y of fp32. At most 1.2 ULP in all samples."""
    a = magnitude(x)
    size = magnitude(y)
    high, low = _log2_parts(a)
    high = tl.where(a < INF, tl.where(a == 0.0, -INF, high), a)
    product = y * high
    low = tl.where(tl.abs(product) < 1024.0, tl.fma(y, high, negate(product)) + y * low, 0.0)
    z = clamp_high(clamp_low(product, -200.0), 200.0)
    t = z + ROUND
    e = exp2_tail((z - (t - ROUND)) + low)
    first, second = power_halves(t)
    r = tl.fma(e, first, first) * second
    # The sign and the domain of a negative base.
    whole = _is_integer(size)
    odd = whole & ~_is_integer(size * 0.5)
    sign = tl.where(odd, x.to(tl.int32, bitcast=True) & -2147483648, 0)
    r = (r.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)
    r = tl.where((x < 0.0) & (a < INF) & ~whole, NAN, r)
    r = tl.where(y != y, y, r)
    return tl.where((y == 0.0) | (x == 1.0) | ((a == 1.0) & (size == INF)), 1.0, r)
