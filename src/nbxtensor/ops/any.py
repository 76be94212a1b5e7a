"""Whether any or all elements over axes are true: ``any(x, axis=None, keepdims=False)`` and ``all``.

Shapes
    Any, any axes, any strides; over no elements `any` is False and `all` is True.
Dtypes
    All that have arithmetic: an element is true unless it is 0 (NaN is true). The result is bool.
Errors
    AxisError for a bad or repeated axis, DTypeError for a storage-only dtype.
Guarantee
    universal; exact.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.reduce import Reduction
from nbxtensor.kernel.reduce_launch import KERNELS, reduce
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.max import greater, largest, less, smallest
from nbxtensor.tensor.tensor import Tensor


@kernel
def is_true(x):
    return cast(x, tl.int1).to(tl.int32)


@kernel
def zero():
    return tl.full((), 0, tl.int32)


@kernel
def one():
    return tl.full((), 1, tl.int32)


@kernel
def not_zero(value, n):
    return value != 0


ANY = Reduction(is_true, zero, greater, largest, not_zero, dtypes.int32, False)
ALL = Reduction(is_true, one, less, smallest, not_zero, dtypes.int32, True)


def reference_any(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.any(x, axis=axis, keepdims=keepdims))


def reference_all(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.all(x, axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.random((40, 5, 7)) < 0.02, 0
    yield rng.random((40, 5, 7)) < 0.98, 0
    yield rng.integers(0, 3, (3, 2050), np.int8), 1


def _check(x: Tensor, name: str) -> None:
    if check_tensor(name, x).dtype.storage_only:
        raise DTypeError(f"nbx.{name}", "the dtype has no arithmetic", got=x.dtype, mend="convert with astype first")


@operator("any", kernels=(*KERNELS, is_true, largest), reference=reference_any, samples=samples)
def any(x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Whether any element over `axis` (None: all axes) is not 0.

    Parameters
    ----------
    axis
        An axis, several, or None.
    keepdims
        Whether reduced axes stay, with size 1.
    """
    _check(x, "any")
    return reduce("any", ANY, x, axis, keepdims, dtypes.bool_)


@operator("all", kernels=(*KERNELS, is_true, smallest), reference=reference_all, samples=samples)
def all(x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Whether all elements over `axis` (None: all axes) are not 0. See `any` for the parameters."""
    _check(x, "all")
    return reduce("all", ALL, x, axis, keepdims, dtypes.bool_)
