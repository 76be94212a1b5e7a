"""What each generated operation means, in NumPy: exact integer wraparound, floats rounded step by step."""

from fractions import Fraction

import ml_dtypes
import numpy as np

NUMPY = {
    "i1": np.dtype(bool),
    **{f"{s}{n}": np.dtype(f"{s}{n // 8}") for s in "iu" for n in (8, 16, 32, 64)},
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
}
LANGUAGE = {
    "i1": "tl.int1",
    **{f"i{n}": f"tl.int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"tl.uint{n}" for n in (8, 16, 32, 64)},
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp32": "tl.float32",
    "fp64": "tl.float64",
}
FLOATS = ("fp16", "bf16", "fp32", "fp64")
INTS = tuple(name for name in NUMPY if name[0] in "iu" and name != "i1")
BITS = {name: 1 if name == "i1" else NUMPY[name].itemsize * 8 for name in NUMPY}


def wide(a: np.ndarray) -> np.ndarray:
    """16-bit floats as float32: that is how they are computed with."""
    return a.astype(np.float32) if a.dtype in (NUMPY["fp16"], NUMPY["bf16"]) else a


def rounded(operation, *operands: np.ndarray) -> np.ndarray:
    """`operation` on `operands` of one dtype, the result rounded to that dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(operation(*map(wide, operands))).astype(operands[0].dtype)


def add(a, b):
    return rounded(np.add, a, b)


def subtract(a, b):
    return rounded(np.subtract, a, b)


def multiply(a, b):
    return rounded(np.multiply, a, b)


def divide(a, b):
    return rounded(np.divide, a, b)


def square_root(a):
    return rounded(np.sqrt, a)


def _fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The product of two float32 is exact in float64; the sum is rounded to odd there, so float32 rounds it once."""
    p, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    bits = np.asarray(s).view(np.int64)
    inexact = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (s > 0)
    odd = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    return odd.view(np.float64).astype(np.float32)


def _fma64(a: float, b: float, c: float) -> float:
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)) or a == 0 or b == 0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once."""
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        if a.dtype == np.float64:
            return np.vectorize(_fma64, otypes=[np.float64])(a, b, c)
        return _fma32(a, b, c)


def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One ascending chain of fma that starts from `c`."""
    for k in range(a.shape[1]):
        c = fma(a[:, k : k + 1], b[k : k + 1, :], c)
    return c


def _choose(larger: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iub":
        return np.maximum(a, b) if larger else np.minimum(a, b)
    with np.errstate(all="ignore"):
        first = a > b if larger else a < b
        tie = (a == b) & (np.signbit(a) != larger)
    return np.where(first | tie, a, b)


def number_extreme(larger: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maximum or minimum that prefers a number to a NaN; -0.0 lies below 0.0."""
    if a.dtype.kind in "iub":
        return _choose(larger, a, b)
    chosen = _choose(larger, a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))


def nan_extreme(larger: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maximum or minimum that passes NaN on."""
    chosen = _choose(larger, a, b)
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, chosen))


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer division toward zero."""
    q = a // b
    with np.errstate(all="ignore"):
        r = a - q * b
        return (q + ((r != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder of `quotient`: it has the sign of `a`."""
    with np.errstate(all="ignore"):
        return (a - quotient(a, b) * b).astype(a.dtype)


def cast(a: np.ndarray, dtype: str) -> np.ndarray:
    """Conversion of a value that `dtype` can hold, or of an integer, which wraps."""
    with np.errstate(all="ignore"):
        if dtype == "i1":
            return a != 0
        return np.asarray(a).astype(NUMPY[dtype])


def bitcast(a: np.ndarray, dtype: str) -> np.ndarray:
    """The same bits as another type."""
    return np.ascontiguousarray(a).view(NUMPY[dtype]).reshape(np.shape(a))


def reduce(operation, a: np.ndarray, axis: int) -> np.ndarray:
    """`operation` applied along an axis, first to last."""
    parts = np.moveaxis(a, axis, 0)
    total = parts[0]
    for part in parts[1:]:
        total = operation(total, part)
    return total


def scan(operation, a: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """Running results of `operation` along an axis."""
    parts = list(np.moveaxis(a, axis, 0))
    if reverse:
        parts.reverse()
    done = [parts[0]]
    for part in parts[1:]:
        done.append(operation(done[-1], part))
    if reverse:
        done.reverse()
    return np.moveaxis(np.stack(done), 0, axis)


def random_values(rng: np.random.Generator, dtype: str, n: int, tame: bool) -> np.ndarray:
    """Inputs: small numbers and, unless `tame`, special values and every exponent."""
    kind = NUMPY[dtype]
    if dtype == "i1":
        return rng.random(n) < 0.5
    if dtype in INTS:
        info = np.iinfo(kind)
        if tame:
            return rng.integers(max(info.min, -20), 21, n, dtype=kind)
        values = rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
        edges = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], kind)
        return np.where(rng.random(n) < 0.1, rng.choice(edges, n), values)
    if tame:
        return rng.integers(-8, 9, n).astype(np.float32).astype(kind)
    values = rng.standard_normal(n)
    raw = rng.integers(0, 256, (n, kind.itemsize), dtype=np.uint8).view(kind)[:, 0]
    info = ml_dtypes.finfo(kind)
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, np.nan, 1.0, -1.0, float(info.max), float(info.smallest_subnormal)]
    )
    pick = rng.random(n)
    with np.errstate(all="ignore"):
        out = values.astype(kind)
        out = np.where(pick < 0.15, raw, out)
        return np.where(pick > 0.7, rng.choice(edges, n).astype(kind), out)


def literal(g, dtype: str) -> tuple[str, np.ndarray]:
    """A constant that `dtype` holds, and its text."""
    if dtype in INTS:
        low = 0 if dtype[0] == "u" else -100
        value = int(g.rng.integers(low, 101))
        return str(value), np.asarray(value, NUMPY[dtype])
    value = g.pick([0.0, 1.0, -1.5, 3.0, -7.0, 0.1, 1e-3, float(g.rng.standard_normal())])
    value = float(np.float32(value))  # a literal is a float32 to Triton, whatever it meets
    return repr(value), np.asarray(value, np.float64).astype(NUMPY[dtype])
