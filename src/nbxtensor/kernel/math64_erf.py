"""erf and gelu of fp64.

Both rest on Phi(-t) = exp(-t^2 / 2) * M(z) / (t + 5), where Phi is the distribution function of the normal distribution
and M a polynomial in z = (t - 5) / (t + 5): Mills' ratio. All of it is kept in two parts, so the negative tail of gelu
is accurate down to the subnormals. Near zero erf is an odd polynomial.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math64_exp import exp64_parts
from nbxtensor.kernel.math64_parts import (
    add_exact,
    add_ordered,
    at_most,
    divide_exact,
    minus,
    multiply_exact,
    poly,
    power_halves64,
    real,
)
from nbxtensor.kernel.math_bits import copy_sign

ROOT2_HI = 1.4142135623730951
ROOT2_LO = -9.667293313452913e-17
FIVE_BY_ROOT2 = 3.5355339059327378


@kernel
def _horner_exact(m, m_low, z, z_low, C: tl.constexpr, C_LOW: tl.constexpr):
    """m * z + C, all in two parts."""
    p, p_low = multiply_exact(m, z)
    high, lost = add_exact(p, real(C))
    return high, (lost + real(C_LOW)) + tl.fma(m_low, z, tl.fma(m, z_low, p_low))


@kernel
def _mills(z, z_low):
    """M(z) in two parts, for -1 <= z <= 0.775."""
    m = poly(
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
        ),
    )
    m, m_low = _horner_exact(m, real(0.0), z, z_low, -0.31353315667128784, 0.0)
    m, m_low = _horner_exact(m, m_low, z, z_low, 0.4953056159699761, 0.0)
    m, m_low = _horner_exact(m, m_low, z, z_low, -0.6653825028900568, 0.0)
    return _horner_exact(m, m_low, z, z_low, 0.769193049750063, -1.422859886703293e-17)


@kernel
def _tail(t, w, w_low, K: tl.constexpr, square, square_low):
    """2^n * (q + q_low) = (w + w_low) * exp(square + square_low) * M((t - K) / (t + K)) / (t + K), n in low bits."""
    d, d_low = add_exact(t, real(K))
    inverse = 1.0 / d
    z, z_low = add_exact(t, real(-K))
    z, z_low = divide_exact(z, z_low, d, d_low, inverse)
    m, m_low = _mills(z, z_low)
    n, s, s_low = exp64_parts(square, square_low)
    p, p_low = multiply_exact(s, m)
    p_low = tl.fma(s, m_low, tl.fma(s_low, m, p_low))
    q, q_low = multiply_exact(p, w)
    q, q_low = divide_exact(q, tl.fma(p, w_low, tl.fma(p_low, w, q_low)), d, d_low, inverse)
    return n, q, q_low


@kernel
def gelu64(x):
    """x * Phi(x) of fp64; gelu(-inf) is -0.0, the limit. At most 0.8 ULP in all samples."""
    t = at_most(tl.abs(x), 40.0)
    half, half_low = multiply_exact(t, t * -0.5)
    n, q, q_low = _tail(t, t, real(0.0), 5.0, half, half_low)
    first, second = power_halves64(n)
    y, lost = add_exact(tl.where(x > 0.0, t, real(0.0)), minus(q * first * second))
    y = y + (lost - q_low * first * second)
    return tl.where(x > 8.5, x, copy_sign(y, x))


@kernel
def erf64(x):
    """Error function of fp64. At most 0.8 ULP in all samples."""
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
    square, square_low = multiply_exact(t, minus(t))
    # Phi(-t * sqrt(2)), twice.
    n, q, q_low = _tail(t, real(ROOT2_HI), real(ROOT2_LO), FIVE_BY_ROOT2, square, square_low)
    scale = ((n.to(tl.int64, bitcast=True) << 52) + 0x3FF0000000000000).to(tl.float64, bitcast=True)
    far, lost = add_ordered(real(1.0), minus(q * scale))
    far = far + (lost - q_low * scale)
    return copy_sign(tl.where(a < 1.0, near, far), x)
