"""All 2^32 arguments of functions of nbxtensor.kernel.math on a device: ``python tools/exhaustive.py [NAME...]``.

By default it prints the largest error in ULP against float64, its argument, and the share that is not correctly
rounded. ``--hash`` prints a hash of all results instead (any NaN counts as the same): equal on every device.
"""

import argparse
import hashlib
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import nbxtensor as nbx
from nbxtensor.base.dtypes import float32
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel.pointwise import pointwise

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from math_tools import REFERENCES

Doubles = NDArray[np.float64]
CHUNK = 1 << 22


def _stable(x: Doubles, core: Callable[[Doubles], Doubles]) -> Doubles:
    """1 / (1 + exp(-x)) times `core`, without overflow."""
    small = np.exp(-np.abs(x))
    return core(x) * np.where(x >= 0, 1.0, small) / (1.0 + small)


def _elementwise(name: str) -> Callable[[Doubles], Doubles]:
    def one(x: float) -> float:
        try:
            return REFERENCES[name](x)
        except (OverflowError, ValueError):
            return math.inf if x == x else math.nan

    return np.vectorize(one, otypes=[np.float64])


def reference(name: str) -> Callable[[Doubles], Doubles]:
    """The float64 function: NumPy's where it has one, else one call per element (slow)."""
    if name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tanh"):
        return getattr(np, name)
    if name == "sigmoid":
        return lambda x: _stable(x, np.ones_like)
    if name == "silu":
        return lambda x: np.where(x < -1000.0, -0.0, np.where(x > 1000.0, x, _stable(x, np.copy)))
    if name == "softplus":
        return lambda x: np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return _elementwise(name)


def results(name: str, device: str, step: int):
    """Arguments and results, a chunk at a time."""
    fn = getattr(device_math, name)
    for start in range(0, 2**32, CHUNK * step):
        codes = np.arange(start, min(start + CHUNK * step, 2**32), step, dtype=np.uint64).astype(np.uint32)
        x = codes.view(np.float32)
        y = pointwise(name, fn, (nbx.asarray(x, device=device),), (float32,), float32)
        yield x, np.asarray(y.to_device("cpu"))


def digest(name: str, device: str, step: int) -> str:
    """Hash of all results, NaN made equal."""
    total = hashlib.blake2b(digest_size=16)
    for _, y in results(name, device, step):
        total.update(np.where(np.isnan(y), np.float32(np.nan), y).tobytes())
    return total.hexdigest()


def measure(name: str, device: str, step: int) -> str:
    """One line: largest error, its argument, share not correctly rounded, results that are of the wrong kind."""
    exact = reference(name)
    worst, where, wrong, faults, count = 0.0, np.float32(0), 0, 0, 0
    with np.errstate(all="ignore"):
        for x, y in results(name, device, step):
            want = exact(x.astype(np.float64))
            nearest = want.astype(np.float32)
            differs = (y.view(np.uint32) != nearest.view(np.uint32)) & ~(np.isnan(y) & np.isnan(nearest))
            unlike = differs & (np.isnan(y) | np.isnan(nearest) | (np.signbit(y) != np.signbit(nearest)))
            wrong, faults, count = wrong + int(differs.sum()), faults + int(unlike.sum()), count + len(x)
            want = np.clip(want, -(2.0**128), 2.0**128)
            unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 24, -149))
            got = np.where(np.isinf(y), np.copysign(2.0**128, y.astype(np.float64)), y)
            error = np.where(np.isfinite(want) & ~unlike, np.abs(got - want) / unit, 0.0)
            top = int(np.argmax(error))
            if error[top] > worst:
                worst, where = float(error[top]), x[top]
    return f"{name}: {worst:.4f} ULP at {where!r}, {100 * wrong / count:.3f} % not correctly rounded, {faults} faults"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=sorted(REFERENCES), metavar="NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--step", type=int, default=1, help="take every N-th argument")
    parser.add_argument("--hash", action="store_true", help="print a hash of the results instead of their error")
    options = parser.parse_args()
    for name in options.names:
        if options.hash:
            print(f"{name}: {digest(name, options.device, options.step)}", flush=True)
        else:
            print(measure(name, options.device, options.step), flush=True)


if __name__ == "__main__":
    main()
