"""Softmax of long rows split over programs, by three launches.

The first sums the lanes of a group, a block of lanes a program, with terms guessed from the start of what the program
sees; the second makes what the blocks left sums of groups; the third writes. Where a block was summed with a wrong
guess, its group is summed again. The lanes and the tree over them are those of the canonical sum.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import add, minus_zero
from nbxtensor.kernel.row_exp import (
    any_row,
    guessed,
    larger,
    largest_of,
    row_terms,
    wide,
)
from nbxtensor.kernel.rows import filled
from nbxtensor.ops._softmax_kernels import (
    below_top,
    blocks_of,
    counted,
    halved,
    load_part,
    tile_exp,
)
from nbxtensor.ops._softmax_looped import group_rest, group_sum

# What the launches hand on for each row and group: of each block of lanes `tops`, its largest element, and `guesses`,
# the largest element of its start, which gave its terms; `nodes`, the lanes added in fours; then in `sums` the sum of
# the group, the largest element of the row, and (LOG) the sum without it.
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
def divided(program, by):
    """Quotient and remainder of the number of a program, in 32 bits, where GPUs divide in a few instructions."""
    by = tl.full((), 1, tl.int64) * by
    quotient = program // by.to(tl.int32)
    return quotient.to(tl.int64), (program - quotient * by.to(tl.int32)).to(tl.int64)


@kernel
def numbers(program, inner, blocks, SHAPE: tl.constexpr, WALK: tl.constexpr):
    """Numbers of the rows of a block among all rows, and which of them exist."""
    local = tl.arange(0, SHAPE[1])
    if WALK[3]:
        outer, block = program * 0, program
    else:
        outer, block = program // blocks, program % blocks
    k = block * SHAPE[1] + local
    return outer * inner + k, k < inner


@kernel
def _steps(
    x, at, end, acc, top, rows, walk, terms, largest,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LANES: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Add COUNT elements to each lane of a block (BELOW: but the largest); all are loaded first."""
    X_FLAGS: tl.constexpr = WALK[0]
    values = ()
    for j in tl.static_range(COUNT):
        values += (load_part(x, at + j * LANES, end, rows, walk, SHAPE, X_FLAGS, TAIL),)
    for j in tl.static_range(COUNT):
        part = counted(tile_exp(values[j], terms, SHAPE, WALK), at + j * LANES, end, SHAPE, TAIL)
        if BELOW:
            part = below_top(values[j], part, largest, SHAPE)
        acc += part
        top = larger(top, wide(values[j]), WALK[5])
    return acc, top


@kernel
def _block(
    x, begin, first, end, acc, top, rows, walk, terms, largest,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LANES: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr,
    UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The sums of a block of lanes that starts at `begin`, and the largest elements; what lies before `first` is in."""
    whole = begin + (tl.maximum(end - begin, 0) + (LANES - SHAPE[2])) // LANES * LANES
    many = first + tl.maximum(whole - first, 0) // (UNROLL * LANES) * (UNROLL * LANES)
    for at in tl.range(first, many, UNROLL * LANES, num_stages=STAGES):
        acc, top = _steps(x, at, end, acc, top, rows, walk, terms, largest, SHAPE, WALK, LANES, False, BELOW, UNROLL)
    for at in range(many, whole, LANES):
        acc, top = _steps(x, at, end, acc, top, rows, walk, terms, largest, SHAPE, WALK, LANES, False, BELOW, 1)
    if TAIL:
        rest = tl.maximum(first, whole)
        acc, top = _steps(x, rest, end, acc, top, rows, walk, terms, largest, SHAPE, WALK, LANES, True, BELOW, 1)
    return acc, top


@kernel
def softmax_split_lanes_kernel(
    x, tops, guesses, nodes, n, inner, blocks, groups, x_inner, outer, x_outer, reduced, x_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LANES: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum SHAPE[2] neighbouring lanes of a group of each row of a block, UNROLL elements of each at a time."""
    X_FLAGS: tl.constexpr = WALK[0]
    WIDTH: tl.constexpr = SHAPE[2]
    PARTS: tl.constexpr = LANES // WIDTH
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program, lanes = divided(tl.program_id(0), PARTS)
    program, group = divided(program.to(tl.int32), groups)
    x, _, rows, walk, _ = blocks_of(
        program, x, x, inner, blocks, x_inner, x_inner, outer, x_outer, x_outer, reduced, x_reduced, x_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    begin = group * GROUP_SIZE + lanes * WIDTH
    end = tl.minimum(group * GROUP_SIZE + GROUP_SIZE, n)
    values = ()
    for j in tl.static_range(UNROLL):
        v = load_part(x, begin + j * LANES, end, rows, walk, SHAPE, X_FLAGS, TAIL)
        if j == 0:
            top = wide(v)
        else:
            top = larger(top, wide(v), WALK[5])
        values += (v,)
    guess = largest_of(top, SHAPE[0], WALK[5])
    terms = row_terms(guessed(guess), DTYPE)
    for j in tl.static_range(UNROLL):
        part = counted(tile_exp(values[j], terms, SHAPE, WALK), begin + j * LANES, end, SHAPE, TAIL)
        if j == 0:
            acc = part
        else:
            acc += part
    first = begin + UNROLL * LANES
    acc, top = _block(
        x, begin, first, end, acc, top, rows, walk, terms, guess, SHAPE, WALK, LANES, TAIL, False, UNROLL, STAGES
    )
    k, mask = numbers(program, inner, blocks, SHAPE, WALK)
    place = (k * groups + group) * PARTS + lanes
    tl.store(tops + place, largest_of(top, SHAPE[0], WALK[5]), mask=mask)
    tl.store(guesses + place, guess, mask=mask)
    along = tl.arange(0, WIDTH // 4)
    pointers = place[:, None] * (WIDTH // 4) + along[None, :]
    tl.store(nodes + pointers, _fours(acc, SHAPE[0]), mask=mask[:, None])


@kernel
def _without_winner(
    whole, x, n, group, lanes, rows, walk, terms, largest,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LANES: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Nodes of a group (`whole` with it) without the row's largest element, which is in block `lanes` alone."""
    WIDTH: tl.constexpr = SHAPE[2]
    PARTS: tl.constexpr = LANES // WIDTH
    begin = group * GROUP_SIZE + lanes * WIDTH
    end = tl.minimum(group * GROUP_SIZE + GROUP_SIZE, n)
    acc = filled(minus_zero(whole.dtype), SHAPE)
    top = filled(tl.full((), float("-inf"), whole.dtype), SHAPE)
    acc, top = _block(
        x, begin, begin + 0, end, acc, top, rows, walk, terms, largest, SHAPE, WALK, LANES, TAIL, True, 8, 1
    )
    apart = tl.reshape(whole, (1, PARTS, WIDTH // 4))
    mine = (tl.arange(0, PARTS) == lanes)[None, :, None]
    return tl.reshape(tl.where(mine, _fours(acc, SHAPE[0])[None, :, :], apart), (1, LANES // 4))


@kernel
def softmax_split_groups_kernel(
    x, tops, guesses, nodes, sums, n, inner, groups, x_inner, outer, x_outer, reduced, x_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, WIDTH: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    MANY: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Sum one group of one row: from its nodes, or again where another range of terms is right."""
    LANES: tl.constexpr = SHAPE[2]
    NODES: tl.constexpr = LANES // 4
    PARTS: tl.constexpr = LANES // WIDTH
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program = tl.program_id(0).to(tl.int64)
    row, group = divided(tl.program_id(0), groups)
    i = tl.arange(0, MANY)
    highest = tl.full((MANY,), float("-inf"), tops.dtype.element_ty)
    for at in range(0, groups * PARTS, MANY):
        here = tl.load(tops + row * groups * PARTS + at + i, mask=at + i < groups * PARTS, other=float("-inf"))
        highest = larger(highest, here, WALK[5])
    seen = tl.broadcast_to(largest_of(highest, 0, WALK[5]), (1,))
    largest = seen
    if SAFE:
        largest = guessed(seen)
    right = row_terms(largest, DTYPE)
    each = tl.arange(0, PARTS)
    terms = row_terms(guessed(tl.load(guesses + program * PARTS + each)), DTYPE)
    wrong = any_row((terms[0] != right[0]) | (terms[2] != right[2])) > 0
    whole = tl.load(nodes + program * NODES + tl.arange(0, NODES)[None, :])
    total = halved(whole)
    if LOG:
        rest = total + 0.0
    if LOG or wrong:
        x, _, rows, x_walk, _ = blocks_of(
            row, x, x, inner, inner, x_inner, x_inner, outer, x_outer, x_outer, reduced, x_reduced, x_reduced,
            SHAPE, WALK,
        )  # fmt: skip
        begin = group * GROUP_SIZE
        end = tl.minimum(begin + GROUP_SIZE, n)
        if wrong:
            start = filled(tl.full((), float("-inf"), total.dtype), SHAPE)
            acc = filled(minus_zero(total.dtype), SHAPE)
            total, start = group_sum(
                x, x, begin, end, acc, start, rows, x_walk, x_walk, right, SHAPE, WALK, TAIL, False, 1, 1
            )
        if LOG:
            mine = tl.load(tops + program * PARTS + each) == largest
            if any_row(mine) > 0:
                if wrong:
                    rest = group_rest(x, begin, end, rows, x_walk, right, largest, SHAPE, WALK, TAIL)
                else:
                    lanes = tl.max(tl.where(mine, each, 0), 0)
                    BLOCK: tl.constexpr = (SHAPE[0], 1, WIDTH, 0)
                    left = _without_winner(
                        whole, x, n, group, lanes, rows, x_walk, right, largest, BLOCK, WALK, LANES, GROUP_SIZE, TAIL
                    )
                    rest = halved(left)
            else:
                rest = total
    sums += program * HANDED_ON + tl.arange(0, 1)
    tl.store(sums, total)
    tl.store(sums + 1, seen)
    if LOG:
        tl.store(sums + 2, rest)
