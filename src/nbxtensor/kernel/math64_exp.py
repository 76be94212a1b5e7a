"""exp and expm1 of fp64, and exp in two parts for the functions that rest on it.

Reduction as in fp32: n = round(x / ln 2) stands in the low bits of `t = fma(x, log2(e), 1.5 * 2^52)`, and
r = x - n * ln 2 is kept in two parts. e^r = 1 + r + r^2 * q(r) is kept in two parts too, so that what follows rounds
once more and no more.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_parts import (
    ROUND64,
    add_exact,
    add_ordered,
    at_least,
    at_most,
    long_poly,
    minus,
    power_halves64,
    real,
)

LOG2E = 1.4426950408889634
MINUS_LN2_HI = -0.6931471805599453
MINUS_LN2_LO = -2.3190468138462996e-17


@kernel
def exp64_reduce(x, rest):
    """For |x + rest| < 1400: t, whose low bits hold n = round(x / ln 2), and x + rest - n * ln 2 in two parts."""
    t = tl.fma(x, real(LOG2E), real(ROUND64))
    n = t - ROUND64
    near = tl.fma(n, real(MINUS_LN2_HI), x)  # exact
    shift = tl.fma(n, real(MINUS_LN2_LO), rest)
    r = near + shift
    return t, r, (near - r) + shift


@kernel
def _cubic(r):
    """(exp(r) - 1 - r - r^2 / 2) / r^3 for |r| <= ln(2) / 2; times r^3 it is good to 2^-64."""
    return long_poly(
        r,
        (
            2.083725178787319e-09,
            2.5110849501714893e-08,
            2.7557529090565657e-07,
            2.7557238755740796e-06,
            2.4801587023868817e-05,
            0.00019841269891816317,
            0.00138888888890329,
            0.008333333333319275,
            0.041666666666666415,
            0.1666666666666668,
        ),
    )


@kernel
def exp64_tail(r, rest):
    """exp(r + rest) - 1 in two parts for |r| <= ln(2) / 2."""
    half = r * 0.5
    square = r * half
    square_low = tl.fma(r, half, minus(square))
    high, lost = add_ordered(r, square)
    low = tl.fma(square + square, r * _cubic(r), square_low) + tl.fma(rest, r, rest)
    return add_ordered(high, lost + low)


@kernel
def exp64_terms(x, rest):
    """exp(x + rest) = 2^n * (1 + r + tail): t, whose low bits hold n, then r, exact, and the tail."""
    t = tl.fma(x, real(LOG2E), real(ROUND64))
    n = t - ROUND64
    r = tl.fma(n, real(MINUS_LN2_HI), x)
    low = tl.fma(n, real(MINUS_LN2_LO), rest)
    near = r + low
    return t, r, tl.fma(near * near, tl.fma(_cubic(near), near, 0.5), low)


@kernel
def exp64_parts(x, rest):
    """exp(x + rest) = 2^n * (s + low): t, whose low bits hold n, then s and low; |x + rest| < 1400."""
    t, r, r_low = exp64_reduce(x, rest)
    e, e_low = exp64_tail(r, r_low)
    s, lost = add_ordered(1.0, e)
    return t, s, lost + e_low


@kernel
def exp64(x):
    """e^x of fp64. At most 0.6 ULP in all samples, 0.8 where the result is subnormal."""
    t, r, rest = exp64_reduce(at_most(at_least(x, -746.0), 710.0), 0.0)
    s = 1.0 + r
    low = (r - (s - 1.0)) + tl.fma(r * r, tl.fma(_cubic(r), r, 0.5), tl.fma(rest, r, rest))
    first, second = power_halves64(t)
    return (s + low) * first * second


@kernel
def expm1_parts64(x):
    """(exp(x) - 1) / 2 in two parts, for -40 <= x <= 710."""
    t, r, rest = exp64_reduce(x, 0.0)
    e, e_low = exp64_tail(r, rest)
    s, lost = add_ordered(1.0, e)
    # Half of 2^n, which stays finite for n = 1024.
    half = ((t.to(tl.int64, bitcast=True) << 52) + 0x3FE0000000000000).to(tl.float64, bitcast=True)
    high, rest = add_exact(s * half, -0.5)
    high, low = add_ordered(high, tl.fma(lost + e_low, half, rest))
    small = t == ROUND64
    return tl.where(small, e * 0.5, high), tl.where(small, e_low * 0.5, low)


@kernel
def expm164(x):
    """e^x - 1 of fp64. At most 0.6 ULP in all samples."""
    high, low = expm1_parts64(at_most(at_least(x, -40.0), 710.0))
    y = high + low
    return tl.where(tl.abs(x) < 5.551115123125783e-17, x, y + y)  # also keeps -0.0
