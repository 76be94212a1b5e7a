"""Position of the largest and smallest element: ``argmax(x, axis=None, keepdims=False)`` and ``argmin``.

Shapes
    Any, one axis or None (then the position in row-major order), any strides.
Dtypes
    All that have arithmetic; the result is int64.
Errors
    ArgumentError where a row is empty, AxisError for a bad axis, DTypeError for a storage-only dtype.
Special values
    Of equal elements the first counts; the two zeros are equal. A NaN counts as the largest for argmax and as the
    smallest for argmin, so the first NaN is found.
Guarantee
    universal; exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.shapes import normalize_axis, reduced_shape
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.order import largest_key, smallest_key
from nbxtensor.kernel.reduce_settings import rows_within
from nbxtensor.kernel.rows import (
    GROUP,
    Rows,
    cached,
    filled,
    group_of,
    in_row,
    load_tile,
    offset_of,
    passes_of,
    per_row,
    power_of_two,
)
from nbxtensor.kernel.tuned import FIXED, plan_cache, tuned
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.max import check_rows, key_dtype
from nbxtensor.tensor.tensor import Tensor, empty
from nbxtensor.tuning.key import launch_key

TILE = 1024


@kernel
def _equal_zeros(x):
    """-0.0 as 0.0, all else as it is."""
    if x.dtype.is_floating():
        if x.dtype != tl.float64:
            x = x.to(tl.float32)
        x = tl.where(x == 0.0, 0.0, x)
    return x


@kernel
def argmax_key(x):
    """Key whose first largest is what argmax finds."""
    return largest_key(_equal_zeros(x))


@kernel
def argmin_key(x):
    """Key whose first largest is what argmin finds."""
    return ~smallest_key(_equal_zeros(x))


@kernel
def same_key(x):
    """The key itself, in a later pass over the best of each group."""
    return x


@kernel
def argmax_kernel(
    x, index, key_out, out, n, inner, blocks, groups, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced,
    KEY: tl.constexpr, LOWEST: tl.constexpr, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Position (and, unless LAST, key) of the first largest key in one group of each row of a block.

    FIRST: `x` is the tensor itself; else `x` holds the keys and `index` the positions of the groups before.
    """
    group, begin, end, k, row = group_of(n, blocks, groups, SHAPE, GROUP_SIZE)
    x += offset_of(row, outer, x_outer)
    rows = (k, inner, reduced)
    walk = (x_inner, x_reduced)
    best = KEY(load_tile(x, begin, end, rows, walk, SHAPE, FLAGS, TAIL))
    if TAIL:
        best = tl.where(in_row(begin, end, SHAPE), best, LOWEST)
    where = filled(begin, SHAPE)
    for at in range(begin + SHAPE[2], end, SHAPE[2]):
        key = KEY(load_tile(x, at, end, rows, walk, SHAPE, FLAGS, TAIL))
        if TAIL:
            key = tl.where(in_row(at, end, SHAPE), key, LOWEST)
        better = key > best
        best = tl.where(better, key, best)
        where = tl.where(better, at, where)
    lanes = tl.arange(0, SHAPE[2])
    if SHAPE[0] == 1:
        where = where + lanes[None, :]
    else:
        where = where + lanes[:, None]
    largest = tl.max(best, SHAPE[0])
    where = tl.where(best == per_row(largest, SHAPE), where, 0x7FFFFFFFFFFFFFFF)
    found = tl.min(where, SHAPE[0])
    slot = offset_of(row, outer, out_outer) + group + k * out_inner
    if not FIRST:
        found = tl.load(index + (offset_of(row, outer, x_outer) + k * x_inner + found))
    tl.store(out + slot, found, mask=k < inner)
    if not LAST:
        tl.store(key_out + slot, largest, mask=k < inner)


def _tuned(name: str, x: Tensor, rows: Rows, first: bool) -> Plan:
    sizes = {"count": rows.count, "inner": rows.inner, "length": rows.length}
    flags = (f"step {''.join(map(str, rows.flags(0)))}", "first" if first else "later")
    key = launch_key("argmax", "rows", sizes, (x.dtype.itemsize,), x.device.target, flags)
    return tuned(key, FIXED, lambda _: _plan(name, x, rows, first))


def _plan(name: str, x: Tensor, rows: Rows, first: bool) -> Plan:
    key = key_dtype(x.dtype)
    profile = x.device.profile
    tile = min(TILE, profile.reduce_tile_max, max(4, power_of_two(rows.length)))
    widest = rows_within(power_of_two(rows.inner), tile, profile, f"nbx.{name}")
    kept = min(max(1, (2048 if rows.axis == 0 else 1024) // tile), widest)
    blocks = -(-rows.inner // kept)
    low = -(2**63) if key is dtypes.int64 else -(2**31)
    keys = {True: argmax_key if name == "argmax" else argmin_key, False: same_key}
    return Plan(
        name,
        argmax_kernel,
        x.device,
        (rows.programs * blocks * rows.groups, 1, 1),
        {
            "x": Pointer(x.dtype if first else key),
            "index": Pointer(dtypes.int64),
            "key_out": Pointer(key),
            "out": Pointer(dtypes.int64),
            **rows.arguments(blocks),
        },
        {
            "KEY": keys[first],
            "LOWEST": low,
            "SHAPE": rows.shape(kept, tile),
            "FLAGS": rows.flags(0),
            "TAIL": rows.length % tile != 0,
            "FIRST": first,
            "LAST": rows.groups == 1,
            "GROUP_SIZE": GROUP,
        },
        Options(num_warps=4),
        rows.count * rows.length,
    )


_plans: dict[Any, list[tuple[Plan, int]]] = plan_cache()


def _stages(name: str, x: Tensor, axes: tuple[int, ...]) -> list[tuple[Plan, int]]:
    """The launches, each with the number of positions it leaves."""
    passes = passes_of(x.shape, x.strides, axes)
    return [(_tuned(name, x, rows, rows is passes[0]), rows.count * rows.groups) for rows in passes]


def _find(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    check_tensor(name, x)
    axes = tuple(range(x.ndim)) if axis is None else (normalize_axis(axis, x.ndim, f"nbx.{name}"),)
    check_rows(x, axes, name)
    out = empty(reduced_shape(x.shape, axes, keepdims), dtypes.int64, x.device)
    if out.size == 0:
        return out
    key = (name, axes, x.form)
    stages = cached(_plans, key, lambda: _stages(name, x, axes))
    keys, found = x, out
    for plan, size in stages[:-1]:
        best = empty((size,), key_dtype(x.dtype), x.device)
        places = empty((size,), dtypes.int64, x.device)
        plan.run(keys.ptr, found.ptr, best.ptr, places.ptr)
        keys, found = best, places
    stages[-1][0].run(keys.ptr, found.ptr, found.ptr, out.ptr)
    return out


def reference_argmax(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims))


def reference_argmin(x: "np.ndarray[Any, Any]", axis: Any = None, *, keepdims: bool = False) -> "np.ndarray[Any, Any]":
    return np.asarray(np.argmin(x, axis=axis, keepdims=keepdims))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.integers(0, 9, (3, 50, 7)).astype(np.float32), 1
    yield rng.integers(0, 9, (2, 2049), np.int8), -1
    yield rng.standard_normal((17, 3), np.float32), None


@operator("argmax", kernels=(argmax_kernel, argmax_key), reference=reference_argmax, samples=samples)
def argmax(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Position of the first largest element along `axis` (None: in row-major order); of the first NaN if there is one.

    Parameters
    ----------
    axis
        An axis or None.
    keepdims
        Whether reduced axes stay, with size 1.
    """
    return _find("argmax", x, axis, keepdims)


@operator("argmin", kernels=(argmax_kernel, argmin_key), reference=reference_argmin, samples=samples)
def argmin(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Position of the first smallest element; see `argmax`."""
    return _find("argmin", x, axis, keepdims)
