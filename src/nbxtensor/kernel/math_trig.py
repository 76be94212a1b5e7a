"""sin and cos of fp32, over the whole range.

x = n * pi + r with r within pi / 2, or (n + 1/2) * pi + r for the cosine: one curve, whose sign is that of (-1)^n. Below
2^17, r comes from pi in three parts (72 bits). From 2^17 on it comes from the bits of 1 / pi around the exponent of x, by
integer products (96 bits). That path is entered only by tiles that hold such an element, and its result is selected
per element: neighbours never show.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import negate

ROUND = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
ONE_BY_PI = 0.31830987
# pi in three parts, each rounded down.
MINUS_PI_1 = -3.141592502593994
MINUS_PI_2 = -1.5099578831723193e-07
MINUS_PI_3 = -1.078060505991553e-14
HUGE = 0x48000000  # bits of 2^17
INFINITE = 0x7F800000


@kernel
def _reduce(a, COSINE: tl.constexpr):
    """For 0 <= a < 2^17: r = a - n * pi (n + 1/2 for the cosine), what its rounding left out, and n in low bits."""
    if COSINE:
        t = tl.fma(a, ONE_BY_PI, -0.5) + ROUND
        n = t - ROUND + 0.5
    else:
        t = tl.fma(a, ONE_BY_PI, ROUND)
        n = t - ROUND
    near = tl.fma(n, MINUS_PI_1, a)
    r = tl.fma(n, MINUS_PI_2, near)
    # near - r is exact unless r is small, and there the rest does not count.
    rest = tl.fma(n, MINUS_PI_2, near - r)
    rest = tl.where(tl.abs(r) < 0.046875, 0.0, rest)
    last = tl.fma(n, MINUS_PI_3, r)
    return last, tl.fma(n, MINUS_PI_3, r - last) + rest, t.to(tl.int32, bitcast=True)


@kernel
def _curve(r, rest, turn, sign):
    """sin(r + rest) for |r| <= pi / 2, negated where the low bit of `turn` or the top bit of `sign` is set, not both."""
    z = r * r
    p = tl.fma(z, 2.6051405e-06, -0.0001980944)
    p = tl.fma(p, z, 0.0083330665)
    p = tl.fma(p, z, -0.1666666)
    # Near pi / 2 the sum cancels: z needs what its rounding left out.
    q = tl.fma(z, p, tl.fma(r, r, z * -1.0) * p)
    y = r + tl.fma(r, q, rest * tl.fma(z, -0.5, 1.0))
    flip = ((turn << 31) ^ sign) & -2147483648
    return (y.to(tl.int32, bitcast=True) ^ flip).to(tl.float32, bitcast=True)


@kernel
def _pick(word, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr, e: tl.constexpr):
    """One of five constants by its number."""
    low = tl.where(word == 0, tl.full(word.shape, a, tl.uint32), tl.full(word.shape, b, tl.uint32))
    high = tl.where(word == 2, tl.full(word.shape, c, tl.uint32), tl.full(word.shape, d, tl.uint32))
    return tl.where(word < 2, low, tl.where(word < 4, high, tl.full(word.shape, e, tl.uint32)))


@kernel
def _joined(high, low, shift):
    """The top word of (high, low) shifted left by 0 to 31, as int64."""
    return ((high << shift) | ((low >> 1) >> (31 - shift))).to(tl.int64)


@kernel
def huge_turns(size):
    """For 2^17 <= x < inf, by its bits: x / (pi / 2) modulo 4, as an integer in units of 2^-62."""
    m = ((size & 0x7FFFFF) | 0x800000).to(tl.int64)
    place = (size >> 23) - 118  # of the bit of 1 / pi that gives units, after 32 zeros before its point
    word = place >> 5
    shift = (place & 31).to(tl.uint32)
    w0 = _pick(word, 0x00000000, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770)
    w1 = _pick(word, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566)
    w2 = _pick(word, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410)
    w3 = _pick(word, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA)
    first = (m * _joined(w0, w1, shift)) << 32
    return first + m * _joined(w1, w2, shift) + ((m * _joined(w2, w3, shift)) >> 32)


@kernel
def huge_angle(part):
    """part * pi/2 * 2^-64 for an int64 `part`, and what its rounding left out."""
    # Split at the nearest multiple of 2^40: a small part, of either sign, is all in `low`.
    top = ((part >> 39) + 1) >> 1
    high = top.to(tl.int32).to(tl.float32)
    low = (part - (top << 40)).to(tl.float32)
    low = tl.fma(low, 8.515304e-20, high * -2.6054017e-15)
    r = tl.fma(high, 9.362676e-08, low)
    return r, tl.fma(high, 9.362676e-08, negate(r)) + low


@kernel
def largest(values):
    """The largest integer of a tile (a scalar is its own)."""
    if values.type.is_block():
        most = tl.max(values)
    else:
        most = values
    return most


@kernel
def _sine(size, sign, COSINE: tl.constexpr):
    """The sine or cosine of a >= 0 given by its bits, negated where the top bit of `sign` is set."""
    r, rest, turn = _reduce(size.to(tl.float32, bitcast=True), COSINE)
    if COSINE:
        turn = turn + 1
    if largest(size) >= HUGE:
        huge = (size >= HUGE) & (size < INFINITE)
        turns = huge_turns(size)
        if COSINE:
            turns = turns + 0x4000000000000000
        angle, left = huge_angle(turns << 1)
        r = tl.where(huge, angle + angle, r)
        rest = tl.where(huge, left + left, rest)
        turn = tl.where(huge, ((turns + 0x4000000000000000) >> 63).to(tl.int32), turn)
    return _curve(r, rest, turn, sign)


@kernel
def sin(x):
    """Sine of fp32, for all x; +-inf gives NaN."""
    bits = x.to(tl.int32, bitcast=True)
    return _sine(bits & 0x7FFFFFFF, bits, False)


@kernel
def cos(x):
    """Cosine of fp32, for all x; +-inf gives NaN."""
    return _sine(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0, True)
