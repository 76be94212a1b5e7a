"""Pieces of the float64 mathematics: constants, polynomials, sums and products in two parts.

Triton rounds a float literal to fp32 before it widens it, except as an operand of +, - and *, and in `tl.full`. So
every constant that goes elsewhere (`tl.fma`, comparisons) and is no fp32 comes from `real` or `poly`.
"""

from nbxtensor.compiler.source import kernel, tl

ROUND64 = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the low bits


@kernel
def real(C: tl.constexpr):
    """The constant C in fp64, all bits of it (but -0.0 becomes 0.0)."""
    return tl.full([], C, tl.float64)


@kernel
def poly(x, C: tl.constexpr):
    """The polynomial in x with the coefficients C, that of the highest power first."""
    r = tl.full(x.shape, C[0], tl.float64)
    for i in tl.static_range(1, len(C)):
        r = tl.fma(r, x, real(C[i]))
    return r


@kernel
def long_poly(x, C: tl.constexpr):
    """As `poly`, even and odd powers apart: two chains of half the length, for one multiplication more."""
    square = x * x
    a = tl.full(x.shape, C[0], tl.float64)
    b = tl.full(x.shape, C[1], tl.float64)
    for i in tl.static_range(2, len(C) - 1, 2):
        a = tl.fma(a, square, real(C[i]))
        b = tl.fma(b, square, real(C[i + 1]))
    if len(C) % 2 == 0:
        r = tl.fma(a, x, b)
    else:
        r = tl.fma(b, x, tl.fma(a, square, real(C[len(C) - 1])))
    return r


@kernel
def at_least(x, low: tl.constexpr):
    """The larger of x and a constant that is an fp32; NaN passes."""
    return tl.where(x < low, real(low), x)


@kernel
def at_most(x, high: tl.constexpr):
    """The smaller of x and a constant that is an fp32; NaN passes."""
    return tl.where(x > high, real(high), x)


@kernel
def minus(x):
    """-x of fp64."""
    return (x.to(tl.int64, bitcast=True) ^ -9223372036854775808).to(tl.float64, bitcast=True)


@kernel
def add_ordered(a, b):
    """a + b rounded, and what rounding left out; |a| >= |b|, or a is 0."""
    s = a + b
    return s, b - (s - a)


@kernel
def add_exact(a, b):
    """a + b rounded, and what rounding left out."""
    s = a + b
    other = s - a
    return s, (a - (s - other)) + (b - other)


@kernel
def multiply_exact(a, b):
    """a * b rounded, and what rounding left out (where that is no subnormal)."""
    p = a * b
    return p, tl.fma(a, b, minus(p))


@kernel
def divide_exact(high, low, d, d_low, inverse):
    """(high + low) / (d + d_low) in two parts; `inverse` is 1 / d."""
    q = high * inverse
    return q, (tl.fma(minus(q), d, high) + tl.fma(minus(q), d_low, low)) * inverse


@kernel
def minus_inverse64(d):
    """-1 / d for 2^-1020 < d < 2^1020 within 2^-38: an integer subtraction and two cubic steps; NaN passes."""
    r = (-9462152889097959 - d.to(tl.int64, bitcast=True)).to(tl.float64, bitcast=True)
    e = tl.fma(d, r, 1.0)
    r = tl.fma(r, tl.fma(e, e, e), r)
    e = tl.fma(d, r, 1.0)
    return tl.fma(r, tl.fma(e, e, e), r)


@kernel
def power_halves64(t):
    """2^(n >> 1) and 2^(n - (n >> 1)), their product 2^n, for the n in the low bits of t (|n| <= 2044)."""
    bits = t.to(tl.uint64, bitcast=True)
    half = bits >> 1
    first = (half << 52) + 0x3FF0000000000000
    second = ((bits - half) << 52) + 0x3FF0000000000000
    return first.to(tl.float64, bitcast=True), second.to(tl.float64, bitcast=True)
