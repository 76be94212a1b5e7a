"""Sum of elements over axes: ``sum(x, axis=None, dtype=None, keepdims=False)``.

Shapes
    Any, any axes, any strides; an empty row sums to 0.
Dtypes
    bool and signed integers give int64, unsigned integers uint64 (sums wrap around); a float keeps its dtype.
    float16 and bfloat16 are summed in float32 and rounded once, float64 in float64. With `dtype`, the result has that
    dtype, and floats are summed in float32 or, for float64, in float64.
Errors
    AxisError for a bad or repeated axis, DTypeError for a storage-only dtype.
Accuracy
    The canonical order has a depth of about ``11 + n / 2048`` additions inside a group: the error is at most
    ``(11 + min(n, 65536) / 2048 + log2 of the groups) * 2^-24`` times the sum of magnitudes in float32.
Guarantee
    universal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.reduce import Reduction, add, integer_sum, keep, minus_zero, tree_sum
from nbxtensor.kernel.reduce_launch import KERNELS, reduce
from nbxtensor.ops._categories import check_tensor
from nbxtensor.tensor.tensor import Tensor


@kernel
def as_float32(x):
    return cast(x, tl.float32)


@kernel
def as_float64(x):
    return cast(x, tl.float64)


@kernel
def as_int64(x):
    return cast(x, tl.int64)


@kernel
def minus_zero32():
    return minus_zero(tl.float32)


@kernel
def minus_zero64():
    return minus_zero(tl.float64)


@kernel
def zero64():
    return tl.zeros((), tl.int64)


SUM32 = Reduction(as_float32, minus_zero32, add, tree_sum, keep, dtypes.float32, 0.0)
SUM64 = Reduction(as_float64, minus_zero64, add, tree_sum, keep, dtypes.float64, 0.0)
INTEGER_SUM = Reduction(as_int64, zero64, add, integer_sum, keep, dtypes.int64, 0)


def accumulated(x: DType, dtype: Any, function: str) -> DType:
    """Dtype of a sum or product of elements of `x`, by the standard; `dtype` overrides it."""
    if x.storage_only:
        raise DTypeError(function, "the dtype has no arithmetic", got=x, mend="convert with astype first")
    if dtype is not None:
        target = dtypes.dtype(dtype, function)
        if target.storage_only or target.is_bool:
            raise DTypeError(function, "no sum has this dtype", got=target, allowed="integers and floats")
        return target
    if x.is_float:
        return x
    return dtypes.uint64 if x.kind == "u" else dtypes.int64


def sum_of(result: DType) -> Reduction:
    """The sum whose result has the given dtype."""
    if not result.is_float:
        return INTEGER_SUM
    return SUM64 if result is dtypes.float64 else SUM32


def reference(
    x: "np.ndarray[Any, Any]", axis: Any = None, *, dtype: Any = None, keepdims: bool = False
) -> "np.ndarray[Any, Any]":
    wide = x.astype(np.float64) if x.dtype.kind not in "biu" else x
    return np.asarray(np.sum(wide, axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5, 7), np.float32), 1
    yield rng.standard_normal((2, 2049), np.float32), -1
    yield rng.integers(-100, 100, (17, 3), np.int8), None


@operator("sum", kernels=(*KERNELS, tree_sum), reference=reference, samples=samples)
def sum(x: Tensor, axis: int | Sequence[int] | None = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum over `axis` (None: all axes).

    Parameters
    ----------
    axis
        An axis, several, or None.
    dtype
        Dtype of the result; by default int64, uint64, or the float dtype of `x`.
    keepdims
        Whether reduced axes stay, with size 1.
    """
    result = accumulated(check_tensor("sum", x).dtype, dtype, "nbx.sum")
    return reduce("sum", sum_of(result), x, axis, keepdims, result)
