"""pow of fp64, with all special cases of IEEE 754.

|x|^y = exp(y * log |x|). The logarithm and its product with y are kept in two parts (about 2^-66 relative), so the
error stays that of the last rounding whatever the exponent. log(m) = s * (2 + 2/3 s^2 + ...) with
s = (m - 1) / (m + 1).
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_exp import exp64_parts
from nbxtensor.kernel.math64_log import LN2_HI, LN2_LO, log64_split
from nbxtensor.kernel.math64_parts import (
    add_ordered,
    at_least,
    at_most,
    divide_exact,
    multiply_exact,
    poly,
    power_halves64,
    real,
)

INF = float("inf")
NAN = float("nan")
THIRD_HI = 0.6666666666666666  # of 2 / 3
THIRD_LO = 3.700743415417188e-17
WHOLE = 4503599627370496.0  # 2^52


@kernel
def _next_term(z, z_low, u, u_low, C: tl.constexpr, C_LOW: tl.constexpr):
    """C + z * u, all in two parts."""
    p, p_low = multiply_exact(z, u)
    high, lost = add_ordered(real(C), p)
    return high, (lost + real(C_LOW)) + tl.fma(z, u_low, tl.fma(z_low, u, p_low))


@kernel
def _log64_exact(a):
    """Logarithm of a finite a > 0 in two parts, about 2^-66 of it."""
    i, m = log64_split(a)
    f = m - 1.0
    d, d_low = add_ordered(real(2.0), f)
    s, s_low = divide_exact(f, real(0.0), d, d_low, 1.0 / d)
    z, z_low = multiply_exact(s, s)
    z_low = tl.fma(s + s, s_low, z_low)
    q = poly(
        z,
        (
            0.11981975060699401,
            0.11675755523490355,
            0.1333626565401557,
            0.15384558401325693,
            0.1818181884433808,
            0.22222222217787524,
            0.28571428571443847,
        ),
    )
    # u = z * (2 / 3 + z * (2 / 5 + z * q)), and log(m) = s * (2 + u)
    u, u_low = _next_term(z, z_low, *add_ordered(real(0.3999999999999998), z * q), THIRD_HI, THIRD_LO)
    u, u_low = _next_term(z, z_low, u, u_low, 2.0, 0.0)
    v, v_low = multiply_exact(s, u)
    v_low = tl.fma(s, u_low, tl.fma(s_low, u, v_low))
    high, lost = add_ordered(i * LN2_HI, v)
    return add_ordered(high, tl.fma(i, real(LN2_LO), v_low) + lost)


@kernel
def _is_integer64(size):
    """Whether an fp64 >= 0 is an integer (infinity is)."""
    return (size >= WHOLE) | ((size + WHOLE) - WHOLE == size)


@kernel
def pow64(x, y):
    """x^y of fp64. At most 0.8 ULP in all samples."""
    a = tl.abs(x)
    size = tl.abs(y)
    high, low = _log64_exact(a)
    high = tl.where(a < INF, tl.where(a == 0.0, real(-INF), high), a)
    product = y * high
    usual = tl.abs(product) < 1024.0
    z, rest = multiply_exact(y, high)
    rest = tl.fma(y, low, rest)
    z = tl.where(usual, z, at_most(at_least(product, -800.0), 800.0))
    t, s, s_low = exp64_parts(z, tl.where(usual, rest, real(0.0)))
    first, second = power_halves64(t)
    r = (s + s_low) * first * second
    # The sign and the domain of a negative base.
    whole = _is_integer64(size)
    odd = whole & ~_is_integer64(size * 0.5)
    sign = tl.where(odd, x.to(tl.int64, bitcast=True) & -9223372036854775808, 0)
    r = (r.to(tl.int64, bitcast=True) ^ sign).to(tl.float64, bitcast=True)
    r = tl.where((x < 0.0) & (a < INF) & ~whole, real(NAN), r)
    r = tl.where(y != y, y, r)
    return tl.where((y == 0.0) | (x == 1.0) | ((a == 1.0) & (size == INF)), real(1.0), r)
