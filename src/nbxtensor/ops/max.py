"""Largest and smallest element over axes: ``max(x, axis=None, keepdims=False)`` and ``min``.

Shapes
    Any, any axes, any strides.
Dtypes
    All that have arithmetic, bool included; the result has the dtype of `x`.
Errors
    ArgumentError where a row is empty, AxisError for a bad or repeated axis, DTypeError for a storage-only dtype.
Special values
    A NaN in a row gives NaN; -0.0 is below 0.0.
Guarantee
    universal; exact.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError
from nbxtensor.base.shapes import normalize_axes
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.order import (
    highest32,
    highest64,
    key_to_float32,
    key_to_float64,
    key_to_uint64,
    largest_key,
    lowest32,
    lowest64,
    smallest_key,
)
from nbxtensor.kernel.reduce import Reduction, keep
from nbxtensor.kernel.reduce_launch import KERNELS, reduce
from nbxtensor.ops._categories import check_tensor
from nbxtensor.tensor.tensor import Tensor


@kernel
def greater(a, b):
    return tl.maximum(a, b)


@kernel
def less(a, b):
    return tl.minimum(a, b)


@kernel
def largest(x, AXIS: tl.constexpr):
    return tl.max(x, AXIS)


@kernel
def smallest(x, AXIS: tl.constexpr):
    return tl.min(x, AXIS)


def key_dtype(x: DType) -> DType:
    """Dtype of the keys of `x`, see `nbxtensor.kernel.order`."""
    return dtypes.int64 if x.itemsize == 8 or x is dtypes.uint32 else dtypes.int32


@cache
def extremum(x: DType, maximum: bool) -> Reduction:
    """The maximum or minimum of elements of dtype `x`."""
    key = key_dtype(x)
    if x.is_float:
        finish = key_to_float64 if x.itemsize == 8 else key_to_float32
    else:
        finish = key_to_uint64 if x is dtypes.uint64 else keep
    if maximum:
        identity = lowest64 if key is dtypes.int64 else lowest32
        return Reduction(largest_key, identity, greater, largest, finish, key, 0)
    identity = highest64 if key is dtypes.int64 else highest32
    return Reduction(smallest_key, identity, less, smallest, finish, key, 0)


def check_rows(x: Tensor, axis: Any, name: str) -> None:
    """Raise unless every row along `axis` has an element and the dtype an order."""
    if check_tensor(name, x).dtype.storage_only:
        raise DTypeError(f"nbx.{name}", "the dtype has no order", got=x.dtype, mend="convert with astype first")
    axes = normalize_axes(axis, x.ndim, f"nbx.{name}")
    if any(x.shape[d] == 0 for d in axes):
        raise ArgumentError(f"nbx.{name}", "there is no element to choose from", got=f"shape {x.shape}, axis {axis}")


def reference_max(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims))


def reference_min(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5, 7), np.float32), 1
    yield rng.standard_normal((2, 2049), np.float32), -1
    yield rng.integers(-100, 100, (17, 3), np.int8), None


@operator("max", kernels=(*KERNELS, largest_key, largest), reference=reference_max, samples=samples)
def max(x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Largest element over `axis` (None: all axes); NaN if there is one.

    Parameters
    ----------
    axis
        An axis, several, or None.
    keepdims
        Whether reduced axes stay, with size 1.
    """
    check_rows(x, axis, "max")
    return reduce("max", extremum(x.dtype, True), x, axis, keepdims, x.dtype)


@operator("min", kernels=(*KERNELS, smallest_key, smallest), reference=reference_min, samples=samples)
def min(x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Smallest element over `axis` (None: all axes); NaN if there is one. See `max` for the parameters."""
    check_rows(x, axis, "min")
    return reduce("min", extremum(x.dtype, False), x, axis, keepdims, x.dtype)
