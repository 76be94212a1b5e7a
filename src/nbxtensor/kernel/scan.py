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
from nbxtensor.tensor.tensor import Tensor, new

WHOLE, TOTALS, AFTER = 0, 1, 2
TILE_LEVEL, SERIAL_LEVEL = 3, 4  # 16^level elements are what a program takes of a row that is split
FEW_ROWS = 512  # fewer leave a GPU idle


@kernel
def _parts(x):
    """The 16 columns of x (A * 16 elements in order), each of A elements."""
    x = tl.reshape(x, (x.numel // 16, 2, 2, 2, 2))
    even, odd = tl.split(x)
    a, c = tl.split(even)
    b, d = tl.split(odd)
    a0, a4 = tl.split(a)
    b0, b4 = tl.split(b)
    c0, c4 = tl.split(c)
    d0, d4 = tl.split(d)
    x0, x8 = tl.split(a0)
    x4, x12 = tl.split(a4)
    x1, x9 = tl.split(b0)
    x5, x13 = tl.split(b4)
    x2, x10 = tl.split(c0)
    x6, x14 = tl.split(c4)
    x3, x11 = tl.split(d0)
    x7, x15 = tl.split(d4)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@kernel
def _whole(x):
    """The inverse of `_parts`."""
    a0, a4 = tl.join(x[0], x[8]), tl.join(x[4], x[12])
    b0, b4 = tl.join(x[1], x[9]), tl.join(x[5], x[13])
    c0, c4 = tl.join(x[2], x[10]), tl.join(x[6], x[14])
    d0, d4 = tl.join(x[3], x[11]), tl.join(x[7], x[15])
    even = tl.join(tl.join(a0, a4), tl.join(c0, c4))
    odd = tl.join(tl.join(b0, b4), tl.join(d0, d4))
    joined = tl.join(even, odd)
    return tl.reshape(joined, (joined.numel,))


@kernel
def _chains(x, COMBINE: tl.constexpr):
    """Chains over the parts: the k-th combines parts 0 to k."""
    s0 = x[0]
    s1 = COMBINE(s0, x[1])
    s2 = COMBINE(s1, x[2])
    s3 = COMBINE(s2, x[3])
    s4 = COMBINE(s3, x[4])
    s5 = COMBINE(s4, x[5])
    s6 = COMBINE(s5, x[6])
    s7 = COMBINE(s6, x[7])
    s8 = COMBINE(s7, x[8])
    s9 = COMBINE(s8, x[9])
    s10 = COMBINE(s9, x[10])
    s11 = COMBINE(s10, x[11])
    s12 = COMBINE(s11, x[12])
    s13 = COMBINE(s12, x[13])
    s14 = COMBINE(s13, x[14])
    s15 = COMBINE(s14, x[15])
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15


@kernel
def _after(base, s, COMBINE: tl.constexpr):
    """Each chain after `base`."""
    return (
        COMBINE(base, s[0]), COMBINE(base, s[1]), COMBINE(base, s[2]), COMBINE(base, s[3]),
        COMBINE(base, s[4]), COMBINE(base, s[5]), COMBINE(base, s[6]), COMBINE(base, s[7]),
        COMBINE(base, s[8]), COMBINE(base, s[9]), COMBINE(base, s[10]), COMBINE(base, s[11]),
        COMBINE(base, s[12]), COMBINE(base, s[13]), COMBINE(base, s[14]), COMBINE(base, s[15]),
    )  # fmt: skip


@kernel
def _before(base, s, COMBINE: tl.constexpr):
    """What precedes each part: `base`, then `base` with each chain but the last."""
    return (
        base, COMBINE(base, s[0]), COMBINE(base, s[1]), COMBINE(base, s[2]),
        COMBINE(base, s[3]), COMBINE(base, s[4]), COMBINE(base, s[5]), COMBINE(base, s[6]),
        COMBINE(base, s[7]), COMBINE(base, s[8]), COMBINE(base, s[9]), COMBINE(base, s[10]),
        COMBINE(base, s[11]), COMBINE(base, s[12]), COMBINE(base, s[13]), COMBINE(base, s[14]),
    )  # fmt: skip


@kernel
def _chains_across(t, COMBINE: tl.constexpr):
    """For t as rows of 16: the chain before each element but the first, (A, 16), and the whole chains (A,).

    Every lane works out all sixteen steps: the totals are few, and this keeps one value in each lane.
    """
    rows = tl.reshape(t, (t.numel // 16, 16))
    column = tl.arange(0, 16)[None, :]
    chain = tl.gather(rows, tl.full(rows.shape, 0, tl.int32), 1)
    before = rows
    for k in tl.static_range(1, 16):
        before = tl.where(column == k, chain, before)
        chain = COMBINE(chain, tl.gather(rows, tl.full(rows.shape, k, tl.int32), 1))
    if t.dtype.primitive_bitwidth == 64:
        bits = chain.to(tl.int64, bitcast=True)
    else:
        bits = chain.to(tl.int32, bitcast=True)
    return before, tl.max(bits, 1).to(t.dtype, bitcast=True)  # all sixteen are the same


@kernel
def _start_across(base, before, COMBINE: tl.constexpr):
    """What precedes each element of the rows of `_chains_across` after `base` (A,), flat."""
    column = tl.arange(0, 16)[None, :]
    start = base[:, None]
    r = tl.where(column == 0, tl.broadcast_to(start, before.shape), COMBINE(start, before))
    return tl.reshape(r, (r.numel,))


@kernel
def scan_tile(x, base, LEVEL: tl.constexpr, COMBINE: tl.constexpr, EXCLUSIVE: tl.constexpr):
    """Scan each row of x (KEPT, 16^LEVEL) after `base` (KEPT,): the scan, and the totals of the rows (KEPT,)."""
    first = _chains(_parts(x), COMBINE)
    total = first[15]
    start = base
    if LEVEL == 2:
        second, total = _chains_across(total, COMBINE)
        start = _start_across(base, second, COMBINE)
    elif LEVEL == 3:
        second, total = _chains_across(total, COMBINE)
        third, total = _chains_across(total, COMBINE)
        start = _start_across(_start_across(base, third, COMBINE), second, COMBINE)
    if EXCLUSIVE:
        r = _whole(_before(start, first, COMBINE))
    else:
        r = _whole(_after(start, first, COMBINE))
    return tl.reshape(r, x.shape), total


@kernel
def tile_total(x, LEVEL: tl.constexpr, COMBINE: tl.constexpr):
    """The totals of the rows of x (KEPT, 16^LEVEL)."""
    total = _chains(_parts(x), COMBINE)[15]
    for _ in tl.static_range(LEVEL - 1):
        _before_each, total = _chains_across(total, COMBINE)
    return total


@kernel
def _carry(c, above, start, total, done, empty, COMBINE: tl.constexpr):
    """The chains of the levels, and the prefix of all but the first, after `done` blocks; `total` is the last one's."""
    c0, c1, c2, c3, c4, c5, c6 = c
    c0 = COMBINE(c0, total)
    if done % 16 == 0:
        c1 = COMBINE(c1, c0)
        c0 = empty
        if done % 256 == 0:
            c2 = COMBINE(c2, c1)
            c1 = empty
            if done % 4096 == 0:
                c3 = COMBINE(c3, c2)
                c2 = empty
                if done % 65536 == 0:
                    c4 = COMBINE(c4, c3)
                    c3 = empty
                    if done % 1048576 == 0:
                        c5 = COMBINE(c5, c4)
                        c4 = empty
                        if done % 16777216 == 0:
                            c6 = COMBINE(c6, c5)
                            c5 = empty
        above = COMBINE(COMBINE(COMBINE(start, c6), c5), c4)
        above = COMBINE(COMBINE(COMBINE(above, c3), c2), c1)
    return (c0, c1, c2, c3, c4, c5, c6), above


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
            c, above = _carry(c, above, start, total, at // TILE + 1, start, COMBINE)
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
        c, above = _carry(c, above, start, value, block + 1, empty, COMBINE)
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
