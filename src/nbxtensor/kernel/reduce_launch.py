"""The launches of reductions: which kernels, over which rows, in which setting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbxtensor.base.dtypes import DType
from nbxtensor.base.shapes import normalize_axes, reduced_shape
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.reduce import Reduction, add, as_is, keep, multiply, reduce_kernel
from nbxtensor.kernel.reduce_parts import reduce_fold_kernel, reduce_part_kernel
from nbxtensor.kernel.reduce_settings import Parts, Setting, candidates
from nbxtensor.kernel.rows import GROUP, MASKED, Rows, cached, passes_of, power_of_two
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.form import Form, contiguous_form
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import launch_key

KERNELS = (reduce_kernel, reduce_part_kernel, reduce_fold_kernel)
TILES_OF_CPU = 2
FOLDED = 32
"""Rows, and parts, of a tile where parts are folded."""

Launch = tuple[Plan, int]
"""A launch of a reduction, and the number of results that it leaves."""


def _chosen(
    name: str, reduction: Reduction, x: DType, out: DType, device: Device, rows: Rows, total: int
) -> tuple[Launch, ...]:
    """The launches with the best setting that may be used."""
    sizes = {"count": rows.count, "inner": rows.inner, "length": rows.length}
    steps = f"step {''.join(map(str, (*rows.flags(0), *rows.flags(1))))}"
    bytes_each = (x.itemsize, reduction.accumulator.itemsize)
    flags = (steps, reduction.combine.__name__)
    key = launch_key("reduce", "groups", sizes, bytes_each, device.target, flags)
    ordered = reduction.combine in (add, multiply) and reduction.accumulator.kind == "f"
    found = candidates(name, ordered, rows, device.profile, reduction.accumulator.itemsize)
    return tuned(key, found, lambda chosen: launches_of(name, reduction, x, out, device, rows, total, chosen))


def launches_of(
    name: str,
    reduction: Reduction,
    x: DType,
    out: DType,
    device: Device,
    rows: Rows,
    total: int,
    setting: Setting | Parts,
) -> tuple[Launch, ...]:
    """The launches that reduce rows (of `total` elements in the tensor reduced first) in one way."""
    results = rows.count * rows.groups
    if not isinstance(setting, Parts):
        return ((_group_plan(name, reduction, x, out, device, rows, total, setting), results),)
    part = _part_plan(name, reduction, x, device, rows, setting)
    fold = _fold_plan(name, reduction, out, device, rows, total, setting)
    return (part, results * setting.parts), (fold, results)


def _group_plan(
    name: str, reduction: Reduction, x: DType, out: DType, device: Device, rows: Rows, total: int, setting: Setting
) -> Plan:
    """Whole groups in one program each."""
    kept, tile, options = setting.kept, setting.tile, Options(num_warps=setting.num_warps)
    n = rows.length
    blocks = -(-rows.inner // kept)
    tail = rows.tail(tile, device.profile)
    arguments: dict[str, Argument] = {
        "x": Pointer(x),
        "out": Pointer(out),
        "total": total,
        **rows.arguments(blocks),
    }
    constants: dict[str, Constant] = {
        "PREPARE": reduction.prepare,
        "IDENTITY": reduction.identity,
        "COMBINE": reduction.combine,
        "TREE": reduction.tree,
        "FINISH": reduction.finish if rows.groups == 1 else keep,
        "SHAPE": rows.shape(kept, tile),
        "FLAGS": rows.flags(0),
        "LOOP": min(n, GROUP) > tile or tail == MASKED,
        "TAIL": tail,
        "GROUP_SIZE": GROUP,
        "TILES": TILES_OF_CPU if device.profile.warp_size == 1 and min(n, GROUP) >= 2 * TILES_OF_CPU * tile else 1,
    }
    grid = (rows.programs * blocks * rows.groups, 1, 1)
    return Plan(name, reduce_kernel, device, grid, arguments, constants, options, rows.count * n)


def _part_plan(name: str, reduction: Reduction, x: DType, device: Device, rows: Rows, setting: Parts) -> Plan:
    """Parts of groups, a program each."""
    blocks = -(-rows.inner // setting.kept)
    walk = rows.arguments(blocks)
    taken = ("n", "inner", "blocks", "groups", "outer", "x_outer", "reduced", "x_reduced")
    arguments: dict[str, Argument] = {"x": Pointer(x), "out": Pointer(reduction.accumulator)}
    constants: dict[str, Constant] = {
        "PREPARE": reduction.prepare,
        "IDENTITY": reduction.identity,
        "COMBINE": reduction.combine,
        "SHAPE": rows.shape(setting.kept, setting.lanes),
        "PARTS": setting.parts,
        "TAIL": rows.length % (setting.lanes * setting.parts) != 0,
        "GROUP_SIZE": GROUP,
        "TILES": setting.tiles if min(rows.length, GROUP) > setting.lanes * setting.parts * setting.tiles else 1,
    }
    grid = (rows.programs * rows.groups * setting.parts * blocks, 1, 1)
    arguments |= {argument: walk[argument] for argument in taken}
    options = Options(num_warps=setting.num_warps)
    return Plan(name, reduce_part_kernel, device, grid, arguments, constants, options, rows.count * rows.length)


def _fold_plan(
    name: str, reduction: Reduction, out: DType, device: Device, rows: Rows, total: int, setting: Parts
) -> Plan:
    """The parts of each group to one result."""
    kept = min(FOLDED, power_of_two(rows.inner))
    blocks = -(-rows.inner // kept)
    walk = rows.arguments(blocks)
    taken = ("inner", "blocks", "groups", "out_inner", "outer", "out_outer")
    arguments: dict[str, Argument] = {"x": Pointer(reduction.accumulator), "out": Pointer(out), "total": total}
    arguments |= {argument: walk[argument] for argument in taken}
    constants: dict[str, Constant] = {
        "COMBINE": reduction.combine,
        "FINISH": reduction.finish if rows.groups == 1 else keep,
        "SHAPE": rows.shape(kept, min(FOLDED, setting.parts)),
        "PARTS": setting.parts,
    }
    words = kept * min(FOLDED, setting.parts) * reduction.accumulator.itemsize // 4
    options = Options(num_warps=max(1, words // 256) if device.profile.warp_size > 1 else 1)
    grid = (rows.programs * rows.groups * blocks, 1, 1)
    return Plan(name, reduce_fold_kernel, device, grid, arguments, constants, options, rows.count * setting.parts)


def _stages(name: str, reduction: Reduction, x: Tensor, axes: tuple[int, ...], out: DType) -> list[Launch]:
    """The launches of a reduction."""
    stages: list[Launch] = []
    passes = passes_of(x.shape, x.strides, axes)
    dtype = x.dtype
    for rows in passes:
        target = out if rows.groups == 1 else reduction.accumulator
        stages += _chosen(name, reduction, dtype, target, x.device, rows, passes[0].length)
        reduction, dtype = replace(reduction, prepare=as_is), reduction.accumulator
    return stages


class _Launches:
    """The launches of a reduction of operands of one form, and the form of the result."""

    __slots__ = ("_allocate", "_form", "_last", "_parts")

    def __init__(self, name: str, reduction: Reduction, x: Tensor, axes: tuple[int, ...], form: Form) -> None:
        *parts, (self._last, _) = _stages(name, reduction, x, axes, form.dtype)
        self._parts = [(plan, size * reduction.accumulator.itemsize) for plan, size in parts]
        self._form = form
        self._allocate = form.device.allocate

    def run(self, x: Tensor) -> Tensor:
        """Launch them on `x`."""
        form = self._form
        out = Tensor(self._allocate(form.nbytes), form.shape, form.strides, 0, form.dtype, form.device, form)
        source = x.buffer
        at = x.ptr
        for plan, nbytes in self._parts:
            target = self._allocate(nbytes)
            plan.run(at, target.ptr)
            source = target  # lives until it was read
            at = source.ptr
        self._last.run(at, out.ptr)
        return out


_plans: dict[Any, _Launches] = plan_cache()


def reduce(
    name: str, reduction: Reduction, x: Tensor, axis: int | Sequence[int] | None, keepdims: bool, dtype: DType
) -> Tensor:
    """Reduce `x` over `axis` (None: all) to a tensor of `dtype`.

    Parameters
    ----------
    name
        Operator, for errors and recorders.
    reduction
        What to do; it must suit the dtype of `x`. An empty row gives the identity of the reduction.
    """
    key = (name, reduction, dtype, axis, keepdims, x.form) if axis is None or type(axis) is int else None
    if key is not None:
        known = _plans.get(key)
        if known is not None:
            return known.run(x)
    axes = normalize_axes(axis, x.ndim, f"nbx.{name}")
    form = contiguous_form(reduced_shape(x.shape, axes, keepdims), dtype, x.device)
    if form.size == 0:
        return new(form.shape, dtype, x.device)
    if x.size == 0:
        return table["copy_into"](new(form.shape, dtype, x.device), reduction.empty)
    key = key or (name, reduction, dtype, axes, keepdims, x.form)
    return cached(_plans, key, lambda: _Launches(name, reduction, x, axes, form)).run(x)
