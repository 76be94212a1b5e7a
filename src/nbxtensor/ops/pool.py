"""Pooling: ``max_pool(x, kernel, stride, padding, dilation, ceil_mode)`` and ``avg_pool(...)``.

``max_pool: out[n, c, p] = max over t of x[n, c, p * stride - before + t * dilation]``, taps on padding left out
``avg_pool: out[n, c, p] = sum over t of x[n, c, p * stride - before + t] / count``

Shapes
    x is (N, C, *spatial) with one to three spatial axes; places as in convolution. `ceil_mode`: one more place where
    the window leaves the padded input, if it starts in the input or in the padding before it. Any strides are read
    where they are.
Dtypes
    max_pool: floats and integers. avg_pool: float32; float16 and bfloat16 (computed in float32, rounded once); float64.
Errors
    ShapeError for a rank or a window that does not fit, ArgumentError for stride, padding (smaller than the window) or
    dilation, DTypeError.
Accuracy
    max_pool is exact: NaN passes, -0.0 < 0.0. avg_pool adds the taps one after the other in row-major order and divides
    once: at most ``taps * 2^-24 * sum |x| / count`` in float32.
Guarantee
    universal: the order depends on the window alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import ARITHMETIC, DType
from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.pool import pool_kernel
from nbxtensor.kernel.reduce_launch import KERNELS
from nbxtensor.kernel.tuned import FIXED, plan_memo, tuned
from nbxtensor.kernel.window import lay_out_kernel
from nbxtensor.ops._categories import check_dtype, check_tensor, compute_type
from nbxtensor.ops._samples import Array
from nbxtensor.ops._walk import (
    LaidOut,
    Launches,
    Walk,
    in_place,
    laid_out,
    line_tile_for,
    walk_over,
    wants_copy,
    window_key,
)
from nbxtensor.ops._window import Padding, Sizes, Window, per_axis, window_of
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty

UNROLLED = 64  # largest window that is written out


@plan_memo
def _launches_of(name: str, walk: Walk, counted: bool, dtype: DType, device: Device) -> Launches:
    """The launches of a pool; `counted`: padding counts in a mean."""
    mean = name == "avg_pool"
    lowest = float("-inf") if dtype.minimum is None else dtype.minimum
    layout: LaidOut | None = None
    reading = in_place(walk)
    partial, copied = any(reading.pad), wants_copy(walk, device.profile)
    if copied:
        layout = laid_out(name, walk, dtype, device, None if mean else lowest)
        reading = layout.reading
    window = walk.window
    tile = line_tile_for(walk, copied, device.profile)
    outside = ((-b, n + a) for b, n, a in zip(window.before, walk.sizes, window.after, strict=True))
    low, high = zip(*(outside if counted else ((0, n) for n in walk.sizes)), strict=True)
    arguments: dict[str, Argument] = {
        "x": Pointer(dtype),
        "out": Pointer(dtype),
        "rows": walk.places[0] * walk.places[1],
        "channels": walk.channels,
        **reading.arguments,
        **walk.geometry,
        "low": low,
        "high": high,
    }
    taps = prod(window.taps)
    constants: dict[str, Constant] = {
        "MEAN": mean,
        "LOWEST": lowest,
        "TYPE": compute_type(dtype),
        "TAPS": window.taps,
        "SPLIT": reading.split,
        "PAD": reading.pad,
        "PARTIAL": partial,
        "X_UNIT": reading.place[2] == 1,
        "UNROLL": taps <= UNROLLED,
        **tile.constants(walk, copied),
    }
    images = walk.batch * walk.channels
    grid = tile.grid(walk, images)
    options = Options(num_warps=tile.num_warps)
    work = images * prod(walk.places) * taps
    key = window_key(name, walk, [dtype], device, tile, "copied" if copied else "in place", "mean" if mean else "max")
    make = tuned(key, FIXED, lambda _: Plan(name, pool_kernel, device, grid, arguments, constants, options, work))
    return Launches(layout, make)


def _pool(
    name: str,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Padding,
    dilation: Sizes,
    ceil_mode: bool,
    counted: bool,
    allowed: Sequence[DType],
) -> Tensor:
    function = f"nbx.nn.{name}"
    check_tensor(f"nn.{name}", x)
    if not 3 <= x.ndim <= 5:
        raise ShapeError(function, "x has the wrong rank", got=x.shape, allowed="(N, C, *spatial), 1 to 3 spatial axes")
    check_dtype(f"nn.{name}", x.dtype, allowed)
    taps = per_axis(kernel, x.ndim - 2, "kernel", function)
    window = window_of(taps, taps if stride is None else stride, padding, dilation, function)
    if any(max(pads) >= reach for *pads, reach in zip(window.before, window.after, window.reach, strict=True)):
        raise ArgumentError(
            function,
            "the padding is not smaller than the window",
            got=f"padding {window.before} and {window.after}, window {window.reach}",
        )
    places = window.places(x.shape[2:], function, ceil_mode)
    out = empty((*x.shape[:2], *places), x.dtype, x.device)
    if out.size:
        walk, _ = walk_over(x.shape, x.strides, places, window)
        _launches_of(name, walk, counted, x.dtype, x.device).run(x, out.ptr)
    return out


def _taps(x: Array, fill: float, window: Window, places: tuple[int, ...]) -> Iterator[Array]:
    """For each tap, the element that it sees from every place; `fill` outside of the input."""
    for tap in np.ndindex(*window.taps):
        axes = zip(places, window.stride, window.dilation, window.before, tap, strict=True)
        coordinates = np.ix_(*(np.arange(p) * s - b + t * d for p, s, d, b, t in axes))
        good = np.ones(places, bool)
        clipped: list[Array] = []
        for at, n in zip(coordinates, x.shape[2:], strict=True):
            good = good & (at >= 0) & (at < n)
            clipped.append(np.clip(at, 0, n - 1))
        yield np.where(good, x[(..., *clipped)], np.asarray(fill, x.dtype))


def max_pool_reference(
    x: Array,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """max_pool in the dtype of `x`."""
    taps = per_axis(kernel, x.ndim - 2, "kernel", "max_pool")
    window = window_of(taps, taps if stride is None else stride, padding, dilation, "max_pool")
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else float("-inf")
    seen = list(_taps(x, lowest, window, window.places(x.shape[2:], "max_pool", ceil_mode)))
    return np.maximum.reduce(seen)


def avg_pool_reference(
    x: Array,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Array:
    """avg_pool in float64."""
    taps = per_axis(kernel, x.ndim - 2, "kernel", "avg_pool")
    window = window_of(taps, taps if stride is None else stride, padding, 1, "avg_pool")
    places = window.places(x.shape[2:], "avg_pool", ceil_mode)
    counted, inner = np.ones((1, 1, *x.shape[2:])), window
    if count_include_pad:
        counted = np.pad(counted, ((0, 0), (0, 0), *zip(window.before, window.after, strict=True)), constant_values=1)
        inner = replace(window, before=(0,) * len(taps))
    total = np.add.reduce(list(_taps(x.astype(np.float64), 0.0, window, places)))
    return total / np.add.reduce(list(_taps(counted, 0.0, inner, places)))


def _samples(rng: np.random.Generator, *more: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((2, 3, 37), np.float32), 3, 2, 1, *more[0]
    yield rng.standard_normal((2, 5, 19, 23), np.float32), (3, 2), (2, 1), ((1, 0), (0, 1)), *more[1]
    yield rng.standard_normal((1, 2, 7, 6, 9), np.float32), 2, None, 0, *more[2]
    yield rng.standard_normal((1, 2, 30, 31), np.float32), (9, 8), 4, 3, *more[0]


def max_pool_samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Pools in one to three dimensions, dilated and ceiled ones among them, windows short and long."""
    return _samples(rng, (1, True), (2, False), ())


def avg_pool_samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """The same for means, padding counted and not."""
    return _samples(rng, (True, False), (False, True), ())


@operator("max_pool", kernels=(pool_kernel, lay_out_kernel), reference=max_pool_reference, samples=max_pool_samples)
def max_pool(
    x: Tensor,
    /,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element under a window that slides over one to three spatial axes.

    Parameters
    ----------
    x
        (N, C, *spatial), floats or integers.
    kernel
        Size of the window: an int, or one an axis.
    stride
        Step between places: None (the window's size), an int, or one an axis.
    padding
        Places outside of the input that the window may cover: an int, one an axis, or one pair (before, after) an
        axis; smaller than the window. They are never the largest.
    dilation
        Distance of taps: an int, or one an axis.
    ceil_mode
        Whether to add a last place that leaves the padded input.

    Returns
    -------
    Tensor
        (N, C, *places), contiguous, of the dtype of `x`. Where a dilated window sees padding alone: -inf, or the
        smallest integer.

    Notes
    -----
    Exact: NaN passes, -0.0 < 0.0. The same bits on every device.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.max_pool(nbx.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    Tensor([[[3., 2.]]], dtype=float32, device='cpu')
    """
    numbers = tuple(d for d in ARITHMETIC if not d.is_bool)
    return _pool("max_pool", x, kernel, stride, padding, dilation, ceil_mode, False, numbers)


@operator("avg_pool", kernels=(pool_kernel, lay_out_kernel), reference=avg_pool_reference, samples=avg_pool_samples)
def avg_pool(
    x: Tensor,
    /,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """The mean of the elements under a window that slides over one to three spatial axes.

    Parameters
    ----------
    x
        (N, C, *spatial), floats.
    kernel
        Size of the window: an int, or one an axis.
    stride
        Step between places: None (the window's size), an int, or one an axis.
    padding
        Zeros around the input: an int, one an axis, or one pair (before, after) an axis; smaller than the window.
    ceil_mode
        Whether to add a last place that leaves the padded input; what lies beyond the padding never counts.
    count_include_pad
        Whether padding counts as elements.

    Returns
    -------
    Tensor
        (N, C, *places), contiguous, of the dtype of `x`.

    Notes
    -----
    Taps are added in row-major order, in float32 for 16-bit floats. The same bits on every device.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.avg_pool(nbx.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    Tensor([[[2., 1.]]], dtype=float32, device='cpu')
    """
    floats = tuple(d for d in ARITHMETIC if d.is_float)
    return _pool("avg_pool", x, kernel, stride, padding, 1, ceil_mode, count_include_pad, floats)


def _global(name: str, reduction: str, x: Tensor) -> Tensor:
    check_tensor(f"nn.{name}", x)
    if x.ndim < 3:
        raise ShapeError(f"nbx.nn.{name}", "x has no spatial axes", got=x.shape, allowed="(N, C, *spatial)")
    return table[reduction](x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("global_max_pool", kernels=KERNELS)
def global_max_pool(x: Tensor, /) -> Tensor:
    """`max` over all spatial axes of x (N, C, *spatial), which stay as axes of size 1."""
    return _global("global_max_pool", "max", x)


@operator("global_avg_pool", kernels=KERNELS)
def global_avg_pool(x: Tensor, /) -> Tensor:
    """`mean` over all spatial axes of x (N, C, *spatial), which stay as axes of size 1."""
    return _global("global_avg_pool", "mean", x)
