"""sin and cos of fp32, over the whole range.

x = q * pi/2 + r with r within pi / 4; the parity of q chooses between the curves of sine and cosine. Below 2^17, r
comes from pi/2 in three parts (72 bits). From 2^17 on it comes from the bits of 1 / pi around the exponent of x, by
integer products (96 bits). That path is entered only by tiles that hold such an element, and its result is selected
per element: neighbours never show.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import negate

ROUND = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
TWO_BY_PI = 0.63661975
# pi / 2 in three parts, each rounded down.
MINUS_PIO2_1 = -1.570796251296997
MINUS_PIO2_2 = -7.549789415861596e-08
MINUS_PIO2_3 = -5.390302529957765e-15
# For reduction by pi, in two parts, for results of 16 bits.
INV_PI = 0.31830987
PI_1 = 3.141592502593994
PI_2 = 1.5099578831723193e-07
HUGE = 0x48000000  # bits of 2^17
INFINITE = 0x7F800000


@kernel
def _reduce(a):
    """For 0 <= a < 2^17: r = a - q * pi/2, what its rounding left out, and q in the low bits of an integer."""
    t = tl.fma(a, TWO_BY_PI, ROUND)
    n = t - ROUND
    near = tl.fma(n, MINUS_PIO2_1, a)
    r = tl.fma(n, MINUS_PIO2_2, near)
    # near - r is exact unless r is small, and there the rest does not count.
    rest = tl.fma(n, MINUS_PIO2_2, near - r)
    rest = tl.where(tl.abs(r) < 0.0234375, 0.0, rest)
    return tl.fma(n, MINUS_PIO2_3, r), rest, t.to(tl.int32, bitcast=True)


@kernel
def _curve(r, rest, quadrant, sign):
    """sin(quadrant * pi/2 + r + rest), negated where the top bit of `sign` is set."""
    odd = (quadrant & 1) != 0
    z = r * r
    p = tl.fma(z, tl.where(odd, 2.4430668e-05, -0.00019507881), tl.where(odd, -0.0013887301, 0.008332106))
    p = tl.fma(p, z, tl.where(odd, 0.041666646, -0.16666654))
    half = z * -0.5
    low = tl.where(odd, half, tl.fma(half, rest, rest))
    y = tl.where(odd, 1.0, r) + tl.fma(z * tl.where(odd, z, r), p, low)
    flip = ((quadrant << 30) ^ sign) & -2147483648
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
def halves(x):
    """A tile in two parts, neighbours apart."""
    return tl.split(tl.reshape(x, (x.numel // 2, 2)))


@kernel
def joined_halves(a, b):
    """The tile of which `halves` made two."""
    return tl.reshape(tl.join(a, b), (a.numel * 2,))


@kernel
def quarters(x):
    """Four parts of a tile, each in registers of the same threads."""
    a, b = halves(x)
    a0, a1 = halves(a)
    b0, b1 = halves(b)
    return a0, a1, b0, b1


@kernel
def _exact(bits, y, QUARTER: tl.constexpr):
    """y, but from 2^17 on sin(x) (QUARTER = 0) or cos(x) (1) of an x given by its bits."""
    size = bits & 0x7FFFFFFF
    turns = huge_turns(size)
    r, rest = huge_angle(turns << 2)
    sign = bits if QUARTER == 0 else 0
    exact = _curve(r, rest, ((turns + 0x2000000000000000) >> 62).to(tl.int32) + QUARTER, sign)
    return tl.where((size >= HUGE) & (size < INFINITE), exact, y)


@kernel
def _with_huge(bits, y, QUARTER: tl.constexpr):
    """As `_exact`. Tiles that hold no huge element do no more than find that out."""
    size = bits & 0x7FFFFFFF
    if not size.type.is_block():
        if size >= HUGE:
            y = _exact(bits, y, QUARTER)
    elif tl.max(size) >= HUGE:
        if size.numel < 4:
            y = _exact(bits, y, QUARTER)
        else:
            # A quarter after the other: few registers, which all tiles pay for, matter more than speed here.
            a0, a1, a2, a3 = quarters(bits)
            y0, y1, y2, y3 = quarters(y)
            for _ in tl.range(0, 4, loop_unroll_factor=1):
                z = _exact(a0, y0, QUARTER)
                y0, y1, y2, y3 = y1, y2, y3, z
                a0, a1, a2, a3 = a1, a2, a3, a0
            y = tl.reshape(joined_halves(joined_halves(y0, y1), joined_halves(y2, y3)), y.shape)
    return y


@kernel
def sin(x):
    """Sine of fp32, for all x; +-inf gives NaN. At most 1.48 ULP."""
    bits = x.to(tl.int32, bitcast=True)
    r, rest, quadrant = _reduce((bits & 0x7FFFFFFF).to(tl.float32, bitcast=True))
    return _with_huge(bits, _curve(r, rest, quadrant, bits), 0)


@kernel
def cos(x):
    """Cosine of fp32, for all x; +-inf gives NaN. At most 1.48 ULP."""
    bits = x.to(tl.int32, bitcast=True)
    r, rest, quadrant = _reduce((bits & 0x7FFFFFFF).to(tl.float32, bitcast=True))
    return _with_huge(bits, _curve(r, rest, quadrant + 1, 0), 1)
