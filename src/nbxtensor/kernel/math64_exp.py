"""exp of fp64, and exp in two parts for the functions that rest on it.

Reduction as in fp32: n = round(x / ln 2) stands in the low bits of `t = fma(x, log2(e), 1.5 * 2^52)`, and
r = x - n * ln 2 is kept in two parts. e^r = 1 + r + r^2 * q(r) is kept in two parts too, so that what follows rounds
once more and no more.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_parts import ROUND64, at_least, at_most, poly, power_halves64, real

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
def exp64_tail(r, rest):
    """exp(r + rest) - 1 - r for |r| <= ln(2) / 2; 2^-64 beside exp."""
    q = poly(
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
            0.5,
        ),
    )
    return tl.fma(r * r, q, rest)


@kernel
def exp64_parts(x, rest):
    """exp(x + rest) = 2^n * (s + low): t, whose low bits hold n, then s and low; |x + rest| < 1400."""
    t, r, r_low = exp64_reduce(x, rest)
    s = 1.0 + r
    return t, s, (r - (s - 1.0)) + tl.fma(r_low, r, exp64_tail(r, r_low))


@kernel
def exp64(x):
    """e^x of fp64. At most 0.6 ULP in all samples, 0.8 where the result is subnormal."""
    t, s, low = exp64_parts(at_most(at_least(x, -746.0), 710.0), 0.0)
    first, second = power_halves64(t)
    return (s + low) * first * second
