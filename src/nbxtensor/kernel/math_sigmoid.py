"""sigmoid, silu, softplus and gelu with tanh, of fp32.

All rest on exp(z) = 2^n * (1 + e). The logistic functions are u / (u + s * (1 + e)) with powers of two u = 2^-(n / 2) and
s = 2^(n - n / 2) where n > 0, and u = 1 elsewhere: nothing overflows, and subnormal results are rounded once.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import magnitude, negate
from nbxtensor.kernel.math_exp import clamp_high, clamp_low, exp_split, exp_tail, power_halves


@kernel
def _logistic(z, rest):
    """For z + rest <= 112: u, s, the denominator u + s * (1 + e), and what its rounding left out."""
    t, r = exp_split(clamp_low(z, -87.0))
    e = exp_tail(r + rest)
    bits = t.to(tl.int32, bitcast=True)
    half = tl.maximum(bits, 0x4B400000) >> 1
    s = (((bits - half) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    u = (0x3F800000 - (half << 23)).to(tl.float32, bitcast=True)
    both = s + u
    d = tl.fma(s, e, both)
    return u, d, tl.fma(s, e, both - d) + ((s - both) + u), half


@kernel
def sigmoid(x):
    """1 / (1 + exp(-x)) of fp32."""
    u, d, rest, half = _logistic(clamp_high(negate(x), 105.0), 0.0)
    q = tl.div_rn(u, d)
    # 1 / (d + rest) = q / u * (1 - rest * q / u)
    minus = ((half << 23) + -1082130432).to(tl.float32, bitcast=True)
    return tl.fma(q, rest * (q * minus), q)


@kernel
def silu(x):
    """x * sigmoid(x) of fp32; silu(-inf) is -0.0, the limit."""
    low = clamp_low(x, -110.0)
    u, d, rest, half = _logistic(negate(low), 0.0)
    minus = ((half << 23) + -1082130432).to(tl.float32, bitcast=True)
    q = tl.div_rn(low * u, d)
    return q


@kernel
def softplus(x):
    """log(1 + exp(x)) of fp32."""
    return _softplus(x, 0.0)


@kernel
def _softplus(x, rest):
    """log(1 + exp(x + rest))."""
    z = clamp_low(negate(magnitude(x)), -104.0)
    t, r = exp_split(z)
    first, second = power_halves(t)
    e = tl.fma(exp_tail(r), first, first) * second
    q = tl.fma(e, -0.0032905191, 0.020086393)
    q = tl.fma(q, e, -0.0574574)
    q = tl.fma(q, e, 0.10661136)
    q = tl.fma(q, e, -0.15344882)
    q = tl.fma(q, e, 0.19692102)
    q = tl.fma(q, e, -0.24958019)
    q = tl.fma(q, e, 0.33330464)
    q = tl.fma(q, e, -0.4999993)
    return tl.where(x > 0.0, x, 0.0) + tl.fma(e * e, q, e)
