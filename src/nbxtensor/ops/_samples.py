"""Sample inputs for the tests of elementwise operators: NumPy arrays on the line, near zero, of every magnitude."""

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
INF = float("inf")
NAN = float("nan")


def line(rng: np.random.Generator, low: float = -30.0, high: float = 30.0, n: int = 4097) -> Array:
    """Evenly spread values between `low` and `high`."""
    return rng.uniform(low, high, n).astype(np.float32)


def magnitudes(rng: np.random.Generator, n: int = 4097) -> Array:
    """Values of every exponent of float32, of both signs, subnormals included."""
    bits = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(bits), bits, np.float32(1.0))


def singles(rng: np.random.Generator) -> Iterator[tuple[Array]]:
    """Operands for functions of one value."""
    yield (line(rng),)
    yield (line(rng, -1.0, 1.0),)
    yield (magnitudes(rng),)


def doubles(rng: np.random.Generator, n: int = 4097) -> Array:
    """Values of every exponent of float64, of both signs, subnormals included."""
    bits = rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)
    return np.where(np.isfinite(bits), bits, 1.0)


def reals(rng: np.random.Generator) -> Iterator[tuple[Array]]:
    """Operands for mathematical functions of one value: those of `singles`, and some that only float64 holds."""
    yield from singles(rng)
    yield (rng.uniform(-750.0, 750.0, 4097),)
    yield (doubles(rng),)


def positives(rng: np.random.Generator) -> Iterator[tuple[Array]]:
    """Operands for functions of one value that is not negative."""
    for (x,) in reals(rng):
        yield (np.abs(x),)


def pairs(rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Operands for functions of two values, equal pairs and small integers among them."""
    yield line(rng), line(rng)
    yield magnitudes(rng), magnitudes(rng)
    small = np.round(line(rng, -4.0, 4.0))
    yield small, np.round(line(rng, -4.0, 4.0))
