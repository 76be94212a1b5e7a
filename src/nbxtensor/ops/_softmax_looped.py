"""Softmax of rows of any length, tile by tile in one program.

The first tile gives the terms of the exponentials; one pass sums with them and finds the largest element. Where that
asks for other terms, the row is summed once more. The last pass writes the result.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.reduce import add_group, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    any_row,
    clear_winner,
    differ,
    divisors,
    either,
    emptied,
    guessed,
    larger,
    largest_of,
    log_sum,
    log_sum_of_winner,
    row_exp,
    row_terms,
    wide,
    with_bad,
)
from nbxtensor.kernel.rows import filled, in_row, pointers_of
from nbxtensor.ops._softmax_kernels import (
    after_head,
    below_top,
    blocks_of,
    counted,
    in_lanes,
    load_part,
    result,
    store_part,
    tile_exp,
)


@kernel
def _several(
    x, out, at, end, acc, top, rows, x_walk, out_walk, terms,
    SHAPE: tl.constexpr, WALK: tl.constexpr, TAIL: tl.constexpr, STASH: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Add COUNT tiles to the lanes and to the largest elements; all are loaded first."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    values = ()
    for j in tl.static_range(COUNT):
        values += (load_part(x, at + j * SHAPE[2], end, rows, x_walk, SHAPE, X_FLAGS, TAIL),)
    for j in tl.static_range(COUNT):
        e = tile_exp(values[j], terms, SHAPE, WALK)
        acc += counted(e, at + j * SHAPE[2], end, SHAPE, TAIL)
        top = larger(top, wide(values[j]), WALK[5])
        if STASH:
            store_part(out, e, at + j * SHAPE[2], end, rows, out_walk, SHAPE, OUT_FLAGS, TAIL, False)
    return acc, top


@kernel
def group_sum(
    x, out, begin, end, acc, top, rows, x_walk, out_walk, terms,
    SHAPE: tl.constexpr, WALK: tl.constexpr, TAIL: tl.constexpr, STASH: tl.constexpr, UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Canonical sum of a group's exponentials, and the largest elements so far; STASH: `out` keeps the exponentials.

    `acc` are the lanes before `begin`; TAIL: `end` may come before UNROLL tiles do.
    """
    TILE: tl.constexpr = SHAPE[2]
    FEWER: tl.constexpr = (UNROLL + 1) // 2
    many = begin + (end - begin) // (UNROLL * TILE) * (UNROLL * TILE)
    for at in tl.range(begin, many, UNROLL * TILE, num_stages=STAGES):
        acc, top = _several(x, out, at, end, acc, top, rows, x_walk, out_walk, terms, SHAPE, WALK, False, STASH, UNROLL)
    if TAIL:
        for at in range(many, end, FEWER * TILE):
            acc, top = _several(
                x, out, at, end, acc, top, rows, x_walk, out_walk, terms, SHAPE, WALK, True, STASH, FEWER
            )
    return tree_sum(in_lanes(acc, rows, SHAPE, WALK), SHAPE[0]), top


@kernel
def row_sum(
    x, out, n, values, rows, x_walk, out_walk, terms,
    SHAPE: tl.constexpr, WALK: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    STASH: tl.constexpr, UNROLL: tl.constexpr, HELD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Canonical sum of the exponentials of whole rows, and their largest elements; GROUPS: lanes of group sums.

    `values` are the first HELD tiles.
    """
    GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
    NEAR: tl.constexpr = WALK[0][0] and not STASH
    top = filled(tl.full((), float("-inf"), terms[0].dtype), SHAPE)
    acc = filled(minus_zero(terms[0].dtype), SHAPE)
    for j in tl.static_range(HELD):
        e = tile_exp(values[j], terms, SHAPE, WALK)
        if j == 0:
            e = after_head(e, rows, minus_zero(e.dtype), SHAPE, WALK)
        acc += e
        top = larger(top, wide(values[j]), WALK[5])
    first = HELD * SHAPE[2]
    if GROUPS == 1:
        total, top = group_sum(
            x, out, first, n, acc, top, rows, x_walk, out_walk, terms, SHAPE, WALK, TAIL, STASH, UNROLL,
            STAGES,
        )  # fmt: skip
    else:
        lanes = filled(minus_zero(terms[0].dtype), GROUP_SHAPE)
        for g in range((n + GROUP_SIZE - 1) // GROUP_SIZE):
            begin = g * GROUP_SIZE
            end = tl.minimum(begin + GROUP_SIZE, n)
            start = filled(minus_zero(terms[0].dtype), SHAPE)
            if HELD > 0:
                begin += tl.where(g == 0, first, 0)
                start = tl.where(g == 0, acc, start)
            if NEAR:
                part, top = group_sum(
                    x + begin, out, 0, (end - begin).to(tl.int32), start, top, rows, x_walk, out_walk, terms,
                    SHAPE, WALK, TAIL, STASH, UNROLL, STAGES,
                )  # fmt: skip
            else:
                part, top = group_sum(
                    x, out, begin, end, start, top, rows, x_walk, out_walk, terms,
                    SHAPE, WALK, TAIL, STASH, UNROLL, STAGES,
                )  # fmt: skip
            lanes = add_group(lanes, part, g, rows, SHAPE, GROUPS)
        total = tree_sum(lanes, SHAPE[0])
    return total, largest_of(top, SHAPE[0], WALK[5])


@kernel
def group_rest(
    x, begin, end, rows, x_walk, terms, largest, SHAPE: tl.constexpr, WALK: tl.constexpr, TAIL: tl.constexpr
):
    """Canonical sum of a group's exponentials below the largest element."""
    X_FLAGS: tl.constexpr = WALK[0]
    TILE: tl.constexpr = SHAPE[2]
    acc = filled(minus_zero(terms[0].dtype), SHAPE)
    for at in range(begin, end, TILE):
        v = load_part(x, at, end, rows, x_walk, SHAPE, X_FLAGS, TAIL != 0)
        part = counted(tile_exp(v, terms, SHAPE, WALK), at, end, SHAPE, TAIL != 0)
        if WALK[6]:
            part = tl.where(in_row(0, rows[3] - at, SHAPE), minus_zero(part.dtype), part)
        acc += below_top(v, part, largest, SHAPE)
    return tree_sum(in_lanes(acc, rows, SHAPE, WALK), SHAPE[0])


@kernel
def row_rest(
    x, n, rows, x_walk, terms, largest,
    SHAPE: tl.constexpr, WALK: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Canonical sum of the exponentials below the largest element of whole rows."""
    GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
    if GROUPS == 1:
        rest = group_rest(x, 0, n, rows, x_walk, terms, largest, SHAPE, WALK, TAIL)
    else:
        lanes = filled(minus_zero(terms[0].dtype), GROUP_SHAPE)
        for g in range((n + GROUP_SIZE - 1) // GROUP_SIZE):
            begin = g * GROUP_SIZE
            end = tl.minimum(begin + GROUP_SIZE, n)
            part = group_rest(x, begin, end, rows, x_walk, terms, largest, SHAPE, WALK, TAIL)
            lanes = add_group(lanes, part, g, rows, SHAPE, GROUPS)
        rest = tree_sum(lanes, SHAPE[0])
    return rest


@kernel
def write_several(
    x, out, at, end, rows, x_walk, out_walk, terms, factors,
    SHAPE: tl.constexpr, WALK: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr, STASH: tl.constexpr,
    STREAM: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Write COUNT tiles of the result; all are loaded first."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    values = ()
    for j in tl.static_range(COUNT):
        if STASH:
            values += (load_part(out, at + j * SHAPE[2], end, rows, out_walk, SHAPE, OUT_FLAGS, TAIL),)
        else:
            values += (load_part(x, at + j * SHAPE[2], end, rows, x_walk, SHAPE, X_FLAGS, TAIL),)
    for j in tl.static_range(COUNT):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        elif STASH:
            y = result(0.0, values[j], factors, DTYPE, SHAPE, False)
        else:
            y = result(0.0, tile_exp(values[j], terms, SHAPE, WALK), factors, DTYPE, SHAPE, False)
        store_part(out, y, at + j * SHAPE[2], end, rows, out_walk, SHAPE, OUT_FLAGS, TAIL, STREAM)


@kernel
def softmax_forward_looped_kernel(
    x, out, scratch, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    UNROLL: tl.constexpr, HELD: tl.constexpr, STAGES: tl.constexpr, STASH: tl.constexpr, STREAM: tl.constexpr,
    LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """A block of rows of any length, UNROLL tiles at a time; GROUPS: lanes of the sum of group sums, 1 if it is one.

    The first HELD tiles (all of them whole) stay in registers. The result is written from the end, where the caches
    still have the row.
    """
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    TILE: tl.constexpr = SHAPE[2]
    FEWER: tl.constexpr = (UNROLL + 1) // 2
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    x, out, rows, x_walk, out_walk = blocks_of(
        tl.program_id(0).to(tl.int64), x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer,
        reduced, x_reduced, out_reduced, SHAPE, WALK,
    )  # fmt: skip
    if WALK[6]:
        n += rows[3]
        rows = (rows[0], rows[1], rows[2], rows[3], scratch + tl.program_id(0).to(tl.int64) * TILE)
    values = ()
    for j in tl.static_range(HELD):
        v = load_part(x, j * TILE, n, rows, x_walk, SHAPE, X_FLAGS, False)
        if j == 0:
            v = after_head(v, rows, float("-inf"), SHAPE, WALK)
        values += (v,)
    if HELD > 0:
        seen = wide(values[0])
        for j in tl.static_range(1, HELD):
            seen = larger(seen, wide(values[j]), WALK[5])
    else:
        seen = wide(load_part(x, 0, n, rows, x_walk, SHAPE, X_FLAGS, TAIL and GROUPS == 1))
    guess = guessed(largest_of(seen, SHAPE[0], WALK[5]))
    if WALK[6]:  # takes fewer registers here than one loop, more elsewhere
        terms = row_terms(guess, DTYPE)
        total, seen_most = row_sum(
            x, out, n, values, rows, x_walk, out_walk, terms,
            SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL, STASH, UNROLL, HELD, STAGES,
        )  # fmt: skip
        largest = guessed(seen_most) if SAFE else seen_most
        right = row_terms(largest, DTYPE)
        if differ(terms, right) > 0:
            total, _same = row_sum(
                x, out, n, values, rows, x_walk, out_walk, right,
                SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL, STASH, 1, HELD, 1,
            )  # fmt: skip
        lowest = seen_most == float("-inf")
    else:
        most = guess + 1.0
        total = guess + 2.0
        turns = 2
        while turns > 0:
            terms = row_terms(guess, DTYPE)
            total, most = row_sum(
                x, out, n, values, rows, x_walk, out_walk, terms,
                SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL, STASH, UNROLL, HELD, STAGES,
            )  # fmt: skip
            guess = guessed(most) if SAFE else most
            turns = tl.where(differ(terms, row_terms(guess, DTYPE)) > 0, turns - 1, 0)
        lowest = most == float("-inf")
        largest = guess
    right = row_terms(largest, DTYPE)
    total = with_bad(total, largest)
    if LOG:
        peak = row_exp(largest, right[0], right[1], right[2], DTYPE, WALK[5])
        near = clear_winner(total, peak, DTYPE)
        high, low = log_sum(total, peak, largest, right, DTYPE)
        if any_row(near) > 0:
            rest = row_rest(x, n, rows, x_walk, right, largest, SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL)
            high, low = either(near, log_sum_of_winner(rest, peak, largest, DTYPE), (high, low))
        factors = emptied((high, low), total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    first = HELD * TILE
    many = (n - first) // (UNROLL * TILE)
    if TAIL:
        for at in range(first + many * (UNROLL * TILE), n, FEWER * TILE):
            write_several(
                x, out, at, n, rows, x_walk, out_walk, right, factors, SHAPE, WALK, True, LOG, STASH, STREAM, FEWER
            )
    for i in tl.range(0, many, num_stages=STAGES):
        at = first + (many - 1 - i) * (UNROLL * TILE)
        write_several(
            x, out, at, n, rows, x_walk, out_walk, right, factors, SHAPE, WALK, False, LOG, STASH, STREAM, UNROLL
        )
    for j in tl.static_range(HELD):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, tile_exp(values[j], right, SHAPE, WALK), factors, DTYPE, SHAPE, False)
        if WALK[6] and j == 0:
            begun = in_row(0, rows[3], SHAPE) == 0
            pointers = pointers_of(out, 0, rows, out_walk, SHAPE, OUT_FLAGS)
            tl.store(pointers, cast(y, out.dtype.element_ty), mask=begun, cache_modifier=".cs")
        else:
            store_part(out, y, j * TILE, n, rows, out_walk, SHAPE, OUT_FLAGS, False, STREAM)
