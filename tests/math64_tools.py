"""References for float64: 80-bit floats in bulk, mpmath where that is not enough, and distances in ULP."""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

Long = np.longdouble
Array = NDArray[np.float64]
LongArray = NDArray[np.longdouble]
SPLITTER = Long(2**32 + 1)


def exact(value: Any) -> tuple[np.longdouble, np.longdouble]:
    """An mpmath number as the sum of two long doubles."""
    high = Long(float(value))
    middle = Long(float(value - mp.mpf(float(value))))
    total = high + middle
    left = value - mp.mpf(float(value)) - mp.mpf(float(total - high))
    return total, Long(float(left))


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b in long double, and what rounding left out (Dekker)."""
    p = a * b
    big = SPLITTER * a
    ah = big - (big - a)
    big = SPLITTER * b
    bh = big - (big - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def total(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b in long double, and what rounding left out."""
    s = a + b
    other = s - a
    return s, (a - (s - other)) + (b - other)


def mills_series() -> LongArray:
    """Chebyshev coefficients of Phi(-t) * exp(t^2 / 2) * (t + 5) in z = (t - 5) / (t + 5) for -1 <= z <= 35 / 45."""
    count, top = 44, mp.mpf(35) / 45
    nodes = [mp.cos(mp.pi * (i + mp.mpf("0.5")) / count) for i in range(count)]
    values: list[Any] = []
    for x in nodes:
        z = (top - 1) / 2 + (top + 1) / 2 * x
        t = 5 * (1 + z) / (1 - z)
        values.append(mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2 * (t + 5))
    found: list[np.longdouble] = []
    for j in range(count):
        c = mp.fsum(v * mp.cos(mp.pi * j * (i + mp.mpf("0.5")) / count) for i, v in enumerate(values))
        high, low = exact(c * 2 / count)
        found.append(high + low)
    found[0] /= 2
    return np.array(found)


# Made once, here: the precision of mpmath is global, and the functions below run in many threads.
with mp.workdps(45):
    MILLS = mills_series()
    ROOT2, _ = exact(mp.sqrt(2))
    ERF_SLOPE, ERF_SLOPE_LOW = exact(2 / mp.sqrt(mp.pi))
    TANH_A, TANH_A_LOW = exact(2 * mp.sqrt(2 / mp.pi))
    TANH_B, TANH_B_LOW = exact(2 * mp.sqrt(2 / mp.pi) * mp.mpf("0.044715"))
    QUARTER_TURN, QUARTER_TURN_LOW = exact(mp.pi / 2)


def mills(t: LongArray) -> LongArray:
    """Phi(-t) * exp(t^2 / 2) for 0 <= t <= 40."""
    top = Long(35) / 45
    z = (t - 5) / (t + 5)
    x = (2 * z - (top - 1)) / (top + 1)
    a, b = np.zeros_like(t), np.zeros_like(t)
    for c in MILLS[:0:-1]:
        a, b = 2 * x * a - b + c, a
    return (x * a - b + MILLS[0]) / (t + 5)


def gauss(t: LongArray, factor: np.longdouble) -> LongArray:
    """exp(-factor * t^2) of a t that has 53 bits, for a power of two; t is split so that no rounding of t^2 counts."""
    high = t.astype(np.float32).astype(Long)
    return np.exp(-factor * high * high) * np.exp(-factor * (t - high) * (t + high))


def logistic(x: LongArray) -> LongArray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, Long(1), small) / (1 + small)


def silu(x: LongArray) -> LongArray:
    return np.where(x < -2000, Long(-0.0), x * logistic(np.maximum(x, -2000)))


def softplus(x: LongArray) -> LongArray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: LongArray) -> LongArray:
    size = np.minimum(np.abs(x), 7)
    square = np.minimum(size, 1) ** 2
    series = np.zeros_like(x)
    for k in range(30, 0, -1):
        series = (series + (-1) ** k / Long(2 * k + 1)) * square / k
    near = size * (ERF_SLOPE + (ERF_SLOPE * series + ERF_SLOPE_LOW))
    far = 1 - 2 * mills(size * ROOT2) * gauss(size, Long(1))
    return np.where(np.isnan(x), x, np.copysign(np.where(size < 1, near, far), x))


def gelu(x: LongArray) -> LongArray:
    t = np.minimum(np.abs(x), 40)
    return np.copysign(np.where(x > 12, x, np.where(x > 0, x, 0) - t * mills(t) * gauss(t, Long(0.5))), x)


def gelu_tanh(x: LongArray) -> LongArray:
    c = np.clip(x, -40, 40)
    square = c * c
    square_low = product(c, c)[1]
    p, p_low = product(square, TANH_B)
    s, lost = total(p, TANH_A)
    s_low = lost + p_low + square * TANH_B_LOW + square_low * TANH_B + TANH_A_LOW
    z, z_low = product(c, s)
    z_low = z_low + c * s_low
    small = np.exp(-np.abs(z))
    small = small - small * np.where(z >= 0, z_low, -z_low)
    y = c * np.where(z >= 0, Long(1), small) / (1 + small)
    return np.copysign(np.where(x > 12, x, y), x)


def rsqrt(x: LongArray) -> LongArray:
    return 1 / np.sqrt(x)


LONG: dict[str, Callable[..., LongArray]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": logistic,
    "silu": silu,
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def _mp_gelu_tanh(x: Any) -> Any:
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


def _mp_softplus(x: Any) -> Any:
    return (x if x > 0 else 0) + mp.log1p(mp.exp(-abs(x)))


EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": mp.exp,
    "expm1": mp.expm1,
    "log": mp.log,
    "log1p": mp.log1p,
    "sin": mp.sin,
    "cos": mp.cos,
    "tanh": mp.tanh,
    "erf": mp.erf,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "softplus": _mp_softplus,
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "gelu_tanh": _mp_gelu_tanh,
}
# Largest error in ULP found, rounded up (docs/accuracy.md).
LIMITS64: dict[str, float] = {
    "exp": 0.8,
    "expm1": 0.65,
    "log": 0.7,
    "log1p": 0.7,
    "sin": 0.75,
    "cos": 0.75,
    "tanh": 1.4,
    "erf": 1.65,
    "sigmoid": 0.85,
    "silu": 1.0,
    "softplus": 0.8,
    "gelu": 1.25,
    "gelu_tanh": 1.0,
    "pow": 0.8,
}


# Bits of the significand, exponent of the smallest subnormal, exponent of what stands for infinity.
FORMATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}


def ulp_long(got: NDArray[Any], want: LongArray, dtype: str = "float64") -> Array:
    """Distance of each result to its reference, in ULP of the reference's binade.

    Infinite where NaN meets a number, or where the signs differ (those of zeros too). Infinity counts as the number
    after the largest one, and what rounds to infinity as infinity.
    """
    digits, smallest, top = FORMATS[dtype]
    with np.errstate(all="ignore"):
        y = got.astype(np.longdouble)
        limit, last = np.ldexp(Long(1), top), np.ldexp(Long(1), top - digits)
        want = np.where(np.abs(want) >= limit - last / 2, np.copysign(limit, want), want)
        y = np.where(np.isinf(y), np.copysign(limit, y), y)
        unit = np.minimum(np.ldexp(Long(1), np.maximum(np.frexp(want)[1] - digits, smallest)), last)
        error = np.abs(y - want) / unit
        alike = (np.isnan(y) == np.isnan(want)) & (np.isnan(y) | (np.signbit(y) == np.signbit(want)))
        return np.where(alike, np.where(np.isnan(want), 0, error), np.inf).astype(np.float64)


def ulp_exact(got: Array, x: Array, function: Callable[..., Any], *others: Array) -> Array:
    """As `ulp_long`, against mpmath with 200 bits, for finite arguments with finite results."""
    errors = np.zeros(len(got))
    with mp.workprec(200):
        for i, values in enumerate(zip(x.tolist(), *(o.tolist() for o in others), strict=True)):
            want = function(*map(mp.mpf, values))
            # Arguments close to a zero of the function.
            if want and abs(want) < mp.mpf(2) ** -80:
                with mp.workprec(400):
                    want = function(*map(mp.mpf, values))
            unit = mp.ldexp(1, max(mp.frexp(want)[1] - 53, -1074))
            y = mp.mpf(float(got[i])) if np.isfinite(got[i]) else mp.sign(float(got[i])) * mp.ldexp(1, 1024)
            errors[i] = float(abs(y - want) / min(unit, mp.ldexp(1, 971)))
    return errors
