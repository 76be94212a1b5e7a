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
def _fmod32(x, y):
    a = magnitude(x)
    b = magnitude(y)
    # |x| = ma * 2^ea and |y| = mb * 2^eb with integral ma, mb in [2^23, 2^24).
    tiny_a = a < 1.17549435082228750797e-38
    tiny_b = b < 1.17549435082228750797e-38
    na = tl.where(tiny_a, a * 16777216.0, a).to(tl.int32, bitcast=True)
    nb = tl.where(tiny_b, b * 16777216.0, b).to(tl.int32, bitcast=True)
    ea = (na >> 23) - tl.where(tiny_a, 174, 150)
    eb = (nb >> 23) - tl.where(tiny_b, 174, 150)
    r = ((na & 0x7FFFFF) | 0x4B000000).to(tl.float32, bitcast=True)
    mb = ((nb & 0x7FFFFF) | 0x4B000000).to(tl.float32, bitcast=True)
    r = tl.where(r >= mb, r - mb, r)
    left = ea - eb
    # r * 2^left mod mb, 23 doublings at a time. The rounded quotient is never too small, so r - q * mb is exact.
    minus = negate(mb)
    for _ in range(12):
        k = tl.minimum(tl.maximum(left, 0), 23)
        scaled = r * ((k + 127) << 23).to(tl.float32, bitcast=True)
        q = _nearest(tl.div_rn(scaled, mb))
        r = tl.fma(q, minus, scaled)
        r = tl.where(r < 0.0, r + mb, r)
        left = left - k
    half = eb >> 1
    r = r * ((half + 127) << 23).to(tl.float32, bitcast=True)
    r = r * ((eb - half + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(a < b, a, r)


@kernel
def _fmod64(x, y):
    a = magnitude(x)
    b = magnitude(y)
    tiny_a = a < 2.2250738585072014e-308
    tiny_b = b < 2.2250738585072014e-308
    na = tl.where(tiny_a, a * 9007199254740992.0, a).to(tl.int64, bitcast=True)
    nb = tl.where(tiny_b, b * 9007199254740992.0, b).to(tl.int64, bitcast=True)
    ea = (na >> 52) - tl.where(tiny_a, 1128, 1075)
    eb = (nb >> 52) - tl.where(tiny_b, 1128, 1075)
    r = ((na & 0xFFFFFFFFFFFFF) | 0x4330000000000000).to(tl.float64, bitcast=True)
    mb = ((nb & 0xFFFFFFFFFFFFF) | 0x4330000000000000).to(tl.float64, bitcast=True)
    r = tl.where(r >= mb, r - mb, r)
    left = ea - eb
    minus = negate(mb)
    for _ in range(41):
        k = tl.minimum(tl.maximum(left, 0), 52)
        scaled = r * ((k + 1023) << 52).to(tl.float64, bitcast=True)
        q = _nearest(scaled / mb)
        r = tl.fma(q, minus, scaled)
        r = tl.where(r < 0.0, r + mb, r)
        left = left - k
    half = eb >> 1
    r = r * ((half + 1023) << 52).to(tl.float64, bitcast=True)
    r = r * ((eb - half + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(a < b, a, r)


@kernel
def fmod(x, y):
    """x - y * trunc(x / y), exact for all finite fp32 and fp64, with the sign of x. x infinite or y zero: NaN."""
    if x.dtype == tl.float64:
        r = _fmod64(x, y)
    else:
        r = _fmod32(x, y)
    return tl.where((x - x == 0.0) & (y == y) & (y != 0.0), copy_sign(r, x), NAN)


@kernel
def quotient(x, y):
    """x / y rounded to nearest; fp32 and fp64."""
    if x.dtype == tl.float64:
        r = x / y
    else:
        r = tl.div_rn(x, y)
    return r


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
