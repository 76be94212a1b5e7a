"""The kernels of canonical scans; the order is that of `nbxtensor.kernel.scan`."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.rows import kept_block, load_tile, offset_of, store_tile
from nbxtensor.kernel.scan_tile import block_before, carry, scan_tile, tile_total

WHOLE, TOTALS, AFTER = 0, 1, 2


@kernel
def _start(
    starts, line, segment, width, IDENTITY: tl.constexpr, COMBINE: tl.constexpr, FOLD: tl.constexpr
):  # fmt: skip
    """What precedes a tile."""
    if FOLD:
        start = block_before(starts + line * width, segment, IDENTITY(), FOLD, COMBINE)
    else:
        start = tl.load(starts + line * width + segment)
    return start


@kernel
def cumulative_tile_kernel(
    x, out, starts, n, inner, blocks, segments, width, x_inner, out_inner, outer, x_outer, out_outer, reduced,
    x_reduced, out_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr, SHAPE: tl.constexpr,
    LEVEL: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, PART: tl.constexpr, LOOP: tl.constexpr,
    TAIL: tl.constexpr, EXCLUSIVE: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    """Whole rows of a block (PART WHOLE), or one tile of one row: its total (TOTALS), its scan after others (AFTER).

    LOOP: rows are longer than a tile; TAIL: the last tile leaves the row. TOTALS writes to `starts`, which is `width`
    long for each row; AFTER finds there what precedes each tile or (FOLD, which is 16 or 256, at least `width`) totals.
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
    line = row * inner + k
    at = segment * TILE
    if PART == TOTALS:
        value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False))
        tl.store(starts + line * width + segment, tile_total(value, LEVEL, COMBINE))
    elif PART == AFTER:
        if at + TILE <= n:
            value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False))
            start = _start(starts, line, segment, width, IDENTITY, COMBINE, FOLD)
            value, total = scan_tile(value, start, LEVEL, COMBINE, EXCLUSIVE)
            store_tile(out, FINISH(value, n), at, n, rows, out_walk, SHAPE, OUT_FLAGS, False)
        else:
            value = PREPARE(load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, True))
            start = _start(starts, line, segment, width, IDENTITY, COMBINE, FOLD)
            value, total = scan_tile(value, start, LEVEL, COMBINE, EXCLUSIVE)
            store_tile(out, FINISH(value, n), at, n, rows, out_walk, SHAPE, OUT_FLAGS, True)
    elif LOOP:
        start = tl.broadcast_to(IDENTITY(), (KEPT,))
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
        start = tl.broadcast_to(IDENTITY(), (KEPT,))
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
