"""Softmax of rows that fit in the registers of a program, and what all kernels of softmax share.

All kernels take the terms of the exponentials from the exact maximum and sum in the canonical order: they give the same
bits.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.reduce import add, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    any_row,
    clear_winner,
    divisors,
    either,
    emptied,
    larger,
    largest_of,
    log_sum,
    log_sum_of_winner,
    minus_log_sum,
    quotient,
    row_exp,
    row_terms,
    wide,
    with_bad,
)
from nbxtensor.kernel.rows import in_row, in_tile, load_tile, offset_of, per_row, pointers_of

# In the helpers below WALK is ``(X_FLAGS, OUT_FLAGS, VEC, ONE, NARROW, LEAN, SHIFT, ALIKE)``: the flags of
# `nbxtensor.kernel.rows`; a power of two that divides row lengths and steps between rows, which are handed over divided
# by it; whether there is one outer index; whether offsets inside a block of rows fit in 32 bits; see
# `nbxtensor.kernel.row_exp`; 0, or the elements of a vector: then tiles start at whole vectors, and the row so many
# elements later as ``rows[3]`` says, with ``rows[4]`` for a tile of lanes; whether the step between rows is the same in
# both operands.


@kernel
def block_of(x, step, block, offset, SHAPE: tl.constexpr, DENSE: tl.constexpr, VEC: tl.constexpr, NARROW: tl.constexpr):
    """First row of a block of rows of `x`, and the step between its rows."""
    x += offset * VEC
    if DENSE:
        x += block * SHAPE[1]
    else:
        x += block * SHAPE[1] * (step * VEC)
    step = step * VEC
    if NARROW:
        step = step.to(tl.int32)
    return x, step


@kernel
def blocks_of(
    program, x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr,
):  # fmt: skip
    """The block of rows of a program: first rows of both operands, `rows` and both walks of `nbxtensor.kernel.rows`."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    shift = program * 0
    if WALK[6]:
        at = program * (x_inner * WALK[2])
        shift = at % WALK[6]
        x += at // WALK[6] * WALK[6]
        out += at // WALK[6] * WALK[6]
        program = program * 0
        inner = program + 1
    if WALK[3]:
        block = program
        x_offset = program * 0
        out_offset = x_offset
    else:
        block = program % blocks
        row = program // blocks
        x_offset = offset_of(row, outer, x_outer)
        out_offset = offset_of(row, outer, out_outer)
    if WALK[7]:
        out_inner = x_inner
    x, x_step = block_of(x, x_inner, block, x_offset, SHAPE, X_FLAGS[1], WALK[2], WALK[4])
    out, out_step = block_of(out, out_inner, block, out_offset, SHAPE, OUT_FLAGS[1], WALK[2], WALK[4])
    k = tl.arange(0, SHAPE[1])
    left = tl.minimum(inner - block * SHAPE[1], SHAPE[1]).to(tl.int32)
    if not WALK[4]:
        k = k.to(tl.int64)
    return x, out, (k, left, reduced, shift.to(tl.int32)), (x_step, x_reduced), (out_step, out_reduced)


# AXIS of SHAPE is 0 or 1 as in `nbxtensor.kernel.rows`, or 2 and more: rows, which are contiguous, are folded into so
# many parts, and the tile lies (kept, part, element of the part), so that a thread holds elements of each part.


@kernel
def along_parts(SHAPE: tl.constexpr):
    """Positions in the tile of the elements of a folded row."""
    SIZE: tl.constexpr = SHAPE[2] // SHAPE[0]
    return tl.arange(0, SHAPE[0])[None, :, None] * SIZE + tl.arange(0, SIZE)[None, None, :]


@kernel
def spread(value, SHAPE: tl.constexpr):
    """One value a row, in the shape that broadcasts against a tile."""
    if SHAPE[0] < 2:
        value = per_row(value, SHAPE)
    else:
        value = value[:, None, None]
    return value


@kernel
def left_of(at, end, SHAPE: tl.constexpr):
    """Elements from `at` to `end`, a tile at most: in 32 bits however far the end is."""
    return tl.minimum(end - at, SHAPE[2]).to(tl.int32)


@kernel
def valid_part(at, end, SHAPE: tl.constexpr):
    """Which elements of the tile that starts at `at` lie before `end`."""
    left = left_of(at, end, SHAPE)
    if SHAPE[0] < 2:
        valid = in_row(0, left, SHAPE)
    else:
        valid = along_parts(SHAPE) < left
    return valid


@kernel
def folded(x, at, end, rows, walk, SHAPE: tl.constexpr, TAIL: tl.constexpr):
    """Pointers of a tile of folded rows, and which of them are in the block and (TAIL) in the row."""
    pointers = (x + at + (rows[0] * walk[0])[:, None, None]) + along_parts(SHAPE)
    mask = spread(rows[0] < rows[1], SHAPE)
    if TAIL:
        mask = mask & valid_part(at, end, SHAPE)
    return pointers, mask


@kernel
def load_part(x, at, end, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr):
    """Elements of the tile that starts at `at`, as they are; TAIL: -inf from `end` on."""
    if SHAPE[0] >= 2:
        pointers, mask = folded(x, at, end, rows, walk, SHAPE, TAIL)
        if SHAPE[3] or TAIL:
            v = tl.load(pointers, mask=mask, other=0)
        else:
            v = tl.load(pointers)
    elif FLAGS[0]:
        v = load_tile(x + at, 0, left_of(at, end, SHAPE) if TAIL else 0, rows, walk, SHAPE, FLAGS, TAIL)
    else:
        v = load_tile(x, at, end, rows, walk, SHAPE, FLAGS, TAIL)
    if TAIL:
        v = tl.where(valid_part(at, end, SHAPE), v, float("-inf"))
    return v


@kernel
def store_part(
    out, y, at, end, rows, walk,
    SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """Store a tile where `load_part` would load it; STREAM: it is to leave the caches first."""
    CACHE: tl.constexpr = ".cs" if STREAM else ""
    y = cast(y, out.dtype.element_ty)
    if SHAPE[0] >= 2:
        pointers, mask = folded(out, at, end, rows, walk, SHAPE, TAIL)
    else:
        if SHAPE[3]:
            mask = in_tile(0, left_of(at, end, SHAPE) if TAIL else 0, rows, SHAPE, TAIL)
        else:
            mask = valid_part(at, end, SHAPE)
        if FLAGS[0]:
            pointers = pointers_of(out + at, 0, rows, walk, SHAPE, FLAGS)
        else:
            pointers = pointers_of(out, at, rows, walk, SHAPE, FLAGS)
    if SHAPE[3] or TAIL:
        tl.store(pointers, y, mask=mask, cache_modifier=CACHE)
    else:
        tl.store(pointers, y, cache_modifier=CACHE)


@kernel
def after_head(v, rows, other, SHAPE: tl.constexpr, WALK: tl.constexpr):
    """The first tile of a row: `other` where the row has not begun."""
    if WALK[6]:
        v = tl.where(in_row(0, rows[3], SHAPE), other, v)
    return v


@kernel
def in_lanes(acc, rows, SHAPE: tl.constexpr, WALK: tl.constexpr):
    """Sums of the lanes in the order of the row, of which the first is not the first of the tile."""
    if WALK[6]:
        i = tl.arange(0, SHAPE[2])[None, :]
        tl.store(rows[4] + i, acc)
        tl.debug_barrier()
        acc = tl.load(rows[4] + (i + rows[3]) % SHAPE[2])
        tl.debug_barrier()
    return acc


@kernel
def tile_exp(v, terms, SHAPE: tl.constexpr, WALK: tl.constexpr):
    """Exponentials of a tile of elements as they were loaded."""
    first, low, rounding = spread(terms[0], SHAPE), spread(terms[1], SHAPE), spread(terms[2], SHAPE)
    return row_exp(wide(v), first, low, rounding, v.dtype, WALK[5])


@kernel
def counted(e, at, end, SHAPE: tl.constexpr, TAIL: tl.constexpr):
    """What a tile adds to the lanes of the sum."""
    if TAIL:
        e = tl.where(valid_part(at, end, SHAPE), e, minus_zero(e.dtype))
    return e


@kernel
def below_top(v, part, largest, SHAPE: tl.constexpr):
    """What a tile adds to the lanes of the sum over all that is below the largest element."""
    return tl.where(wide(v) == spread(largest, SHAPE), minus_zero(part.dtype), part)


@kernel
def sum_of(x, AXIS: tl.constexpr):
    """Canonical sum over the rows of a tile."""
    if AXIS < 2:
        total = tree_sum(x, AXIS)
    else:
        x = tl.reshape(x, (x.shape[0], x.shape[1], x.shape[2] // 4, 2, 2))
        x = tl.reduce(tl.reduce(x, 4, add), 3, add)
        for _ in tl.static_range(12):
            if x.shape[1] > 1:
                x = tl.reduce(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2, x.shape[2])), 1, add)
        total = halved(tl.reshape(x, (x.shape[0], x.shape[2])))
    return total


@kernel
def halved(x):
    """The canonical tree along the second axis from its third step on: first half plus second half."""
    for _ in tl.static_range(12):
        if x.shape[1] > 1:
            x = tl.reduce(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), 1, add)
    return tl.reshape(x, (x.shape[0],))


@kernel
def result(v, e, factors, DTYPE: tl.constexpr, SHAPE: tl.constexpr, LOG: tl.constexpr):
    """A tile of the result: ``e / total`` of factors (total, 1 / total), or (LOG) ``v - (high + low)``."""
    if LOG:
        y = minus_log_sum(wide(v), spread(factors[0], SHAPE), spread(factors[1], SHAPE), DTYPE)
    else:
        y = quotient(e, spread(factors[0], SHAPE), spread(factors[1], SHAPE), DTYPE)
    return y


@kernel
def softmax_forward_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, TILES: tl.constexpr, TAIL: tl.constexpr,
    LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """A block of whole rows in registers, as TILES tiles along the row; TAIL: the last one is not full."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    TILE: tl.constexpr = SHAPE[2]
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    x, out, rows, x_walk, out_walk = blocks_of(
        tl.program_id(0).to(tl.int64), x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer,
        reduced, x_reduced, out_reduced, SHAPE, WALK,
    )  # fmt: skip
    values = ()
    for j in tl.static_range(TILES):
        v = load_part(x, j * TILE, n, rows, x_walk, SHAPE, X_FLAGS, TAIL and j == TILES - 1)
        if j == 0:
            top = wide(v)
        else:
            top = larger(top, wide(v), WALK[5])
        values += (v,)
    largest = largest_of(top, SHAPE[0], WALK[5])
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest, DTYPE)
    powers = ()
    for j in tl.static_range(TILES):
        e = tile_exp(values[j], terms, SHAPE, WALK)
        part = counted(e, j * TILE, n, SHAPE, TAIL and j == TILES - 1)
        if j == 0:
            acc = part
        else:
            acc += part
        if not LOG:
            powers += (e,)
    total = with_bad(sum_of(acc, SHAPE[0]), largest)
    if LOG:
        peak = row_exp(largest, terms[0], terms[1], terms[2], DTYPE, WALK[5])
        near = clear_winner(total, peak, DTYPE)
        high, low = log_sum(total, peak, largest, terms, DTYPE)
        if any_row(near) > 0:
            # As if the terms were others: the exponentials are computed again, nothing is kept for this from above. In
            # 32 bits, where bytes are what bounds, those of one tile are kept.
            zero = (n >> 62).to(total.dtype)
            again = terms[0] + zero, terms[1] + zero, terms[2]
            for j in tl.static_range(TILES):
                if TILES == 1 and not (WALK[5] and DTYPE.primitive_bitwidth == 16):
                    part = acc
                else:
                    e = tile_exp(values[j], again, SHAPE, WALK)
                    part = counted(e, j * TILE, n, SHAPE, TAIL and j == TILES - 1)
                below = below_top(values[j], part, largest, SHAPE)
                if j == 0:
                    others = below
                else:
                    others += below
            winner = log_sum_of_winner(sum_of(others, SHAPE[0]), peak, largest, DTYPE)
            high, low = either(near, winner, (high, low))
        factors = emptied((high, low), total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    for j in tl.static_range(TILES):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, powers[j], factors, DTYPE, SHAPE, False)
        store_part(out, y, j * TILE, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL and j == TILES - 1, False)
