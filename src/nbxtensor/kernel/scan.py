"""Canonical scans: every prefix is combined in an order that depends on its position alone.

Sixteen consecutive elements are a block, sixteen blocks a block of the next level, and so on. The total of a block is
the chain of its sixteen parts in ascending order. The prefix that ends at an element is ::

    ((... + whole blocks before it at level 2) + whole blocks before it at level 1) + its block up to it

where each bracketed part is a chain in ascending order over the parts that precede it inside their common block. Parts
that are not there are left out. So a prefix of n elements has about ``16 * log16(n)`` roundings instead of n, tiles of
4,096 elements are scanned by a few whole-tile steps on a GPU, and a plain loop on a CPU has short chains.

What is scanned is a `nbxtensor.kernel.reduce.Reduction`: its `prepare`, `identity` (combining with it changes no bit),
`combine` and `finish`.
"""

from dataclasses import dataclass, replace
from typing import Any

from nbxtensor.base.dtypes import DType
from nbxtensor.base.knobs import num_threads
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.reduce import Reduction, as_is, keep
from nbxtensor.kernel.rows import Rows, cached, kept_block, load_tile, offset_of, power_of_two, rows_of, store_tile
from nbxtensor.kernel.scan_tile import carry, scan_tile, tile_total
from nbxtensor.tensor.tensor import Tensor, new

WHOLE, TOTALS, AFTER = 0, 1, 2
TILE_LEVEL, SERIAL_LEVEL = 3, 4  # 16^level elements are what a program takes of a row that is split
FEW_ROWS = 512  # fewer leave a GPU idle


@kernel
def cumulative_tile_kernel(
    x, out, starts, n, inner, blocks, segments, width, x_inner, out_inner, outer, x_outer, out_outer, reduced,
    x_reduced, out_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr, SHAPE: tl.constexpr,
    LEVEL: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, PART: tl.constexpr, LOOP: tl.constexpr,
    TAIL: tl.constexpr, EXCLUSIVE: tl.constexpr,
):  # fmt: skip
    """Whole rows of a block (PART WHOLE), or one tile of each: its totals (TOTALS), or its scan after `starts` (AFTER).

    LOOP: rows are longer than a tile; TAIL: the last tile leaves the row.
    """
    KEPT: tl.constexpr = SHAPE[1]
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    if PART == AFTER:  # from the end: what the totals read last is still in the cache
        program = tl.num_programs(0) - 1 - program
    segment = program % segments
    program = program // segments
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    start = tl.broadcast_to(IDENTITY(), (KEPT,))
    if PART != WHOLE:
        places = starts + (row * inner + k) * width + segment
        at = segment * TILE
        if PART == TOTALS:
            value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False))
            if SHAPE[3]:
                tl.store(places, tile_total(value, LEVEL, COMBINE), mask=k < inner)
            else:
                tl.store(places, tile_total(value, LEVEL, COMBINE))
        else:
            if SHAPE[3]:
                start = tl.load(places, mask=k < inner)
            else:
                start = tl.load(places)
            if at + TILE <= n:
                value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False))
                value, total = scan_tile(value, start, LEVEL, COMBINE, EXCLUSIVE)
                store_tile(out, FINISH(value, n), at, n, rows, out_walk, SHAPE, OUT_FLAGS, False)
            else:
                value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, True))
                value, total = scan_tile(value, start, LEVEL, COMBINE, EXCLUSIVE)
                store_tile(out, FINISH(value, n), at, n, rows, out_walk, SHAPE, OUT_FLAGS, True)
    elif LOOP:
        whole = n // TILE * TILE
        c = (start, start, start, start, start, start, start)
        above = start
        for at in range(0, whole, TILE):
            value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False))
            value, total = scan_tile(value, COMBINE(above, c[0]), LEVEL, COMBINE, EXCLUSIVE)
            store_tile(out, FINISH(value, n), at, n, rows, out_walk, SHAPE, OUT_FLAGS, False)
            c, above = carry(c, above, start, total, at // TILE + 1, start, COMBINE)
        if whole < n:
            value = PREPARE(load_tile(x, whole, n, rows, x_walk, SHAPE, X_FLAGS, True))
            value, total = scan_tile(value, COMBINE(above, c[0]), LEVEL, COMBINE, EXCLUSIVE)
            store_tile(out, FINISH(value, n), whole, n, rows, out_walk, SHAPE, OUT_FLAGS, True)
    else:
        value = PREPARE(load_tile(x, 0, n, rows, x_walk, SHAPE, X_FLAGS, TAIL))
        value, total = scan_tile(value, start, LEVEL, COMBINE, EXCLUSIVE)
        store_tile(out, FINISH(value, n), 0, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL)


@kernel
def _element(x, mask, PARTIAL: tl.constexpr):
    if PARTIAL:
        value = tl.load(x, mask=mask, other=0)
    else:
        value = tl.load(x)
    return value


@kernel
def _put(out, value, mask, PARTIAL: tl.constexpr):
    value = cast(value, out.dtype.element_ty)
    if PARTIAL:
        tl.store(out, value, mask=mask)
    else:
        tl.store(out, value)


@kernel
def cumulative_serial_kernel(
    x, out, starts, n, inner, blocks, segments, width, segment_size, x_inner, out_inner, outer, x_outer, out_outer,
    x_step, out_step,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr, SHAPE: tl.constexpr,
    DENSE: tl.constexpr, PART: tl.constexpr, EXCLUSIVE: tl.constexpr,
):  # fmt: skip
    """As `cumulative_tile_kernel`, element after element along the row; a block's rows lie side by side."""
    KEPT: tl.constexpr = SHAPE[1]
    program = tl.program_id(0).to(tl.int64)
    if PART == AFTER:  # from the end: what the totals read last is still in the cache
        program = tl.num_programs(0) - 1 - program
    segment = program % segments
    program = program // segments
    empty = IDENTITY()
    if KEPT == 1:
        k = program % blocks  # scalars stay in registers where a tile of one element would not
    else:
        k = kept_block(program % blocks, SHAPE)
        empty = tl.broadcast_to(empty, (KEPT,))
    row = program // blocks
    mask = k < inner
    begin = segment * segment_size
    end = tl.minimum(begin + segment_size, n)
    x += offset_of(row, outer, x_outer) + begin * x_step
    out += offset_of(row, outer, out_outer) + begin * out_step
    if DENSE:
        source = x + k
        target = out + k
    else:
        source = x + k * x_inner
        target = out + k * out_inner
    start = empty
    places = starts + (row * inner + k) * width + segment
    if PART == AFTER:
        start = _element(places, mask, SHAPE[3])
    c = (empty, empty, empty, empty, empty, empty, empty)
    above = start
    blocks_of_16 = (end - begin) // 16
    for block in range(blocks_of_16):
        base = COMBINE(above, c[0])
        value = PREPARE(_element(source, mask, SHAPE[3]))
        if PART != TOTALS:
            if EXCLUSIVE:
                _put(target, FINISH(base, n), mask, SHAPE[3])
            else:
                _put(target, FINISH(COMBINE(base, value), n), mask, SHAPE[3])
        for i in tl.static_range(1, 16):
            before = value
            value = COMBINE(value, PREPARE(_element(source + i * x_step, mask, SHAPE[3])))
            if PART != TOTALS:
                if EXCLUSIVE:
                    _put(target + i * out_step, FINISH(COMBINE(base, before), n), mask, SHAPE[3])
                else:
                    _put(target + i * out_step, FINISH(COMBINE(base, value), n), mask, SHAPE[3])
        source += 16 * x_step
        target += 16 * out_step
        c, above = carry(c, above, start, value, block + 1, empty, COMBINE)
    if PART == TOTALS:
        _put(places, c[3], mask, SHAPE[3])  # segments have 16^4 elements
    else:
        base = COMBINE(above, c[0])
        value = IDENTITY()
        if KEPT > 1:
            value = tl.broadcast_to(value, (KEPT,))
        for _ in range(begin + blocks_of_16 * 16, end):
            if EXCLUSIVE:
                _put(target, FINISH(COMBINE(base, value), n), mask, SHAPE[3])
            value = COMBINE(value, PREPARE(_element(source, mask, SHAPE[3])))
            if not EXCLUSIVE:
                _put(target, FINISH(COMBINE(base, value), n), mask, SHAPE[3])
            source += x_step
            target += out_step


def _plan(
    name: str,
    reduction: Reduction,
    x: DType,
    out: DType,
    device: Device,
    rows: Rows,
    part: int,
    exclusive: bool,
    serial: bool,
) -> Plan:
    n = rows.length
    level = SERIAL_LEVEL if serial else 1 if n <= 16 else 2 if n <= 256 else TILE_LEVEL
    tile = 16**level
    if serial:
        dense = rows.inner_strides == (1, 1)
        kept = min(power_of_two(rows.inner), 128) if dense else 1
        warps = max(1, kept // 32)
    else:
        dense = False
        kept = min(power_of_two(rows.inner), max(1, 4096 // tile))
        warps = max(1, kept * tile // 512)
    if device.profile.warp_size == 1:
        warps = 1
    blocks = -(-rows.inner // kept)
    width = -(-n // tile)
    segments = 1 if part == WHOLE else n // tile if part == TOTALS else width
    arguments: dict[str, Argument] = {
        "x": Pointer(x),
        "out": Pointer(out),
        "starts": Pointer(reduction.accumulator),
        "n": n,
        "inner": rows.inner,
        "blocks": blocks,
        "segments": segments,
        "width": width,
    }
    walk: dict[str, Argument] = {
        "x_inner": rows.inner_strides[0],
        "out_inner": rows.inner_strides[1],
        "outer": rows.outer,
        "x_outer": rows.outer_strides[0],
        "out_outer": rows.outer_strides[1],
    }
    constants: dict[str, Constant] = {
        "PREPARE": reduction.prepare,
        "IDENTITY": reduction.identity,
        "COMBINE": reduction.combine,
        "FINISH": reduction.finish if part != TOTALS else keep,
        "SHAPE": (1, kept, tile, int(rows.inner % kept != 0)),
        "PART": part,
        "EXCLUSIVE": exclusive,
    }
    if serial:
        arguments |= {"segment_size": n if part == WHOLE else tile, **walk}
        arguments |= {"x_step": rows.reduced_strides[0][0], "out_step": rows.reduced_strides[1][0]}
        constants["DENSE"] = dense
    else:
        arguments |= walk
        arguments |= {"reduced": rows.reduced}
        arguments |= {"x_reduced": rows.reduced_strides[0], "out_reduced": rows.reduced_strides[1]}
        constants |= {"LEVEL": level, "X_FLAGS": rows.flags(0), "OUT_FLAGS": rows.flags(1)}
        constants |= {"LOOP": n > tile, "TAIL": n % tile != 0}
    return Plan(
        name,
        cumulative_serial_kernel if serial else cumulative_tile_kernel,
        device,
        (rows.programs * blocks * segments, 1, 1),
        arguments,
        constants,
        Options(num_warps=warps),
        rows.count * n,
    )


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a scan: one, or the totals of tiles, their exclusive scan, and the tiles after it."""

    plan: Plan
    before: "tuple[Plan, Launches, int] | None" = None

    def run(self, x: Tensor, out: Tensor, accumulator: DType) -> None:
        starts = out
        if self.before is not None:
            totals_plan, rest, size = self.before
            totals = new((size,), accumulator, x.device)
            totals_plan.run(x.ptr, out.ptr, totals.ptr)
            starts = new((size,), accumulator, x.device)
            rest.run(totals, starts, accumulator)
        self.plan.run(x.ptr, out.ptr, starts.ptr)


def launches(
    name: str,
    reduction: Reduction,
    x: DType,
    out: DType,
    device: Device,
    rows: Rows,
    *,
    exclusive: bool = False,
    serial: bool | None = None,
    split: bool | None = None,
) -> Launches:
    """The launches that scan `rows`; `serial` chooses the kernel, `split` whether rows are split."""
    cpu = device.profile.warp_size == 1
    if serial is None:
        serial = cpu or (not rows.unit(0) and rows.inner_strides == (1, 1) and rows.inner >= 32)
    n, tile = rows.length, 16 ** (SERIAL_LEVEL if serial else TILE_LEVEL)
    if split is None:
        few = (num_threads.get() > 1 and rows.count < 4) if cpu else rows.count < FEW_ROWS
        spills = (
            not serial and n > tile and reduction.accumulator.itemsize == 8
        )  # in a loop over tiles of 64-bit numbers
        split = (few and n >= 4 * tile) or spills
    if not split:
        return Launches(_plan(name, reduction, x, out, device, rows, WHOLE, exclusive, serial))
    segments = -(-n // tile)
    accumulator = reduction.accumulator
    totals = rows_of((rows.count, segments), (1,), ((segments, 1), (segments, 1)))
    inner = replace(reduction, prepare=as_is, finish=keep)
    before = (
        _plan(name, reduction, x, out, device, rows, TOTALS, False, serial),
        launches(name, inner, accumulator, accumulator, device, totals, exclusive=True),
        rows.count * segments,
    )
    return Launches(_plan(name, reduction, x, out, device, rows, AFTER, exclusive, serial), before)


_plans: dict[Any, Launches] = {}


def scan(name: str, reduction: Reduction, x: Tensor, axis: int, out: Tensor) -> None:
    """Scan `x` along `axis` into `out`, which has its shape and the dtype of the result; neither is empty.

    Parameters
    ----------
    name
        Operator, for errors and recorders.
    reduction
        What to do; it must suit the dtype of `x`.
    """

    def make() -> Launches:
        rows = rows_of(x.shape, (axis,), (x.strides, out.strides))
        return launches(name, reduction, x.dtype, out.dtype, x.device, rows)

    cached(_plans, (reduction, axis, x.form, out.form), make).run(x, out, reduction.accumulator)
