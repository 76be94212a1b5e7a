"""Mean of elements over axes: ``mean(x, axis=None, keepdims=False)``, the canonical sum divided by the count.

Shapes
    Any, any axes, any strides; the mean of no elements is NaN.
Dtypes
    Floats; float16 and bfloat16 are computed in float32 and rounded once.
Errors
    AxisError for a bad or repeated axis, DTypeError for integers, bool and storage-only dtypes.
Accuracy
    That of `sum`, and one more rounding.
Guarantee
    universal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.reduce import Reduction, add, tree_sum
from nbxtensor.kernel.reduce_launch import KERNELS, reduce
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.sum import as_float32, as_float64, minus_zero32, minus_zero64
from nbxtensor.tensor.tensor import Tensor


@kernel
def divided32(value, n):
    return tl.div_rn(value, n.to(tl.float32))


@kernel
def divided64(value, n):
    return value / n.to(tl.float64)


MEAN32 = Reduction(as_float32, minus_zero32, add, tree_sum, divided32, dtypes.float32, float("nan"))
MEAN64 = Reduction(as_float64, minus_zero64, add, tree_sum, divided64, dtypes.float64, float("nan"))


def reference(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.mean(x.astype(np.float64), axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5, 7), np.float32), 1
    yield rng.standard_normal((2, 2049), np.float32), -1


@operator("mean", kernels=(*KERNELS, tree_sum, divided32), reference=reference, samples=samples)
def mean(x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Mean over `axis` (None: all axes) of a tensor of floats.

    Parameters
    ----------
    axis
        An axis, several, or None.
    keepdims
        Whether reduced axes stay, with size 1.
    """
    if not check_tensor("mean", x).dtype.is_float or x.dtype.storage_only:
        raise DTypeError(
            "nbx.mean",
            "a mean is taken of floats",
            got=x.dtype,
            allowed=map(str, dtypes.FLOATS),
            mend="use astype first",
        )
    return reduce("mean", MEAN64 if x.dtype is dtypes.float64 else MEAN32, x, axis, keepdims, x.dtype)
