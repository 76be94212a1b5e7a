"""Functions whose argument and result are bfloat16: exp, sin, cos, tanh, erf, sigmoid, silu, softplus, gelu.

They take the argument widened to fp32 and are about 2^-18 of the result off, so that what is rounded to 8 bits is
rarely not the nearest.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import negate
from nbxtensor.kernel.math_exp import clamp_high, clamp_low
from nbxtensor.kernel.math_trig import HUGE, INFINITE, joined_halves, quarters

ROUND = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
LOG2E = 1.442695
LN2 = 0.6931472
UNIT = 3.552713678800501e-15  # 2^-48
# ROUND plus an exponent's bias less 48: the low bits of a sum with it, shifted, are 2^(n - 48).
ROUND_UNIT = 12582991.0
INV_PI = 0.31830987
MINUS_PI_1 = -3.141592502593994
MINUS_PI_2 = -1.5099578831723193e-07
PI_1 = 3.141592502593994
PI_2 = 1.5099578831723193e-07


@kernel
def power(t):
    """The float whose exponent field are the low bits of t."""
    return (t.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)


@kernel
def exp_curve(r):
    """exp(-r) for |r| <= ln(2) / 2."""
    p = tl.fma(r, 0.041514892, -0.16787522)
    p = tl.fma(p, r, 0.50003004)
    p = tl.fma(p, r, -0.9999668)
    return tl.fma(p, r, 1.0)


@kernel
def near_inverse(d):
    """r and w with r * w = 1 / d to 2^-19.9, exact for powers of two; 2^-126 <= d < 2^126."""
    r = (2129888545 - d.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    r = r * tl.fma(negate(d), r, 2.0014331)
    return r, tl.fma(negate(d), r, 2.000001)


@kernel
def exp_bf16(x):
    """e^x for a bfloat16."""
    c = clamp_high(clamp_low(x, -104.0), 89.0)
    t = tl.fma(c, 0.7213475, 12583039.0)
    r = tl.fma(t - 12583039.0, -1.3862944, c)
    p = tl.fma(r, 0.0013702835, 0.008491832)
    p = tl.fma(p, r, 0.041687887)
    p = tl.fma(p, r, 0.16663216)
    p = tl.fma(p, r, 0.49999645)
    p = tl.fma(p, r, 1.0000017)
    p = tl.fma(p, r, 1.0)
    s = power(t)
    return (p * s) * s


@kernel
def _logistic(z):
    """r and w with r * w = 1 / (1 + exp(-z))."""
    t = tl.fma(z, -LOG2E, ROUND_UNIT)
    p = exp_curve(tl.fma(t - ROUND_UNIT, LN2, z))
    r, w = near_inverse(tl.fma(p, power(t), UNIT))
    return r * (w * UNIT)


@kernel
def sigmoid_bf16(x):
    """1 / (1 + exp(-x)) for a bfloat16."""
    return _logistic(clamp_high(clamp_low(x, -95.0), 30.0))


@kernel
def silu_bf16(x):
    """x * sigmoid(x) for a bfloat16."""
    low = clamp_low(x, -100.0)
    return low * _logistic(clamp_high(low, 30.0))


@kernel
def gelu_tanh_bf16(x):
    low = clamp_low(x, -11.0)
    z = low * tl.fma(low * low, 0.071354814, 1.5957692)
    return low * _logistic(clamp_high(z, 30.0))


@kernel
def softplus_bf16(x):
    a = clamp_low(negate(tl.abs(x)), -95.0)
    # 2^14 times the exponential
    t = tl.fma(a, LOG2E, 12583053.0)
    p = exp_curve(tl.fma(t - 12583053.0, LN2, negate(a)))
    e = p * power(t)
    q = tl.fma(e, 0.014145363 / 2.0**98, -0.06641645 / 2.0**84)
    q = tl.fma(q, e, 0.1492429 / 2.0**70)
    q = tl.fma(q, e, -0.23505045 / 2.0**56)
    q = tl.fma(q, e, 0.33109808 / 2.0**42)
    q = tl.fma(q, e, -0.49987012 / 2.0**28)
    q = tl.fma(q, e, 0.99999875 / 2.0**14)
    base = tl.maximum(x.to(tl.int32, bitcast=True), 0).to(tl.float32, bitcast=True)
    return tl.fma(e, q, base)


@kernel
def tanh_bf16(x):
    c = clamp_high(clamp_low(x, -3.6), 3.6)
    z = c * c
    p = tl.fma(z, 0.0017990563, 0.11872016)
    p = tl.fma(p, z, 0.9999999)
    q = tl.fma(z, 7.654051e-05, 0.019152628)
    q = tl.fma(q, z, 0.4520519)
    q = tl.fma(q, z, 1.0)
    r, w = near_inverse(q)
    return ((c * p) * r) * w


@kernel
def erf_bf16(x):
    c = clamp_high(clamp_low(x, -2.25), 2.25)
    z = c * c
    p = tl.fma(z, 1.931104e-07, -5.8348755e-06)
    p = tl.fma(p, z, 8.2838094e-05)
    p = tl.fma(p, z, -0.0007541629)
    p = tl.fma(p, z, 0.0050571198)
    p = tl.fma(p, z, -0.026704973)
    p = tl.fma(p, z, 0.11275755)
    p = tl.fma(p, z, -0.3761105)
    p = tl.fma(p, z, 1.1283786)
    return c * p


@kernel
def gelu_bf16(x):
    a = clamp_high(tl.abs(x), 14.5)
    s = a * a
    # 2^32 times the exponential
    t = tl.fma(s, -0.7213475, 12583071.0)
    e = tl.fma(t - 12583071.0, 1.3862944, s)
    g = tl.fma(e, 0.041514892 / 16, -0.16787522 / 8)
    g = tl.fma(g, e, 0.50003004 / 4)
    g = tl.fma(g, e, -0.9999668 / 2)
    g = tl.fma(g, e, 1.0)
    p = tl.fma(a, 0.01687827 / 2.0**32, 0.11882031 / 2.0**32)
    p = tl.fma(p, a, 0.36073428 / 2.0**32)
    p = tl.fma(p, a, 0.5 / 2.0**32)
    q = tl.fma(a, 0.042312987, 0.297624)
    q = tl.fma(q, a, 0.95003590)
    q = tl.fma(q, a, 1.5193373)
    q = tl.fma(q, a, 1.0)
    r, w = near_inverse(q)
    u = ((p * g) * r) * w
    base = tl.minimum(x.to(tl.uint32, bitcast=True), 0x80000000).to(tl.float32, bitcast=True)
    return tl.fma(negate(a * power(t)), u, base)


@kernel
def _sine(r, sign):
    """sin(r) for |r| <= pi / 2, negated where the top bit of `sign` is set, its other bits being zero."""
    z = r * r
    s = tl.fma(z, -0.00018461222, 0.008311029)
    s = tl.fma(s, z, -0.16665486)
    s = tl.fma(s, z, 0.999999)
    return ((r * s).to(tl.int32, bitcast=True) + sign).to(tl.float32, bitcast=True)


@kernel
def _pick(word, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr):
    """One of four constants by its number."""
    low = tl.where(word == 0, tl.full(word.shape, a, tl.uint32), tl.full(word.shape, b, tl.uint32))
    high = tl.where(word == 2, tl.full(word.shape, c, tl.uint32), tl.full(word.shape, d, tl.uint32))
    return tl.where(word < 2, low, high)


@kernel
def _exact(x, y, quarter: tl.constexpr):
    """y, but from 2^17 on the sine of x + quarter * pi / 2^63.

    x is an integer of 8 bits times a power of two: 64 bits of 1 / pi around it give x / pi modulo 2.
    """
    size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    m = ((size >> 16) & 0x7F | 0x80).to(tl.int64)
    place = (size >> 23) - 134
    word = place >> 5
    shift = (place & 31).to(tl.uint32)
    w0 = _pick(word, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770)
    w1 = _pick(word, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566)
    w2 = _pick(word, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410)
    high = (w0 << shift) | ((w1 >> 1) >> (31 - shift))
    low = (w1 << shift) | ((w2 >> 1) >> (31 - shift))
    turns = m * ((high.to(tl.int64) << 32) | low.to(tl.int64)) + quarter
    r = (turns << 1).to(tl.float32) * 1.7030608e-19  # pi / 2^64
    flip = (turns ^ (turns << 1)) >> 32
    exact = _sine(r, flip.to(tl.int32) & -2147483648)
    if quarter == 0:
        exact = (exact.to(tl.int32, bitcast=True) ^ (x.to(tl.int32, bitcast=True) & -2147483648)).to(
            tl.float32, bitcast=True
        )
    return tl.where((size >= HUGE) & (size < INFINITE), exact, y)


@kernel
def _with_huge(x, y, quarter: tl.constexpr):
    size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    if not x.type.is_block():
        if size >= HUGE:
            y = _exact(x, y, quarter)
    elif tl.max(size) >= HUGE:
        if x.numel < 4:
            y = _exact(x, y, quarter)
        else:
            a0, a1, a2, a3 = quarters(x)
            y0, y1, y2, y3 = quarters(y)
            for _ in tl.range(0, 4, loop_unroll_factor=1):
                z = _exact(a0, y0, quarter)
                y0, y1, y2, y3 = y1, y2, y3, z
                a0, a1, a2, a3 = a1, a2, a3, a0
            y = tl.reshape(joined_halves(joined_halves(y0, y1), joined_halves(y2, y3)), y.shape)
    return y


@kernel
def sin_bf16(x):
    """Sine of a bfloat16."""
    t = tl.fma(x, INV_PI, ROUND)
    h = t - ROUND
    r = tl.fma(h, MINUS_PI_2, tl.fma(h, MINUS_PI_1, x))
    return _with_huge(x, _sine(r, t.to(tl.int32, bitcast=True) << 31), 0)


@kernel
def cos_bf16(x):
    """Cosine of a bfloat16."""
    t = tl.fma(x, INV_PI, -0.5) + ROUND
    h = (t - ROUND) + 0.5
    r = tl.fma(h, PI_2, tl.fma(h, PI_1, negate(x)))
    return _with_huge(x, _sine(r, t.to(tl.int32, bitcast=True) << 31), 0x4000000000000000)
