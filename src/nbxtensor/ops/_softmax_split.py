"""Softmax of long rows split over programs, by three launches.

The first sums the lanes of a group, a block of lanes a program, with terms guessed from what the program sees. The
second makes them sums of groups; a group with a program that guessed wrong is summed again. The third writes the
result. The lanes and the tree over them are those of the canonical sum.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import add, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    clear_winner,
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
from nbxtensor.kernel.rows import filled
from nbxtensor.ops._softmax_kernels import below_top, blocks_of, counted, load_part, result, store_part, tile_exp
from nbxtensor.ops._softmax_looped import group_rest, group_sum, row_rest, row_sum

# What the launches hand on for each row and group: `tops`, the largest element that each block of lanes saw; `nodes`,
# the lanes added in fours, and (LOG) `rests`, the same without the largest element; then in `sums` the sum of the
# group, the largest element of the row, and (LOG) the sum without it.
HANDED_ON = 3


@kernel
def _fours(x, AXIS: tl.constexpr):
    """The first two steps of the canonical tree over the lanes: neighbours, and neighbours again."""
    if AXIS == 1:
        x = tl.reshape(x, (x.shape[0], x.shape[1] // 4, 2, 2))
        x = tl.reduce(tl.reduce(x, 3, add), 2, add)
    else:
        x = tl.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1]))
        x = tl.reduce(tl.reduce(x, 2, add), 1, add)
        x = tl.trans(x)
    return x


@kernel
def _halved(x):
    """The rest of the canonical tree along the second axis: first half plus second half."""
    for _ in tl.static_range(12):
        if x.shape[1] > 1:
            x = tl.reduce(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), 1, add)
    return tl.reshape(x, (x.shape[0],))


@kernel
def _numbers(program, inner, blocks, SHAPE: tl.constexpr, WALK: tl.constexpr):
    """Numbers of the rows of a block among all rows, and which of them exist."""
    local = tl.arange(0, SHAPE[1])
    if WALK[3]:
        outer, block = program * 0, program
    else:
        outer, block = program // blocks, program % blocks
    k = block * SHAPE[1] + local
    return outer * inner + k, k < inner


@kernel
def softmax_split_lanes_kernel(
    x, tops, nodes, rests, n, inner, blocks, groups, x_inner, outer, x_outer, reduced, x_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LANES: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    LOG: tl.constexpr,
):  # fmt: skip
    """Sum SHAPE[2] neighbouring lanes of a group of each row of a block."""
    X_FLAGS: tl.constexpr = WALK[0]
    WIDTH: tl.constexpr = SHAPE[2]
    PARTS: tl.constexpr = LANES // WIDTH
    STEPS: tl.constexpr = GROUP_SIZE // LANES
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program = tl.program_id(0).to(tl.int64)
    lanes = program % PARTS
    program = program // PARTS
    group = program % groups
    program = program // groups
    x, _, rows, x_walk, _ = blocks_of(
        program, x, x, inner, blocks, x_inner, x_inner, outer, x_outer, x_outer, reduced, x_reduced, x_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    begin = group * GROUP_SIZE + lanes * WIDTH
    end = tl.minimum(group * GROUP_SIZE + GROUP_SIZE, n)
    values = ()
    for j in tl.static_range(STEPS):
        v = load_part(x, begin + j * LANES, end, rows, x_walk, SHAPE, X_FLAGS, TAIL)
        if j == 0:
            top = wide(v)
        else:
            top = larger(top, wide(v), WALK[5])
        values += (v,)
    largest = largest_of(top, SHAPE[0], WALK[5])
    terms = row_terms(guessed(largest), DTYPE)
    for j in tl.static_range(STEPS):
        e = tile_exp(values[j], terms, SHAPE, WALK)
        at = begin + j * LANES
        part = counted(e, at, end, SHAPE, TAIL)
        if j == 0:
            acc = part
        else:
            acc += part
        if LOG:
            below = below_top(values[j], part, largest, SHAPE)
            if j == 0:
                rest = below
            else:
                rest += below
    k, mask = _numbers(program, inner, blocks, SHAPE, WALK)
    place = (k * groups + group) * PARTS + lanes
    tl.store(tops + place, largest, mask=mask)
    along = tl.arange(0, WIDTH // 4)
    pointers = place[:, None] * (WIDTH // 4) + along[None, :]
    tl.store(nodes + pointers, _fours(acc, SHAPE[0]), mask=mask[:, None])
    if LOG:
        tl.store(rests + pointers, _fours(rest, SHAPE[0]), mask=mask[:, None])


@kernel
def softmax_split_groups_kernel(
    x, tops, nodes, rests, sums, n, inner, groups, x_inner, outer, x_outer, reduced, x_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, PARTS: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    MANY: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Sum one group of one row: from its nodes, or again where another range of terms is right."""
    NODES: tl.constexpr = SHAPE[2] // 4
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program = tl.program_id(0).to(tl.int64)
    group = program % groups
    row = program // groups
    i = tl.arange(0, MANY)
    highest = tl.full((MANY,), float("-inf"), tops.dtype.element_ty)
    for at in range(0, groups * PARTS, MANY):
        here = tl.load(tops + row * groups * PARTS + at + i, mask=at + i < groups * PARTS, other=float("-inf"))
        highest = larger(highest, here, WALK[5])
    seen = largest_of(highest, 0, WALK[5])
    largest = seen
    if SAFE:
        largest = guessed(seen)
    right = row_terms(largest, DTYPE)
    each = tl.arange(0, PARTS)
    own = tl.load(tops + program * PARTS + each)
    terms = row_terms(guessed(own), DTYPE)
    wrong = tl.max(((terms[0] != right[0]) | (terms[2] != right[2])).to(tl.int32), 0) > 0
    along = tl.arange(0, NODES)[None, :]
    whole = tl.load(nodes + program * NODES + along)
    total = tl.sum(_halved(whole), 0)
    if LOG:
        # Where a block of lanes never saw the largest element, all that it summed is below it.
        top = tl.load(tops + program * PARTS + along // (NODES // PARTS))
        below = tl.load(rests + program * NODES + along)
        rest = tl.sum(_halved(tl.where(top == largest, below, whole)), 0)
    if wrong:
        other = (
            tl.broadcast_to(right[0], (1,)),
            tl.broadcast_to(right[1], (1,)),
            tl.broadcast_to(right[2], (1,)),
        )
        x, _, rows, x_walk, _ = blocks_of(
            row, x, x, inner, inner, x_inner, x_inner, outer, x_outer, x_outer, reduced, x_reduced, x_reduced,
            SHAPE, WALK,
        )  # fmt: skip
        begin = group * GROUP_SIZE
        end = tl.minimum(begin + GROUP_SIZE, n)
        start = filled(tl.full((), float("-inf"), total.dtype), SHAPE)
        acc = filled(minus_zero(total.dtype), SHAPE)
        again, start = group_sum(x, x, begin, end, acc, start, rows, x_walk, x_walk, other, SHAPE, WALK, TAIL, False, 1)
        total = tl.sum(again, 0)
        if LOG:
            most = tl.broadcast_to(largest, (1,))
            rest = tl.sum(group_rest(x, begin, end, rows, x_walk, other, most, SHAPE, WALK, TAIL), 0)
    sums += program * HANDED_ON
    tl.store(sums, total)
    tl.store(sums + 1, seen)
    if LOG:
        tl.store(sums + 2, rest)


@kernel
def _lanes_of_groups(sums, groups, k, mask, SHAPE: tl.constexpr, LANES: tl.constexpr):
    """Group sums of each row, in the lanes of their canonical sum; the tile lies (row, lane)."""
    g = tl.arange(0, LANES)
    zero = minus_zero(sums.dtype.element_ty)
    acc = tl.broadcast_to(zero, (SHAPE[1], LANES))
    for at in range(0, groups, LANES):
        valid = mask[:, None] & (at + g < groups)[None, :]
        part = tl.load(sums + (k[:, None] * groups + (at + g)[None, :]) * HANDED_ON, mask=valid, other=0.0)
        acc += tl.where(valid, part, zero)
    return tree_sum(acc, 1)


@kernel
def softmax_split_write_kernel(
    x, sums, out, n, inner, blocks, chunks, groups, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, TAIL: tl.constexpr,
    STREAM: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Write COUNT tiles of a block of rows; LANES: lanes of the sum over group sums."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program = tl.program_id(0).to(tl.int64)
    begin = program % chunks * (COUNT * SHAPE[2])
    block = program // chunks
    x, out, rows, x_walk, out_walk = blocks_of(
        block, x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    values = ()
    for j in tl.static_range(COUNT):
        values += (load_part(x, begin + j * SHAPE[2], n, rows, x_walk, SHAPE, X_FLAGS, TAIL),)
    k, mask = _numbers(block, inner, blocks, SHAPE, WALK)
    largest = tl.load(sums + k * groups * HANDED_ON + 1, mask=mask, other=0.0)
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest, DTYPE)
    total = with_bad(_lanes_of_groups(sums, groups, k, mask, SHAPE, LANES), largest)
    if LOG:
        peak = row_exp(largest, terms[0], terms[1], terms[2], DTYPE, WALK[5])
        rest = _lanes_of_groups(sums + 2, groups, k, mask, SHAPE, LANES)
        winner = log_sum_of_winner(rest, peak, largest, DTYPE)
        factors = either(clear_winner(total, peak), winner, log_sum(total, peak, largest, terms, DTYPE))
        factors = emptied(factors, total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    for j in tl.static_range(COUNT):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, tile_exp(values[j], terms, SHAPE, WALK), factors, DTYPE, SHAPE, False)
        store_part(out, y, begin + j * SHAPE[2], n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL, STREAM)


@kernel
def softmax_split_finish_kernel(
    x, tops, nodes, rests, out, n, inner, chunks, groups, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, STREAM: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """The second and third launch in one, for rows of at most GROUPS groups (4): write COUNT tiles of one row."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    DTYPE: tl.constexpr = x.dtype.element_ty
    NODES: tl.constexpr = SHAPE[2] // 4
    n = n * WALK[2]
    program = tl.program_id(0).to(tl.int64)
    begin = program % chunks * (COUNT * SHAPE[2])
    row = program // chunks
    x, out, rows, x_walk, out_walk = blocks_of(
        row, x, out, inner, inner, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    values = ()
    for j in tl.static_range(COUNT):
        values += (load_part(x, begin + j * SHAPE[2], n, rows, x_walk, SHAPE, X_FLAGS, TAIL),)
    tops += row * groups * PARTS
    i = tl.arange(0, GROUPS * PARTS)
    each = tl.load(tops + i, mask=i < groups * PARTS, other=float("-inf"))
    largest = tl.broadcast_to(largest_of(each, 0, WALK[5]), (1,))
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    right = row_terms(largest, DTYPE)
    terms = row_terms(guessed(each), DTYPE)
    wrong = ((terms[0] != right[0]) | (terms[2] != right[2])) & (i < groups * PARTS)
    g = tl.arange(0, GROUPS)[:, None]
    along = tl.arange(0, NODES)[None, :]
    zero = minus_zero(tops.dtype.element_ty)
    place = row * groups * NODES + g * NODES + along
    whole = tl.where(g < groups, tl.load(nodes + place, mask=g < groups, other=0.0), zero)
    total = tree_sum(tl.reshape(_halved(whole), (1, GROUPS)), 1)
    if LOG:
        top = tl.load(tops + g * PARTS + along // (NODES // PARTS), mask=g < groups, other=0.0)
        below = tl.where(g < groups, tl.load(rests + place, mask=g < groups, other=0.0), zero)
        rest = tree_sum(tl.reshape(_halved(tl.where(top == largest[:, None], below, whole)), (1, GROUPS)), 1)
    if tl.max(wrong.to(tl.int32), 0) > 0:
        total, _same = row_sum(
            x, out, n, (), rows, x_walk, out_walk, right, SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL, False, 1, 0
        )
        if LOG:
            rest = row_rest(x, n, rows, x_walk, right, largest, SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL)
    total = with_bad(total, largest)
    if LOG:
        peak = row_exp(largest, right[0], right[1], right[2], DTYPE, WALK[5])
        winner = log_sum_of_winner(rest, peak, largest, DTYPE)
        factors = either(clear_winner(total, peak), winner, log_sum(total, peak, largest, right, DTYPE))
        factors = emptied(factors, total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    for j in tl.static_range(COUNT):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, tile_exp(values[j], right, SHAPE, WALK), factors, DTYPE, SHAPE, False)
        store_part(out, y, begin + j * SHAPE[2], n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL, STREAM)
