"""Functions whose argument and result are bfloat16: exp, sin, cos, tanh, erf, sigmoid, silu, softplus, gelu.

They take the argument widened to fp32 and are within about 2^-18 of the result, so that what is rounded to 8 bits is
rarely not the nearest. Arguments are clamped where the result no longer changes, and curves are fitted that far. Powers
of two that a curve or a result is scaled by keep sums below infinity and above the subnormals, where only the last
operation rounds.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math_bits import negate
from nbxtensor.kernel.math_exp import LN2_HI, LOG2E, ROUND, ROUND_ONE, clamp_high, clamp_low, power
from nbxtensor.kernel.math_trig import HUGE, INFINITE, INV_PI, PI_1, PI_2, joined_halves, quarters

UNIT = 3.552713678800501e-15  # 2^-48
ROUND_UNIT = 12582991.0  # ROUND_ONE - 48
ROUND_TWICE = 12583166.0  # ROUND_ONE + 127: half of its low bits are the bias of an exponent


@kernel
def _exp_minus(r):
    """exp(-r) for |r| <= ln(2) / 2, to 2^-18.4; exact for zero."""
    p = tl.fma(r, 0.041514892, -0.16787522)
    p = tl.fma(p, r, 0.50003004)
    p = tl.fma(p, r, -0.9999668)
    return tl.fma(p, r, 1.0)


@kernel
def _inverse(d):
    """Two factors of 1 / d, to 2^-19.9, for 2^-126 <= d < 2^126; exact for powers of two.

    Two steps of Newton from an integer seed, with constants that center their errors.
    """
    r = (2129888545 - d.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    r = r * tl.fma(negate(d), r, 2.0014331)
    return r, tl.fma(negate(d), r, 2.000001)


@kernel
def exp_bf16(x):
    """e^x for a bfloat16."""
    c = clamp_high(clamp_low(x, -104.0), 89.0)
    t = tl.fma(c, LOG2E, ROUND_TWICE)
    p = _exp_minus(tl.fma(t - ROUND_TWICE, LN2_HI, negate(c)))
    # Two powers of two whose product is 2^n: it may be infinite or subnormal.
    bits = t.to(tl.int32, bitcast=True)
    half = bits >> 1
    first = (half << 23).to(tl.float32, bitcast=True)
    second = ((bits - half) << 23).to(tl.float32, bitcast=True)
    return (p * first) * second


@kernel
def _logistic(z):
    """1 / (1 + exp(-z)) for -113 <= z <= 30, from 2^-48 times its denominator."""
    t = tl.fma(z, -LOG2E, ROUND_UNIT)
    p = _exp_minus(tl.fma(t - ROUND_UNIT, LN2_HI, z))
    r, w = _inverse(tl.fma(p, power(t), UNIT))
    return r * (w * UNIT)


@kernel
def sigmoid_bf16(x):
    """1 / (1 + exp(-x)) for a bfloat16."""
    return _logistic(clamp_high(clamp_low(x, -95.0), 30.0))


@kernel
def silu_bf16(x):
    """x * sigmoid(x) for a bfloat16; silu(-inf) is -0.0."""
    low = clamp_low(x, -100.0)
    return low * _logistic(clamp_high(low, 30.0))


@kernel
def gelu_tanh_bf16(x):
    """gelu with tanh for a bfloat16."""
    low = clamp_low(x, -11.0)
    z = low * tl.fma(low * low, 0.071354814, 1.5957692)
    return low * _logistic(clamp_high(z, 30.0))


@kernel
def softplus_bf16(x):
    """log(1 + exp(x)) for a bfloat16."""
    a = clamp_low(negate(tl.abs(x)), -95.0)
    t = tl.fma(a, LOG2E, ROUND_ONE + 14.0)
    p = _exp_minus(tl.fma(t - (ROUND_ONE + 14.0), LN2_HI, negate(a)))
    e = p * power(t)  # 2^14 times the exponential
    # Odd and even powers apart: two short chains.
    z = e * e
    odd = tl.fma(z, 0.014145363 / 2.0**98, 0.1492429 / 2.0**70)
    odd = tl.fma(odd, z, 0.33109808 / 2.0**42)
    odd = tl.fma(odd, z, 0.99999875 / 2.0**14)
    even = tl.fma(z, -0.06641645 / 2.0**84, -0.23505045 / 2.0**56)
    even = tl.fma(even, z, -0.49987012 / 2.0**28)
    positive = tl.maximum(x.to(tl.int32, bitcast=True), 0).to(tl.float32, bitcast=True)
    return tl.fma(even, z, tl.fma(odd, e, positive))


@kernel
def tanh_bf16(x):
    """Hyperbolic tangent for a bfloat16."""
    c = clamp_high(clamp_low(x, -3.6), 3.6)
    z = c * c
    p = tl.fma(z, 0.0017990563, 0.11872016)
    p = tl.fma(p, z, 0.9999999)
    q = tl.fma(z, 7.654051e-05, 0.019152628)
    q = tl.fma(q, z, 0.4520519)
    q = tl.fma(q, z, 1.0)
    r, w = _inverse(q)
    return ((c * p) * r) * w


@kernel
def erf_bf16(x):
    """Error function for a bfloat16."""
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
    """x * Phi(x) for a bfloat16: a * Phi(-a), a = |x|, is a * exp(-a^2 / 2) times Mills' ratio, p / q."""
    a = clamp_high(tl.abs(x), 14.5)
    s = a * a
    t = tl.fma(s, LOG2E / -2, ROUND_ONE + 32.0)
    e = tl.fma(t - (ROUND_ONE + 32.0), 2 * LN2_HI, s)
    g = tl.fma(e, 0.041514892 / 16, -0.16787522 / 8)
    g = tl.fma(g, e, 0.50003004 / 4)
    g = tl.fma(g, e, -0.9999668 / 2)
    g = tl.fma(g, e, 1.0)
    p = tl.fma(a, 0.01687827 / 2.0**32, 0.11882031 / 2.0**32)
    p = tl.fma(p, a, 0.36073428 / 2.0**32)
    p = tl.fma(p, a, 0.5 / 2.0**32)
    q = tl.fma(a, 0.042312987, 0.297624)
    q = tl.fma(q, a, 0.9500359)
    q = tl.fma(q, a, 1.5193373)
    q = tl.fma(q, a, 1.0)
    r, w = _inverse(q)
    # The smaller of the bits as unsigned integers: x itself, and -0.0 below zero.
    positive = tl.minimum(x.to(tl.uint32, bitcast=True), 0x80000000).to(tl.float32, bitcast=True)
    return tl.fma(negate(a * power(t)), ((p * g) * r) * w, positive)


@kernel
def _sine(r, flip):
    """sin(r) for |r| <= pi / 2; a `flip` of -2^31 negates it."""
    z = r * r
    s = tl.fma(z, -0.00018461222, 0.008311029)
    s = tl.fma(s, z, -0.16665486)
    s = tl.fma(s, z, 0.999999)
    return ((r * s).to(tl.int32, bitcast=True) + flip).to(tl.float32, bitcast=True)


@kernel
def _pick(word, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr):
    """One of four constants by its number."""
    low = tl.where(word == 0, tl.full(word.shape, a, tl.uint32), tl.full(word.shape, b, tl.uint32))
    high = tl.where(word == 2, tl.full(word.shape, c, tl.uint32), tl.full(word.shape, d, tl.uint32))
    return tl.where(word < 2, low, high)


@kernel
def _exact(x, y, quarter: tl.constexpr):
    """y, but from 2^17 on the sine of |x| + quarter * pi / 2^63, for a sine (quarter = 0) with the sign of x.

    |x| is an integer of 8 bits times a power of two: 64 bits of 1 / pi around it give |x| / pi modulo 2.
    """
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    m = (((size >> 16) & 0x7F) | 0x80).to(tl.int64)
    place = (size >> 23) - 134
    word = place >> 5
    shift = (place & 31).to(tl.uint32)
    w0 = _pick(word, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770)
    w1 = _pick(word, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566)
    w2 = _pick(word, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410)
    high = (w0 << shift) | ((w1 >> 1) >> (31 - shift))
    low = (w1 << shift) | ((w2 >> 1) >> (31 - shift))
    turns = m * ((high.to(tl.int64) << 32) | low.to(tl.int64)) + quarter
    flip = ((turns ^ (turns << 1)) >> 32).to(tl.int32)
    if quarter == 0:
        flip = flip ^ bits
    exact = _sine((turns << 1).to(tl.float32) * 1.7030608e-19, flip & -2147483648)  # pi / 2^64
    return tl.where((size >= HUGE) & (size < INFINITE), exact, y)


@kernel
def _with_huge(x, y, quarter: tl.constexpr):
    """As `_exact`. Tiles that hold no huge element do no more than find that out."""
    size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    if not size.type.is_block():
        if size >= HUGE:
            y = _exact(x, y, quarter)
    elif tl.max(size) >= HUGE:
        if size.numel < 4:
            y = _exact(x, y, quarter)
        else:
            # A quarter after the other, as in `math_trig`: all tiles pay for the registers.
            x0, x1, x2, x3 = quarters(x)
            y0, y1, y2, y3 = quarters(y)
            for _ in tl.range(0, 4, loop_unroll_factor=1):
                done = _exact(x0, y0, quarter)
                y0, y1, y2, y3 = y1, y2, y3, done
                x0, x1, x2, x3 = x1, x2, x3, x0
            y = tl.reshape(joined_halves(joined_halves(y0, y1), joined_halves(y2, y3)), y.shape)
    return y


@kernel
def sin_bf16(x):
    """Sine of a bfloat16."""
    t = tl.fma(x, INV_PI, ROUND)
    h = t - ROUND
    r = tl.fma(h, -PI_2, tl.fma(h, -PI_1, x))
    return _with_huge(x, _sine(r, t.to(tl.int32, bitcast=True) << 31), 0)


@kernel
def cos_bf16(x):
    """Cosine of a bfloat16."""
    t = tl.fma(x, INV_PI, -0.5) + ROUND
    h = (t - ROUND) + 0.5
    r = tl.fma(h, PI_2, tl.fma(h, PI_1, negate(x)))
    return _with_huge(x, _sine(r, t.to(tl.int32, bitcast=True) << 31), 0x4000000000000000)
