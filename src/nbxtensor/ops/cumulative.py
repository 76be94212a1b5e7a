"""Running sums, products, maxima and minima: ``cumulative_sum(x, axis=None, dtype=None, include_initial=False)``, ...

Shapes
    Any, one axis, any strides; the result has the shape of `x`, one longer along the axis with ``include_initial``.
Dtypes
    Sums and products as for `sum`: integers give int64 or uint64 and wrap around, float16 and bfloat16 are carried in
    float32 and rounded once for each element. Maxima and minima keep the dtype.
Errors
    AxisError for a bad axis, or none where `x` has not one axis; DTypeError for a dtype without arithmetic or an `out`
    of another dtype, ShapeError for an `out` of another shape.
Special values
    A NaN stays in all results from its place on. Maxima and minima order -0.0 below 0.0.
Accuracy
    Prefixes are combined in blocks of 16, 256, 4,096, ... elements (see `nbxtensor.kernel.scan`): about
    ``16 * log16(n)`` roundings for n elements.
Guarantee
    universal.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import ARITHMETIC, DType
from nbxtensor.base.errors import AxisError
from nbxtensor.base.shapes import normalize_axis
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.pointwise import check_out
from nbxtensor.kernel.reduce import Reduction
from nbxtensor.kernel.scan import scan
from nbxtensor.kernel.scan_kernels import cumulative_serial_kernel, cumulative_tile_kernel
from nbxtensor.ops._categories import check_dtype, check_tensor
from nbxtensor.ops.max import extremum
from nbxtensor.ops.prod import product_of
from nbxtensor.ops.sum import accumulated, sum_of
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.memory import check_writable, separate
from nbxtensor.tensor.tensor import Tensor, new

KERNELS = (cumulative_tile_kernel, cumulative_serial_kernel)
INF, NAN = float("inf"), float("nan")


def _cumulative(
    name: str,
    x: Tensor,
    axis: int | None,
    reduction: Reduction,
    result: DType,
    initial: bool | int | float | None,
    out: Tensor | None,
) -> Tensor:
    function = f"nbx.{name}"
    if axis is None:
        if x.ndim != 1:
            raise AxisError(function, "which axis?", got=f"shape {x.shape}", mend="give one; only 1-d needs none")
        axis = 0
    axis = normalize_axis(axis, x.ndim, function)
    longer = initial is not None
    shape = tuple(n + 1 if d == axis and longer else n for d, n in enumerate(x.shape))
    if out is None:
        target = new(shape, result, x.device)
    else:
        check_out(name, out, shape, result, x.device)
        check_writable(out, function)
        x, target = separate(x, out), out
    body = target
    if longer:
        strides = target.strides
        first = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
        table["copy_into"](target.as_view(first, strides, target.offset), initial)
        body = target.as_view(x.shape, strides, target.offset + strides[axis])
    if x.size:
        scan(name, reduction, x, axis, body)
    return target


def _reference(function: Any, identity: float | None) -> Callable[..., Any]:
    def reference(
        x: "np.ndarray[Any, Any]", axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
    ) -> "np.ndarray[Any, Any]":
        wide = x.astype(np.float64) if x.dtype.kind not in "biu" else x
        axis = 0 if axis is None else axis
        if identity is not None and x.dtype.kind in "bi":
            wide = wide.astype(np.int64)
        if identity is not None and x.dtype.kind == "u":
            wide = wide.astype(np.uint64)
        found = function.accumulate(wide, axis=axis)
        if include_initial:
            first = np.full_like(np.take(found, [0], axis=axis), identity)
            found = np.concatenate([first, found], axis=axis)
        return found

    return reference


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.uniform(0.5, 1.5, (3, 5, 7)).astype(np.float32), 1
    yield rng.uniform(0.9, 1.1, (2, 4097)).astype(np.float32), -1
    yield rng.integers(-100, 100, (17, 300)).astype(np.int8), 1
    yield rng.uniform(0.99, 1.01, (70_001,)).astype(np.float32), 0


@operator(
    "cumulative_sum",
    kernels=KERNELS,
    reference=_reference(np.add, 0),
    samples=samples,
    special=(
        ((1.0, NAN, 2.0), (1.0, NAN, NAN)),
        ((INF, -INF, 1.0), (INF, NAN, NAN)),
        ((-0.0, -0.0, 0.0), (-0.0, -0.0, 0.0)),
        ((3e38, 3e38, -3e38), (3e38, INF, INF)),
        ((1e-45, 1e-45, -3e-45), (1e-45, 3e-45, 0.0)),
        ((1e8, 1.0, -1e8), (1e8, 1e8, 0.0)),
    ),
)
def cumulative_sum(
    x: Tensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Sums of the elements up to each one along an axis.

    Parameters
    ----------
    x
        Tensor of integers, bool or floats.
    axis
        The axis; may be absent if there is only one.
    dtype
        Dtype of the result; by default int64, uint64, or the float dtype of `x`.
    include_initial
        Begin with a 0: the result is one longer along the axis.
    out
        Tensor of the result's shape and dtype to write into; it may be `x` itself.

    Examples
    --------
    >>> nbx.cumulative_sum(nbx.asarray([1, 2, 3]), include_initial=True)
    Tensor([0, 1, 3, 6], dtype=int64, device='cpu')
    """
    result = accumulated(check_tensor("cumulative_sum", x).dtype, dtype, "nbx.cumulative_sum")
    return _cumulative("cumulative_sum", x, axis, sum_of(result), result, 0 if include_initial else None, out)


@operator(
    "cumulative_prod",
    kernels=KERNELS,
    reference=_reference(np.multiply, 1),
    samples=samples,
    special=(
        ((2.0, NAN, 0.0), (2.0, NAN, NAN)),
        ((0.0, INF, 1.0), (0.0, NAN, NAN)),
        ((-0.0, 2.0, -3.0), (-0.0, -0.0, 0.0)),
        ((1e30, 1e30, 0.0), (1e30, INF, NAN)),
        ((1e-30, 1e-15, 0.5), (1e-30, 1e-45, 0.0)),
    ),
)
def cumulative_prod(
    x: Tensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Products of the elements up to each one along an axis; parameters as for `cumulative_sum`."""
    result = accumulated(check_tensor("cumulative_prod", x).dtype, dtype, "nbx.cumulative_prod")
    return _cumulative("cumulative_prod", x, axis, product_of(result), result, 1 if include_initial else None, out)


@operator(
    "cumulative_max",
    kernels=KERNELS,
    reference=_reference(np.maximum, None),
    samples=samples,
    special=(
        ((1.0, NAN, INF), (1.0, NAN, NAN)),
        ((-0.0, 0.0, -0.0), (-0.0, 0.0, 0.0)),
        ((0.0, -0.0, -1.0), (0.0, 0.0, 0.0)),
        ((-INF, -1e-45, 3.0), (-INF, -1e-45, 3.0)),
    ),
)
def cumulative_max(x: Tensor, /, axis: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Largest element up to each one along an axis, in the dtype of `x`."""
    dtype = check_tensor("cumulative_max", x).dtype
    check_dtype("cumulative_max", dtype, ARITHMETIC)
    return _cumulative("cumulative_max", x, axis, extremum(dtype, True), dtype, None, out)


@operator(
    "cumulative_min",
    kernels=KERNELS,
    reference=_reference(np.minimum, None),
    samples=samples,
    special=(
        ((1.0, NAN, -INF), (1.0, NAN, NAN)),
        ((0.0, -0.0, 0.0), (0.0, -0.0, -0.0)),
        ((-0.0, 0.0, 1.0), (-0.0, -0.0, -0.0)),
        ((INF, 1e-45, -3.0), (INF, 1e-45, -3.0)),
    ),
)
def cumulative_min(x: Tensor, /, axis: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Smallest element up to each one along an axis, in the dtype of `x`."""
    dtype = check_tensor("cumulative_min", x).dtype
    check_dtype("cumulative_min", dtype, ARITHMETIC)
    return _cumulative("cumulative_min", x, axis, extremum(dtype, False), dtype, None, out)
