"""erf and gelu of fp64.

Both rest on Phi(-t) = exp(-t^2 / 2) * M(z) / (t + 5), where Phi is the distribution function of the normal distribution
and M a polynomial in z = (t - 5) / (t + 5): Mills' ratio. gelu keeps t^2, z and the first terms of M in two parts, so
its negative tail is accurate down to the subnormals. Near zero erf is an odd polynomial.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_exp import exp64_terms
from nbxtensor.kernel.math64_parts import (
    add_exact,
    at_most,
    long_poly,
    minus,
    minus_inverse64,
    multiply_exact,
    poly,
    power_halves64,
    real,
)
from nbxtensor.kernel.math_bits import copy_sign

ROOT2 = 1.4142135623730951
FIVE_BY_ROOT2 = 3.5355339059327378
TEN_BY_ROOT2 = 7.0710678118654755
# The first terms of M.
M0_HI = 0.769193049750063
M0_LO = -1.422859886703287e-17
M2 = 0.4953056159699761
M1 = -0.6653825028900568


@kernel
def _mills_inner(z):
    """The polynomial that M is from its term in z^3 on."""
    return long_poly(
        z,
        (
            -3.7060586698451073e-10,
            -1.1337084637592732e-09,
            2.204252070525735e-09,
            1.0711487422321693e-08,
            -8.567632725655382e-09,
            -7.002601442485578e-08,
            4.022460403426777e-08,
            4.362045952795056e-07,
            -3.3462171266772103e-07,
            -2.770679604684441e-06,
            3.979831050281842e-06,
            1.668162764318217e-05,
            -4.97624647283072e-05,
            -5.937580516442717e-05,
            0.0005448989944715232,
            -0.0007978693895382109,
            -0.00299337676207222,
            0.020795066799275043,
            -0.06911863870686494,
            0.16502036617040675,
            -0.31353315667128784,
        ),
    )


@kernel
def _horner_exact(m, m_low, z, z_low, C: tl.constexpr):
    """m * z + C, all but C in two parts."""
    p, p_low = multiply_exact(m, z)
    high, lost = add_exact(p, real(C))
    return high, lost + tl.fma(m_low, z, tl.fma(m, z_low, p_low))


@kernel
def _mills(z, z_low):
    """M(z) in two parts, for -1 <= z <= 0.775."""
    m, m_low = _horner_exact(_mills_inner(z), real(0.0), z, z_low, M2)
    m, m_low = _horner_exact(m, m_low, z, z_low, M1)
    m, m_low = _horner_exact(m, m_low, z, z_low, M0_HI)
    return m, m_low + real(M0_LO)


@kernel
def gelu64(x):
    """x * Phi(x) of fp64; gelu(-inf) is -0.0, the limit. At most 1.25 ULP in all samples."""
    t = at_most(tl.abs(x), 40.0)
    square, square_low = multiply_exact(t, t * -0.5)
    n, r, tail = exp64_terms(square, square_low)
    d = t + 5.0
    d_low = t - (d - 5.0)  # what rounding left out, for every t; so too below
    top = t - 5.0
    top_low = t - (top + 5.0)
    # i + i_low = -1 / (t + 5)
    i = minus_inverse64(d)
    i = tl.fma(i, tl.fma(d, i, 1.0), i)
    i_low = tl.fma(d_low, i, tl.fma(d, i, 1.0)) * i
    z, z_low = multiply_exact(minus(i), top)
    m, m_low = _mills(z, z_low - tl.fma(i_low, top, top_low * i))
    p, p_low = multiply_exact(i, m)
    w, w_low = multiply_exact(t, p)
    w_low = tl.fma(t, tl.fma(i, m_low, tl.fma(i_low, m, p_low)), w_low)
    first, second = power_halves64(n)
    below = (w + tl.fma(w, r, tl.fma(w, tail, tl.fma(w_low, r, w_low)))) * first * second
    return tl.where(x > 8.5, x, copy_sign(tl.where(x > 0.0, t + below, below), x))


@kernel
def erf64(x):
    """Error function of fp64. At most 1.65 ULP in 10^8 samples."""
    a = tl.abs(x)
    z = a * a
    p = poly(
        z,
        (
            1.4274895318480578e-10,
            -1.6426699488497556e-09,
            1.6004093580200432e-08,
            -1.6555884285010613e-07,
            1.6480952818324075e-06,
            -1.492687561527948e-05,
            0.0001205538598395188,
            -0.0008548328531053553,
            0.00522397765262856,
            -0.026866170648026606,
            0.11283791670971086,
            -0.376126389031841,
            0.1283791670955126,
        ),
    )
    near = tl.fma(a, p, a)
    t = at_most(a, 6.0)
    n, r, tail = exp64_terms(minus(t * t), 0.0)
    # 1 - 2 * Phi(-t * sqrt(2))
    d = t + FIVE_BY_ROOT2
    i = minus_inverse64(d)
    i = tl.fma(i, tl.fma(d, i, 1.0), i)
    z = tl.fma(i, real(TEN_BY_ROOT2), 1.0)
    m = tl.fma(tl.fma(tl.fma(_mills_inner(z), z, real(M2)), z, real(M1)), z, real(M0_HI))
    w = m * i * ROOT2
    scale = ((n.to(tl.int64, bitcast=True) << 52) + 0x3FF0000000000000).to(tl.float64, bitcast=True)
    far = tl.fma(tl.fma(w, r + tail, w), scale, 1.0)
    return copy_sign(tl.where(a < 1.0, near, far), x)
