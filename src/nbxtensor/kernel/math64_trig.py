"""sin and cos of fp64, over the whole range.

x = q * pi/2 + r with r within pi / 4, kept in two parts. Below 2^30, r comes from pi/2 in three parts (161 bits). From
2^30 on it comes from the bits of 2 / pi around the exponent of x, by integer products (128 bits). As in fp32, that path
is entered only by tiles that hold such an element, and its result is selected per element.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_parts import ROUND64, add_exact, add_ordered, minus, multiply_exact, poly, real
from nbxtensor.kernel.math_trig import joined_halves, largest, quarters

TWO_BY_PI64 = 0.6366197723675814
PIO2_1 = 1.5707963267948966
PIO2_2 = 6.123233995736766e-17
PIO2_3 = -1.4973849048591698e-33
HUGE64 = 0x41D00000  # upper half of the bits of 2^30
INFINITE64 = 0x7FF00000


@kernel
def _reduce64(a):
    """For 0 <= a < 2^30: a - q * pi/2 in two parts, and q in the low bits of an integer."""
    t = tl.fma(a, real(TWO_BY_PI64), real(ROUND64))
    n = t - ROUND64
    near = tl.fma(n, real(-PIO2_1), a)  # exact
    p, p_low = multiply_exact(n, real(-PIO2_2))
    r, rest = add_exact(near, p)
    r, rest = add_ordered(r, tl.fma(n, real(-PIO2_3), rest + p_low))
    return r, rest, t.to(tl.int64, bitcast=True)


@kernel
def _curve64(r, rest, quadrant, sign):
    """sin(quadrant * pi/2 + r + rest), negated where the top bit of `sign` is set."""
    z = r * r
    p = poly(
        z,
        (
            1.5895432790563298e-10,
            -2.5050734381112656e-08,
            2.7557313538471226e-06,
            -0.00019841269829358455,
            0.00833333333332184,
            -0.1666666666666663,
        ),
    )
    sine = r + tl.fma(z * r, p, tl.fma(z * -0.5, rest, rest))
    p = poly(
        z,
        (
            -1.1359917201298107e-11,
            2.0875728992670106e-09,
            -2.7557314399259634e-07,
            2.48015872896669e-05,
            -0.001388888888887447,
            0.0416666666666666,
        ),
    )
    w = tl.fma(z, -0.5, 1.0)
    # What w lacks of 1 - r^2 / 2, and the effect of the second part of r.
    lost = tl.fma(z, -0.5, 1.0 - w) - tl.fma(r, rest, tl.fma(r, r, minus(z)) * 0.5)
    cosine = w + tl.fma(z * z, p, lost)
    y = tl.where((quadrant & 1) != 0, cosine, sine)
    flip = ((quadrant << 62) ^ sign) & -9223372036854775808
    return (y.to(tl.int64, bitcast=True) ^ flip).to(tl.float64, bitcast=True)


@kernel
def _shifted(high, low, shift):
    """The top word of (high, low) shifted left by 0 to 63."""
    return (high << shift) | ((low >> 1) >> (63 - shift))


@kernel
def huge_turns64(bits):
    """For 2^30 <= |x| < inf, by its bits: |x| / (pi / 2) modulo 4, in units of 2^-62 and, below them, of 2^-126."""
    m = ((bits & 0xFFFFFFFFFFFFF) | 0x10000000000000).to(tl.uint64)
    place = ((bits >> 52) & 2047) - 1013  # of the bit of 2 / pi that gives 2, after 64 zeros before its point
    word = place >> 6
    shift = (place & 63).to(tl.uint64)
    table: tl.constexpr = (
        0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
        0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41,
        0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7,
        0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    )  # fmt: skip
    w0 = tl.full(word.shape, table[0], tl.uint64)
    w1 = tl.full(word.shape, table[1], tl.uint64)
    w2 = tl.full(word.shape, table[2], tl.uint64)
    w3 = tl.full(word.shape, table[3], tl.uint64)
    for i in tl.static_range(1, 17):
        here = word == i
        w0 = tl.where(here, tl.full([], table[i], tl.uint64), w0)
        w1 = tl.where(here, tl.full([], table[i + 1], tl.uint64), w1)
        w2 = tl.where(here, tl.full([], table[i + 2], tl.uint64), w2)
        w3 = tl.where(here, tl.full([], table[i + 3], tl.uint64), w3)
    second = _shifted(w1, w2, shift)
    third = tl.umulhi(m, _shifted(w2, w3, shift))
    low = m * second + third
    carry = (low < third).to(tl.uint64)
    return m * _shifted(w0, w1, shift) + tl.umulhi(m, second) + carry, low


@kernel
def _part(word, scale: tl.constexpr):
    """An integer of 32 bits times a power of two."""
    return word.to(tl.float64) * scale


@kernel
def huge_angle64(turns, low):
    """What turns + low (of `huge_turns64`) lie beyond the nearest integer, times pi/2, in two parts."""
    high = ((turns << 2) | (low >> 62)).to(tl.int64, bitcast=True)
    low = low << 2
    h, rest1 = add_exact(_part(high >> 32, 2.0**-32), _part(high & 0xFFFFFFFF, 2.0**-64))
    h, rest2 = add_exact(h, _part((low >> 32).to(tl.int64), 2.0**-96))
    rest = rest1 + (rest2 + _part((low & 0xFFFFFFFF).to(tl.int64), 2.0**-128))
    p, p_low = multiply_exact(h, real(PIO2_1))
    return add_ordered(p, tl.fma(h, real(PIO2_2), tl.fma(rest, real(PIO2_1), p_low)))


@kernel
def _exact64(bits, y, QUARTER: tl.constexpr):
    """y, but from 2^30 on sin(x) (QUARTER = 0) or cos(x) (1) of an x given by its bits."""
    turns, low = huge_turns64(bits)
    r, rest = huge_angle64(turns, low)
    sign = bits if QUARTER == 0 else 0
    quadrant = ((turns + 0x2000000000000000) >> 62).to(tl.int64)
    exact = _curve64(r, rest, quadrant + QUARTER, sign)
    size = (bits >> 32).to(tl.int32) & 0x7FFFFFFF
    return tl.where((size >= HUGE64) & (size < INFINITE64), exact, y)


@kernel
def _with_huge64(bits, y, QUARTER: tl.constexpr):
    """As `_exact64`. Tiles that hold no huge element do no more than find that out."""
    most = largest((bits >> 32).to(tl.int32) & 0x7FFFFFFF)
    if most >= HUGE64:
        if not bits.type.is_block() or bits.numel < 4:
            y = _exact64(bits, y, QUARTER)
        else:
            # A quarter after the other: few registers, which all tiles pay for, matter more than speed here.
            a0, a1, a2, a3 = quarters(bits)
            y0, y1, y2, y3 = quarters(y)
            for _ in tl.range(0, 4, loop_unroll_factor=1):
                z = _exact64(a0, y0, QUARTER)
                y0, y1, y2, y3 = y1, y2, y3, z
                a0, a1, a2, a3 = a1, a2, a3, a0
            y = tl.reshape(joined_halves(joined_halves(y0, y1), joined_halves(y2, y3)), y.shape)
    return y


@kernel
def sin64(x):
    """Sine of fp64, for all x; +-inf gives NaN. At most 0.8 ULP in all samples."""
    bits = x.to(tl.int64, bitcast=True)
    r, rest, quadrant = _reduce64(tl.abs(x))
    return _with_huge64(bits, _curve64(r, rest, quadrant, bits), 0)


@kernel
def cos64(x):
    """Cosine of fp64, for all x; +-inf gives NaN. At most 0.8 ULP in all samples."""
    bits = x.to(tl.int64, bitcast=True)
    r, rest, quadrant = _reduce64(tl.abs(x))
    return _with_huge64(bits, _curve64(r, rest, quadrant + 1, 0), 1)
