"""Elements by index: ``take(x, indices, axis)``, ``take_along_axis(x, indices, axis)`` and ``gather_nd(x, indices)``.

Shapes
    take: the axis of `x` is replaced by the shape of `indices`. take_along_axis: `indices` has as many axes as `x` and
    broadcasts with it but for `axis`. gather_nd: the last axis of `indices` (size q) indexes q axes of `x` after
    `batch_dims` common ones; the rest of `x` follows. Any strides.
Dtypes
    All for `x`; raw bits are kept. Integers for `indices`; negative ones count from the end.
Errors
    IndexingError for an index out of bounds where the host can read the device's memory (the CPU), and on every device
    for an empty axis; elsewhere such an index is moved to its nearest end. DTypeError, AxisError, ShapeError,
    DeviceError.
Guarantee
    universal; exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.base.shapes import broadcast_shapes, broadcast_strides, normalize_axis
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.gather import check_bounds, check_index, gather, gather_kernel
from nbxtensor.tensor.check import check_count
from nbxtensor.tensor.tensor import Tensor, empty


def reference_take(x: "np.ndarray[Any, Any]", indices: "np.ndarray[Any, Any]", axis: int | None = None) -> Any:
    return np.take(x, indices, axis=axis)


def samples_take(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((9, 33), np.float32), rng.integers(-9, 9, 20), 0
    yield rng.standard_normal((9, 33), np.float32), rng.integers(-33, 33, 5), 1


@operator("take", kernels=(gather_kernel,), reference=reference_take, samples=samples_take)
def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """Elements of `x` at `indices` along `axis`.

    Parameters
    ----------
    indices
        Integers of any shape, which replaces the axis.
    axis
        May be left out for a 1-D tensor.

    Raises
    ------
    IndexingError
        If an index is outside ``-n`` to ``n - 1`` (n: size of the axis), where the host can read the indices, as on the
        CPU; on every device if the axis is empty.

    Notes
    -----
    The host looks at all indices before the launch. Those on a GPU it could see only after waiting for the work queued
    there, so no check is made: an index that is too large gives the last element, one that is too small the first, and
    nothing outside `x` is read. Check indices of unknown origin before they move to the GPU.
    """
    check_index("take", indices, x)
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError("nbx.take", "axis may be left out for a 1-D tensor only", got=f"{x.ndim} axes")
        axis = 0
    a = normalize_axis(axis, x.ndim, "nbx.take")
    shape = (*x.shape[:a], *indices.shape, *x.shape[a + 1 :])
    out = empty(shape, x.dtype, x.device)
    if out.size:
        check_bounds("take", indices, x.shape[a])
    none = (0,) * indices.ndim
    x_strides = (*x.strides[:a], *none, *x.strides[a + 1 :])
    index_strides = (*(0,) * a, *indices.strides, *(0,) * (x.ndim - a - 1))
    gather("take", x, x_strides, indices, index_strides, (a,), out)
    return out


def reference_take_along_axis(x: "np.ndarray[Any, Any]", indices: "np.ndarray[Any, Any]", axis: int = -1) -> Any:
    return np.take_along_axis(x, indices, axis=axis)


def samples_take_along_axis(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((9, 33), np.float32), rng.integers(-9, 9, (4, 33)), 0
    yield rng.standard_normal((9, 33), np.float32), rng.integers(0, 33, (9, 5)), -1


@operator(
    "take_along_axis", kernels=(gather_kernel,), reference=reference_take_along_axis, samples=samples_take_along_axis
)
def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    """Elements of `x` at `indices` along `axis`, another index for every position of the other axes.

    Parameters
    ----------
    indices
        Integers with as many axes as `x`; the other axes broadcast. What is out of bounds is treated as by `take`.
    axis
        The axis that is indexed.
    """
    function = "nbx.take_along_axis"
    check_index("take_along_axis", indices, x)
    if indices.ndim != x.ndim:
        raise ShapeError(function, "x and the indices differ in rank", got=f"{x.shape} and {indices.shape}")
    a = normalize_axis(axis, x.ndim, function)
    others = broadcast_shapes((*x.shape[:a], 1, *x.shape[a + 1 :]), (*indices.shape[:a], 1, *indices.shape[a + 1 :]))
    shape = (*others[:a], indices.shape[a], *others[a + 1 :])
    out = empty(shape, x.dtype, x.device)
    if out.size:
        check_bounds("take_along_axis", indices, x.shape[a])
    fixed = (*x.shape[:a], 1, *x.shape[a + 1 :])
    steps = (*x.strides[:a], 0, *x.strides[a + 1 :])
    x_strides = broadcast_strides(fixed, steps, shape, function)
    index_strides = broadcast_strides(indices.shape, indices.strides, shape, function)
    gather("take_along_axis", x, x_strides, indices, index_strides, (a,), out)
    return out


def reference_gather_nd(x: "np.ndarray[Any, Any]", indices: "np.ndarray[Any, Any]", batch_dims: int = 0) -> Any:
    lead = np.ogrid[tuple(slice(n) for n in x.shape[:batch_dims])] if batch_dims else ()
    extra = indices.ndim - 1 - batch_dims
    lead = tuple(i.reshape(i.shape + (1,) * extra) for i in lead)
    return x[(*lead, *np.moveaxis(indices, -1, 0))]


def samples_gather_nd(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((4, 5, 6), np.float32), rng.integers(-4, 4, (3, 2))
    yield rng.standard_normal((4, 5, 6), np.float32), rng.integers(0, 5, (4, 7, 1)), 1


@operator("gather_nd", kernels=(gather_kernel,), reference=reference_gather_nd, samples=samples_gather_nd)
def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Elements or slices of `x` at index tuples.

    Parameters
    ----------
    indices
        Integers; its last axis holds one index for each of the axes of `x` that follow the batch axes. What is out of
        bounds is treated as by `take`.
    batch_dims
        Leading axes that `x` and `indices` have in common.
    """
    function = "nbx.nn.gather_nd"
    check_index("gather_nd", indices, x)
    batch_dims = check_count(batch_dims, function, "batch_dims")
    if not 0 <= batch_dims < max(1, min(x.ndim, indices.ndim)) or indices.ndim == 0:
        raise ArgumentError(function, "bad batch_dims", got=batch_dims, allowed="0 to below both ranks")
    count = indices.shape[-1]
    if not 1 <= count <= x.ndim - batch_dims:
        raise ShapeError(
            function,
            "the last axis of the indices does not fit",
            got=f"size {count}",
            allowed=f"1 to {x.ndim - batch_dims}",
        )
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ShapeError(function, "the batch axes differ", got=f"{x.shape} and {indices.shape}")
    first = batch_dims + count
    middle = indices.shape[batch_dims:-1]
    shape = (*x.shape[:batch_dims], *middle, *x.shape[first:])
    out = empty(shape, x.dtype, x.device)
    axes = tuple(range(batch_dims, first))
    if out.size:
        for c, a in enumerate(axes):
            check_bounds("nn.gather_nd", indices[..., c], x.shape[a])
    x_strides = (*x.strides[:batch_dims], *(0,) * len(middle), *x.strides[first:])
    index_strides = (*indices.strides[:-1], *(0,) * (x.ndim - first))
    gather("nn.gather_nd", x, x_strides, indices, index_strides, axes, out, indices.strides[-1])
    return out
