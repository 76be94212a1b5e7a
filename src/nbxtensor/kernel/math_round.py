"""Rounding to integral values, float remainders and quotients, integer division and powers: exact, in defined steps."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import copy_sign, magnitude, negate

NAN = float("nan")


@kernel
def _nearest(size):
    """A float >= 0 to the nearest integral value, ties to even; right only below 2^23 (fp32) or 2^52 (fp64)."""
    if size.dtype == tl.float64:
        r = (size + 4503599627370496.0) - 4503599627370496.0
    else:
        r = (size + 8388608.0) - 8388608.0
    return r


@kernel
def _has_fraction(size):
    """Whether a float >= 0 is so small that it can have a fraction (False for NaN)."""
    if size.dtype == tl.float64:
        r = size < 4503599627370496.0
    else:
        r = size < 8388608.0
    return r


@kernel
def round_even(x):
    """To the nearest integral value, ties to even; fp32 and fp64. Keeps -0.0, infinities and NaN."""
    size = magnitude(x)
    return tl.where(_has_fraction(size), copy_sign(_nearest(size), x), x)


@kernel
def trunc(x):
    """Toward zero; fp32 and fp64. Keeps -0.0, infinities and NaN."""
    size = magnitude(x)
    near = _nearest(size)
    near = tl.where(near > size, near - 1.0, near)
    return tl.where(_has_fraction(size), copy_sign(near, x), x)


@kernel
def floor(x):
    """Toward minus infinity; fp32 and fp64. Keeps -0.0, infinities and NaN."""
    size = magnitude(x)
    near = copy_sign(_nearest(size), x)
    near = tl.where(near > x, near - 1.0, near)
    return tl.where(_has_fraction(size), near, x)


@kernel
def ceil(x):
    """Toward plus infinity; fp32 and fp64. Keeps -0.0 (and gives it for -1 < x < 0), infinities and NaN."""
    size = magnitude(x)
    near = copy_sign(_nearest(size), x)
    near = tl.where(near < x, near + 1.0, near)
    return tl.where(_has_fraction(size), copy_sign(near, x), x)


@kernel
def quotient(x, y):
    """x / y rounded to nearest; fp32 and fp64."""
    if x.dtype == tl.float64:
        r = x / y
    else:
        r = tl.div_rn(x, y)
    return r


@kernel
def _mantissa(size, BITS: tl.constexpr, BIAS: tl.constexpr, INT: tl.constexpr):
    """A float >= 0 as m * 2^e with m integral, 2^BITS <= m < 2^(BITS + 1): m as a float, e as an integer."""
    tiny = size < 2.0 ** (1 - BIAS)
    bits = tl.where(tiny, size * 2.0 ** (BITS + 1), size).to(INT, bitcast=True)
    e = (bits >> BITS) - tl.where(tiny, BIAS + 2 * BITS + 1, BIAS + BITS)
    m = (bits & ((1 << BITS) - 1)) | ((BIAS + BITS) << BITS)
    return m.to(size.dtype, bitcast=True), e


@kernel
def _exp2(e, BITS: tl.constexpr, BIAS: tl.constexpr, FLOAT: tl.constexpr):
    """2^e as a normal number."""
    return ((e + BIAS) << BITS).to(FLOAT, bitcast=True)


@kernel
def fmod(x, y):
    """x - y * trunc(x / y), exact for all finite fp32 and fp64, with the sign of x. x infinite or y zero: NaN."""
    WIDE: tl.constexpr = x.dtype == tl.float64
    BITS: tl.constexpr = 52 if WIDE else 23
    BIAS: tl.constexpr = 1023 if WIDE else 127
    INT: tl.constexpr = tl.int64 if WIDE else tl.int32
    a = magnitude(x)
    b = magnitude(y)
    r, ea = _mantissa(a, BITS, BIAS, INT)
    mb, eb = _mantissa(b, BITS, BIAS, INT)
    r = tl.where(r >= mb, r - mb, r)
    left = ea - eb
    # r * 2^left mod mb, BITS doublings at a time. The rounded quotient is never too small, so r - q * mb is exact.
    minus = negate(mb)
    for _ in range(41 if WIDE else 12):
        k = tl.minimum(tl.maximum(left, 0), BITS)
        scaled = r * _exp2(k, BITS, BIAS, x.dtype)
        r = tl.fma(_nearest(quotient(scaled, mb)), minus, scaled)
        r = tl.where(r < 0.0, r + mb, r)
        left = left - k
    half = eb >> 1
    r = r * _exp2(half, BITS, BIAS, x.dtype)
    r = r * _exp2(eb - half, BITS, BIAS, x.dtype)
    r = tl.where(a < b, a, r)
    return tl.where((x - x == 0.0) & (y == y) & (y != 0.0), copy_sign(r, x), NAN)


@kernel
def _int_quotient(x, y):
    # A zero divisor and -1 never reach the division: 0 is the answer for one, a wrapping negation for the other.
    if x.dtype.is_int_signed():
        safe = tl.where((y == 0) | (y == -1), 1, y)
        q = x // safe
        q = q - (((x - q * safe) != 0) & ((x ^ safe) < 0)).to(x.dtype)
        q = tl.where(y == -1, 0 - x, q)
    else:
        q = x // tl.where(y == 0, 1, y)
    return tl.where(y == 0, 0, q)


@kernel
def floor_divide(x, y):
    """floor(x / y) by the rules of Python and NumPy.

    Floats (fp32, fp64): from the exact remainder, as NumPy does. Integers: the quotient rounded down; y = 0 gives 0,
    and the most negative integer by -1 wraps to itself.
    """
    if x.dtype.is_floating():
        m = fmod(x, y)
        q = quotient(x - m, y)
        q = tl.where((m != 0.0) & ((m < 0.0) != (y < 0.0)), q - 1.0, q)
        down = floor(q)
        down = tl.where(q - down > 0.5, down + 1.0, down)
        plain = quotient(x, y)
        r = tl.where(q == 0.0, copy_sign(q, plain), down)
        r = tl.where(y == 0.0, plain, r)
    else:
        r = _int_quotient(x, y)
    return r


@kernel
def remainder(x, y):
    """x modulo y with the sign of y, by the rules of Python and NumPy.

    Floats (fp32, fp64): the exact fmod, plus y where the signs differ. Integers: y = 0 gives 0.
    """
    if x.dtype.is_floating():
        m = fmod(x, y)
        r = tl.where(m == 0.0, copy_sign(m, y), tl.where((m < 0.0) != (y < 0.0), m + y, m))
    else:
        r = tl.where(y == 0, 0, x - _int_quotient(x, y) * y)
    return r


@kernel
def int_pow(x, y):
    """x to the power y for integers of one dtype; wraps. A negative power is 0, but 1 or -1 where x is 1 or -1."""
    bits: tl.constexpr = x.dtype.primitive_bitwidth - (1 if x.dtype.is_int_signed() else 0)
    r = tl.where((y & 1) != 0, x, 1)
    base = x
    for i in range(1, bits):
        base = base * base
        r = tl.where(((y >> i) & 1) != 0, r * base, r)
    if x.dtype.is_int_signed():
        unit = tl.where(x == 1, 1, tl.where(x == -1, tl.where((y & 1) != 0, -1, 1), 0)).to(x.dtype)
        r = tl.where(y < 0, unit, r)
    return r
