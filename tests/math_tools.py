"""Running functions of nbxtensor.kernel.math over arrays, and their float64 references."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import nbxtensor as nbx
from nbxtensor.base.dtypes import DType
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.kernel.pointwise import pointwise

Array = NDArray[np.generic]
Scalar = Callable[[float], float]


def apply(device: str, fn: KernelFunction, *arrays: Array, compute: DType, result: DType) -> Array:
    """`fn` of every element, seen as `compute`, the result as `result`."""
    operands = tuple(nbx.asarray(a, device=device) for a in arrays)
    y = pointwise(fn.name, fn, operands, (compute,) * len(operands), result)
    return np.asarray(y.to_device("cpu"))


def each(f: Callable[..., float], *xs: Array) -> NDArray[np.float64]:
    """`f` of every element in float64; what overflows is infinite, what has no value is NaN."""

    def one(*values: float) -> float:
        try:
            return f(*values)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    with np.errstate(invalid="ignore"):  # signalling NaN
        columns = [x.astype(np.float64).tolist() for x in xs]
    return np.array([one(*values) for values in zip(*columns, strict=True)])


def log_of(f: Scalar, edge: float) -> Scalar:
    """A logarithm that is -inf at `edge` instead of an error."""
    return lambda x: -math.inf if x == edge else f(x)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def silu(x: float) -> float:
    return -0.0 if x < -700 else x * sigmoid(x)


def softplus(x: float) -> float:
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def gelu(x: float) -> float:
    return x if x > 40 else -0.0 if x < -40 else 0.5 * x * math.erfc(-x * math.sqrt(0.5))


def gelu_tanh(x: float) -> float:
    if abs(x) > 40:
        return x if x > 0 else -0.0
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


REFERENCES: dict[str, Scalar] = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "expm1": math.expm1,
    "log": log_of(math.log, 0.0),
    "log2": log_of(math.log2, 0.0),
    "log1p": log_of(math.log1p, -1.0),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": sigmoid,
    "silu": silu,
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}
# Largest error in ULP over all 2^32 arguments, rounded up (docs/decisions/003-mathematics.md).
LIMITS: dict[str, float] = {
    "exp": 0.98,
    "exp2": 0.89,
    "expm1": 1.47,
    "log": 0.92,
    "log2": 0.98,
    "log1p": 1.46,
    "sin": 1.48,
    "cos": 1.48,
    "tanh": 1.23,
    "erf": 1.06,
    "sigmoid": 1.03,
    "silu": 1.19,
    "softplus": 1.49,
    "gelu": 3.62,
    "gelu_tanh": 1.75,
}
