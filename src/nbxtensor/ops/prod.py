"""Product of elements over axes: ``prod(x, axis=None, dtype=None, keepdims=False)``.

Shapes
    Any, any axes, any strides; the product over no elements is 1.
Dtypes
    As for `sum`: integers give int64 or uint64 and wrap around, float16 and bfloat16 are multiplied in float32 and
    rounded once.
Errors
    AxisError for a bad or repeated axis, DTypeError for a storage-only dtype.
Accuracy
    ``n - 1`` roundings of half an ULP each, in the order of the canonical sum.
Guarantee
    universal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.reduce import Reduction, keep, multiply, tree_product
from nbxtensor.kernel.reduce_launch import KERNELS, reduce
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.sum import accumulated, as_float32, as_float64, as_int64
from nbxtensor.tensor.tensor import Tensor


@kernel
def one32():
    return tl.full((), 1.0, tl.float32)


@kernel
def one64():
    return tl.full((), 1.0, tl.float64)


@kernel
def one_int64():
    return tl.full((), 1, tl.int64)


PRODUCT32 = Reduction(as_float32, one32, multiply, tree_product, keep, dtypes.float32, 1.0)
PRODUCT64 = Reduction(as_float64, one64, multiply, tree_product, keep, dtypes.float64, 1.0)
INTEGER_PRODUCT = Reduction(as_int64, one_int64, multiply, tree_product, keep, dtypes.int64, 1)


def product_of(result: DType) -> Reduction:
    """The product whose result has the given dtype."""
    if not result.is_float:
        return INTEGER_PRODUCT
    return PRODUCT64 if result is dtypes.float64 else PRODUCT32


def reference(
    x: "np.ndarray[Any, Any]", axis: Any = None, *, dtype: Any = None, keepdims: bool = False
) -> "np.ndarray[Any, Any]":
    wide = x.astype(np.float64) if x.dtype.kind not in "biu" else x
    return np.asarray(np.prod(wide, axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.uniform(0.5, 1.5, (3, 5, 7)).astype(np.float32), 1
    yield rng.integers(-100, 100, (17, 3), np.int8), 0


@operator("prod", kernels=(*KERNELS, tree_product), reference=reference, samples=samples)
def prod(x: Tensor, axis: int | Sequence[int] | None = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product over `axis` (None: all axes); see `sum` for the parameters."""
    result = accumulated(check_tensor("prod", x).dtype, dtype, "nbx.prod")
    return reduce("prod", product_of(result), x, axis, keepdims, result)
