"""The public functions of the sort family."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import ARITHMETIC, int64
from nbxtensor.base.errors import ArgumentError
from nbxtensor.base.shapes import normalize_axis
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.pointwise import check_out
from nbxtensor.kernel.rows import cached
from nbxtensor.kernel.tuned import plan_cache
from nbxtensor.ops._categories import check_dtype, check_tensor
from nbxtensor.ops.sort.cpu_kernels import row_select_kernel, row_sort_kernel
from nbxtensor.ops.sort.cpu_part_kernels import (
    part_counts_kernel,
    part_keys_kernel,
    part_scatter_kernel,
    part_starts_kernel,
    part_write_kernel,
)
from nbxtensor.ops.sort.launches import launches
from nbxtensor.ops.sort.layout import Run, layout_of
from nbxtensor.ops.sort.radix_kernels import (
    radix_sort_histogram_kernel,
    radix_sort_scatter_kernel,
    radix_sort_tile_counts_kernel,
    radix_sort_tile_prefix_kernel,
)
from nbxtensor.ops.sort.selection_kernels import group_best_kernel, group_select_kernel
from nbxtensor.ops.sort.tile import tile_sort_kernel
from nbxtensor.tensor.check import check_count
from nbxtensor.tensor.memory import check_writable, may_share_memory
from nbxtensor.tensor.tensor import Tensor, new

KERNELS = (
    tile_sort_kernel,
    radix_sort_tile_counts_kernel,
    radix_sort_tile_prefix_kernel,
    radix_sort_histogram_kernel,
    radix_sort_scatter_kernel,
    row_sort_kernel,
    part_keys_kernel,
    part_counts_kernel,
    part_starts_kernel,
    part_scatter_kernel,
    part_write_kernel,
)
SELECTING = (tile_sort_kernel, group_best_kernel, group_select_kernel, row_select_kernel)
BOTH, VALUES, INDICES = (True, True), (True, False), (False, True)

_plans: dict[Any, Run] = plan_cache()
_known: dict[Any, tuple[Run, tuple[int, ...]]] = plan_cache()


def _checked(name: str, x: Tensor, axis: int) -> int:
    """`axis` counted from the front, of a tensor that can be sorted."""
    check_dtype(name, check_tensor(name, x).dtype, ARITHMETIC)
    return normalize_axis(axis, x.ndim, f"nbx.{name}")


def _recall(
    name: str, x: Tensor, axis: int, descending: bool, k: int | None = None
) -> tuple[Run, tuple[int, ...]] | None:
    """How an equal call without `out` went, and the shape of its results."""
    if type(x) is Tensor and type(axis) is int and type(descending) is bool and (k is None or type(k) is int):
        return _known.get((name, axis, descending, k, x.form))
    return None


def _again(known: tuple[Run, tuple[int, ...]], x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and indices as in an equal earlier call."""
    run, shape = known
    values, indices = new(shape, x.dtype, x.device), new(shape, int64, x.device)
    run(x.ptr, values.ptr, indices.ptr)
    return values, indices


def _run(
    name: str,
    x: Tensor,
    axis: int,
    descending: bool,
    wanted: tuple[bool, bool],
    out: Tensor | None = None,
    k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Values and indices of the first `k` elements in order (None: all); what is not wanted is the other of the two."""
    given = axis
    axis = _checked(name, x, axis)
    descending = bool(descending)
    limit = x.shape[axis] if k is None else k
    if limit > x.shape[axis]:
        raise ArgumentError(f"nbx.{name}", "k is too large", got=limit, allowed=f"0 to {x.shape[axis]}")
    shape = (*x.shape[:axis], limit, *x.shape[axis + 1 :])
    if out is not None:
        check_out(name, out, shape, x.dtype if wanted[0] else int64, x.device)
        check_writable(out, f"nbx.{name}")
        if may_share_memory(x, out):
            x = x.copy()
    results = [
        (new(shape, dtype, x.device) if out is None else out) if want else None
        for want, dtype in zip(wanted, (x.dtype, int64), strict=True)
    ]
    values, indices = (one if one is not None else other for one, other in (results, results[::-1]))
    assert values is not None
    assert indices is not None
    if values.size:
        key = (name, axis, descending, limit, x.form, values.form, indices.form)
        run = _plans.get(key)
        if run is None:
            strides = (x.strides, values.strides, indices.strides)
            layout = layout_of(x.shape, axis, limit, strides, x.dtype, descending, wanted)
            device = x.device
            run = cached(_plans, key, lambda: launches(name, device, layout))
        if out is None:
            found = (run, shape)
            cached(_known, (name, given, descending, k, x.form), lambda: found)
        run(x.ptr, values.ptr, indices.ptr)
    return values, indices


def _numpy_order(x: "np.ndarray[Any, Any]", axis: int, descending: bool) -> "np.ndarray[Any, Any]":
    """The stable order, NaN last ascending and first descending."""
    if x.dtype.name == "bfloat16":  # whose NaN NumPy does not know
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.flip(x, axis=axis)
    return x.shape[axis] - 1 - np.flip(np.argsort(back, axis=axis, kind="stable"), axis=axis)


def reference_sort_with_indices(
    x: "np.ndarray[Any, Any]", axis: int = -1, descending: bool = False, stable: bool = True
) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    order = _numpy_order(x, axis, descending)
    return np.take_along_axis(x, order, axis=axis), order


def reference_sort(
    x: "np.ndarray[Any, Any]", axis: int = -1, *, descending: bool = False, stable: bool = True
) -> "np.ndarray[Any, Any]":
    return reference_sort_with_indices(x, axis, descending)[0]


def reference_argsort(
    x: "np.ndarray[Any, Any]", axis: int = -1, descending: bool = False, stable: bool = True
) -> "np.ndarray[Any, Any]":
    return _numpy_order(x, axis, descending)


def reference_topk(
    x: "np.ndarray[Any, Any]", k: int, axis: int = -1, largest: bool = True
) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    order = np.take(_numpy_order(x, axis, largest), range(k), axis=axis)
    return np.take_along_axis(x, order, axis=axis), order


INF, NAN = float("inf"), float("nan")
SPECIAL: tuple[tuple[tuple[float, ...], tuple[int, ...]], ...] = (
    ((3.0, NAN, 1.0, 2.0, NAN, 0.0), (5, 2, 3, 0, 1, 4)),
    ((NAN, INF, -INF, 1.0), (2, 3, 1, 0)),
    ((0.0, -0.0, 0.0, -0.0), (0, 1, 2, 3)),
    ((-0.0, 0.0, -1e-45, 1e-45), (2, 0, 1, 3)),
    ((3.4028234663852886e38, INF, -3.4028234663852886e38), (2, 0, 1)),
    ((1.0, 1.0, 0.0, 1.0), (2, 0, 1, 3)),
)
"""Rows of float32 and the indices that sort them."""


def _specials(rng: np.random.Generator, shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    x = np.round(rng.standard_normal(shape, np.float32) * 4)
    x[rng.random(shape) < 0.05] = np.nan
    x[rng.random(shape) < 0.05] = -0.0
    x[rng.random(shape) < 0.05] = np.inf
    return x


def samples_sort(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _specials(rng, (6, 65, 3)), 1


def samples_argsort(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _specials(rng, (5, 33)), -1, True


def samples_sort_with_indices(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _specials(rng, (3, 300)), -1
    yield rng.integers(-30_000, 30_000, (1, 66_000), np.int32), -1  # by radix: in chunks, in parts
    yield rng.integers(-(1 << 62), 1 << 62, (1, 4100), np.int64), -1  # by radix, keys and indices apart


def samples_topk(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _specials(rng, (5, 260)), 7
    yield rng.integers(-1000, 1000, (1, 5000), np.int32), 5  # by groups


@operator(
    "sort",
    kernels=KERNELS,
    reference=reference_sort,
    samples=samples_sort,
    special=tuple((row, tuple(row[i] for i in order)) for row, order in SPECIAL),
)
def sort(
    x: Tensor, axis: int = -1, *, descending: bool = False, stable: bool = True, out: Tensor | None = None
) -> Tensor:
    """The elements along `axis` in order.

    Parameters
    ----------
    axis
        The axis along which rows are sorted.
    descending
        Largest first.
    stable
        Equal elements keep their order; they do in any case.
    out
        Tensor to write into, of the shape and dtype of `x`; it may be `x` itself.
    """
    if out is None and (known := _recall("sort", x, axis, descending)) is not None:
        values = new(known[1], x.dtype, x.device)
        known[0](x.ptr, values.ptr, values.ptr)
        return values
    return _run("sort", x, axis, descending, VALUES, out)[0]


@operator("argsort", kernels=KERNELS, reference=reference_argsort, samples=samples_argsort, special=SPECIAL)
def argsort(
    x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True, out: Tensor | None = None
) -> Tensor:
    """The indices (int64) that sort `x` along `axis`; parameters as for `sort`, `out` has dtype int64."""
    if out is None and (known := _recall("argsort", x, axis, descending)) is not None:
        indices = new(known[1], int64, x.device)
        known[0](x.ptr, indices.ptr, indices.ptr)
        return indices
    return _run("argsort", x, axis, descending, INDICES, out)[1]


@operator(
    "sort_with_indices", kernels=KERNELS, reference=reference_sort_with_indices, samples=samples_sort_with_indices
)
def sort_with_indices(
    x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
) -> tuple[Tensor, Tensor]:
    """What `sort` and `argsort` give, in one go; parameters as there."""
    if (known := _recall("sort_with_indices", x, axis, descending)) is not None:
        return _again(known, x)
    return _run("sort_with_indices", x, axis, descending, BOTH)


@operator("topk", kernels=SELECTING, reference=reference_topk, samples=samples_topk)
def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` largest elements along `axis` and their indices, largest first; of equal ones the lowest index first.

    Parameters
    ----------
    k
        How many, at most the size of the axis.
    axis
        The axis along which elements are selected.
    largest
        False: the smallest, smallest first. NaN counts as larger than every number.
    """
    if (known := _recall("topk", x, axis, largest, k)) is not None:
        return _again(known, x)
    return _run("topk", x, axis, largest, BOTH, k=check_count(k, "nbx.topk", "k"))
