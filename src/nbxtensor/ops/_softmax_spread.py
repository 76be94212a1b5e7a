"""Softmax of long rows split over programs, by two launches.

A program of the first sums lanes of a group that lie far apart: runs of neighbours, from each part of the lanes one. Of
the tree over the lanes it can then take the first steps from the top as well, and leaves few nodes, so that each
program that writes adds those of its row itself. Lanes and tree are those of the canonical sum.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import add, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    any_row,
    clear_winner,
    divisors,
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
from nbxtensor.ops._softmax_kernels import blocks_of, halved
from nbxtensor.ops._softmax_split import divided
from nbxtensor.ops._softmax_split_write import read_chunk, write_chunk

# SPREAD is (RUNS, RUN): a program has RUN neighbouring lanes of each of RUNS parts of the lanes. Its tile lies so.


@kernel
def _places(LANES: tl.constexpr, SPREAD: tl.constexpr):
    """Lanes of a program, less its first."""
    parts = tl.arange(0, SPREAD[0]) * (LANES // SPREAD[0])
    return parts[:, None] + tl.arange(0, SPREAD[1])[None, :]


@kernel
def _load(x, at, end, LANES: tl.constexpr, SPREAD: tl.constexpr, TAIL: tl.constexpr):
    """An element of each lane, from `at` on; TAIL: -inf from `end` on."""
    places = _places(LANES, SPREAD)
    if TAIL:
        v = tl.load((x + at) + places, mask=places < tl.minimum(end - at, LANES).to(tl.int32), other=float("-inf"))
    else:
        v = tl.load((x + at) + places)
    return v


@kernel
def _counted(
    v, at, end, terms, largest,
    LANES: tl.constexpr, SPREAD: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr, LEAN: tl.constexpr,
):  # fmt: skip
    """What elements add to their lanes (BELOW: but the largest)."""
    e = row_exp(wide(v), terms[0], terms[1], terms[2], v.dtype, LEAN)
    if TAIL:
        left = tl.minimum(end - at, LANES).to(tl.int32)
        e = tl.where(_places(LANES, SPREAD) < left, e, minus_zero(e.dtype))
    if BELOW:
        e = tl.where(wide(v) == largest, minus_zero(e.dtype), e)
    return e


@kernel
def _smaller(
    least, v, at, end, LANES: tl.constexpr, SPREAD: tl.constexpr, TAIL: tl.constexpr, LEAN: tl.constexpr
):  # fmt: skip
    """The smallest elements so far."""
    v = wide(v)
    if TAIL:
        v = tl.where(_places(LANES, SPREAD) < tl.minimum(end - at, LANES).to(tl.int32), v, float("inf"))
    if LEAN:
        least = tl.minimum(least, v)
    else:
        least = tl.where(v < least, v, least)
    return least


@kernel
def _steps(
    x, at, end, acc, top, least, terms, largest,
    LANES: tl.constexpr, SPREAD: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr, LEAN: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Add COUNT elements to each lane, and to the largest and smallest; all are loaded first."""
    values = ()
    for j in tl.static_range(COUNT):
        values += (_load(x, at + j * LANES, end, LANES, SPREAD, TAIL),)
    for j in tl.static_range(COUNT):
        acc += _counted(values[j], at + j * LANES, end, terms, largest, LANES, SPREAD, TAIL, BELOW, LEAN)
        top = larger(top, wide(values[j]), LEAN)
        least = _smaller(least, values[j], at + j * LANES, end, LANES, SPREAD, TAIL, LEAN)
    return acc, top, least


@kernel
def _block(
    x, begin, first, end, acc, top, least, terms, largest,
    LANES: tl.constexpr, SPREAD: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr, LEAN: tl.constexpr,
    COUNT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Lanes from `first` on, COUNT elements of each at a time, of the block that starts at `begin`."""
    last: tl.constexpr = (SPREAD[0] - 1) * (LANES // SPREAD[0]) + SPREAD[1]
    whole = begin + (tl.maximum(end - begin, 0) + (LANES - last)) // LANES * LANES
    many = first + tl.maximum(whole - first, 0) // (COUNT * LANES) * (COUNT * LANES)
    for at in tl.range(first, many, COUNT * LANES, num_stages=STAGES):
        acc, top, least = _steps(x, at, end, acc, top, least, terms, largest, LANES, SPREAD, False, BELOW, LEAN, COUNT)
    for at in range(many, whole, LANES):
        acc, top, least = _steps(x, at, end, acc, top, least, terms, largest, LANES, SPREAD, False, BELOW, LEAN, 1)
    if TAIL:
        rest = tl.maximum(first, whole)
        acc, top, least = _steps(x, rest, end, acc, top, least, terms, largest, LANES, SPREAD, True, BELOW, LEAN, 1)
    return acc, top, least


@kernel
def _nodes(acc, SPREAD: tl.constexpr):
    """The lanes of a program as nodes of the tree: neighbours, neighbours again, and from the top as far as it goes."""
    x = tl.reshape(acc, (SPREAD[0], SPREAD[1] // 4, 2, 2))
    x = tl.reduce(tl.reduce(x, 3, add), 2, add)
    for _ in tl.static_range(12):
        if x.shape[0] > 1:
            x = tl.reduce(tl.reshape(x, (2, x.shape[0] // 2, x.shape[1])), 0, add)
    return tl.reshape(x, (SPREAD[1] // 4,))


@kernel
def _largest(top, LEAN: tl.constexpr):
    return largest_of(largest_of(top, 1, LEAN), 0, LEAN)


@kernel
def _none(acc):
    """Lanes before the first element."""
    return tl.broadcast_to(minus_zero(acc.dtype), acc.shape)


@kernel
def softmax_spread_lanes_kernel(
    x, tops, lows, nodes, n, inner, count, groups, x_inner, outer, x_outer, reduced, x_reduced,
    WALK: tl.constexpr, LANES: tl.constexpr, SPREAD: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr,
    UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum the lanes of a program over a group of a row, UNROLL elements of each at a time.

    With the terms of the largest element among them: what it was guessed from is a part of them.
    """
    BLOCKS: tl.constexpr = LANES // (SPREAD[0] * SPREAD[1])
    SHAPE: tl.constexpr = (1, 1, LANES, 0)
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    program, block = divided(tl.program_id(0), BLOCKS)
    group, row = divided(program.to(tl.int32), count)  # the last groups, which are shorter, come last
    x, _, _rows, _walk, _ = blocks_of(
        row, x, x, inner, inner, x_inner, x_inner, outer, x_outer, x_outer, reduced, x_reduced, x_reduced, SHAPE, WALK
    )
    begin = group * GROUP_SIZE + block * SPREAD[1]
    end = tl.minimum(group * GROUP_SIZE + GROUP_SIZE, n)
    values = ()
    for j in tl.static_range(UNROLL):
        v = _load(x, begin + j * LANES, end, LANES, SPREAD, TAIL)
        if j == 0:
            top = wide(v)
        else:
            top = larger(top, wide(v), WALK[5])
        values += (v,)
    guess = _largest(top, WALK[5])
    terms = row_terms(guessed(guess), DTYPE)
    least = tl.broadcast_to(tl.full((), float("inf"), guess.dtype), (SPREAD[0], SPREAD[1]))
    for j in tl.static_range(UNROLL):
        at = begin + j * LANES
        part = _counted(values[j], at, end, terms, guess, LANES, SPREAD, TAIL, False, WALK[5])
        least = _smaller(least, values[j], at, end, LANES, SPREAD, TAIL, WALK[5])
        if j == 0:
            acc = part
        else:
            acc += part
    acc, top, least = _block(
        x, begin, begin + UNROLL * LANES, end, acc, top, least, terms, guess,
        LANES, SPREAD, TAIL, False, WALK[5], UNROLL, STAGES,
    )  # fmt: skip
    most = _largest(top, WALK[5])
    right = row_terms(guessed(most), DTYPE)
    if (terms[0] != right[0]) | (terms[2] != right[2]):
        acc, top, least = _block(
            x, begin, begin + 0, end, _none(acc), top, least, right, most,
            LANES, SPREAD, TAIL, False, WALK[5], UNROLL, 1,
        )  # fmt: skip
    place = (row * groups + group) * BLOCKS + block
    tl.store(tops + place, most)
    tl.store(lows + place, tl.min(tl.min(least, 1), 0))
    tl.store(nodes + place * (SPREAD[1] // 4) + tl.arange(0, SPREAD[1] // 4), _nodes(acc, SPREAD))


@kernel
def _again(
    whole, x, n, block, terms, largest,
    LANES: tl.constexpr, SPREAD: tl.constexpr, GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, BELOW: tl.constexpr,
    LEAN: tl.constexpr,
):  # fmt: skip
    """Nodes of a row (lying (group, node), `whole` before) with those of a block summed again (BELOW: but the largest).

    `block` is its number among those of all groups.
    """
    BLOCKS: tl.constexpr = LANES // (SPREAD[0] * SPREAD[1])
    group, within = divided(block, BLOCKS)
    begin = group * GROUP_SIZE + within * SPREAD[1]
    end = tl.minimum(group * GROUP_SIZE + GROUP_SIZE, n)
    top = tl.broadcast_to(largest, (SPREAD[0], SPREAD[1]))
    acc, _top, _least = _block(
        x, begin, begin + 0, end, _none(top), top, top + 0.0, terms, largest,
        LANES, SPREAD, TAIL, BELOW, LEAN, 4, 1,
    )  # fmt: skip
    apart = tl.reshape(whole, (whole.shape[0], BLOCKS, SPREAD[1] // 4))
    mine = (tl.arange(0, whole.shape[0]) == group)[:, None, None] & (tl.arange(0, BLOCKS) == within)[None, :, None]
    return tl.reshape(tl.where(mine, _nodes(acc, SPREAD)[None, None, :], apart), whole.shape)


@kernel
def softmax_spread_finish_kernel(
    x, tops, lows, nodes, out, n, inner, chunks, groups, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, SPREAD: tl.constexpr, GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, STREAM: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Add the nodes of a row of at most GROUPS groups, and write COUNT tiles of it."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    LANES: tl.constexpr = SHAPE[2]
    NODES: tl.constexpr = LANES // (4 * SPREAD[0])
    BLOCKS: tl.constexpr = LANES // (SPREAD[0] * SPREAD[1])
    n = n * WALK[2]
    row, chunk = divided(tl.program_id(0), chunks)
    begin = chunk * (COUNT * LANES)
    x, out, rows, x_walk, out_walk = blocks_of(
        row, x, out, inner, inner, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    values = read_chunk(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)
    i = tl.arange(0, GROUPS * BLOCKS)
    blocks = row * groups * BLOCKS + i
    each = tl.load(tops + blocks, mask=i < groups * BLOCKS, other=float("-inf"))
    low = tl.load(lows + blocks, mask=i < groups * BLOCKS, other=float("inf"))
    g = tl.arange(0, GROUPS)[:, None]
    node = tl.arange(0, NODES)[None, :]
    place = row * groups * NODES + g * NODES + node
    whole = tl.load(nodes + place, mask=g < groups, other=0.0)
    whole = tl.where(g < groups, whole, minus_zero(whole.dtype))
    most = largest_of(each, 0, WALK[5])
    lowest = tl.broadcast_to(most, (1,)) == float("-inf")
    if SAFE:
        most = guessed(most)
    largest = tl.broadcast_to(most, (1,))
    right = row_terms(most, DTYPE)
    each_terms = row_terms(guessed(each), DTYPE)
    other = ((each_terms[0] != right[0]) | (each_terms[2] != right[2])) & (i < groups * BLOCKS) & (most - most == 0.0)
    if any_row(other) > 0:
        # Scaling by a power of two is what the right terms would have done, where all elements count.
        place = row * groups * BLOCKS + g * BLOCKS + node // (SPREAD[1] // 4)
        theirs = tl.load(tops + place, mask=g < groups, other=0.0)
        half = (right[2] - row_terms(guessed(theirs), DTYPE)[2]) * 0.5 + 127.0
        half = tl.where(half < 254.0, tl.where(half > 1.0, half, 1.0), 254.0)  # beyond: no element, or summed again
        half = (half.to(tl.int32) << 23).to(tl.float32, bitcast=True)
        whole = whole * half * half
        if tl.float32 == DTYPE or tl.float64 == DTYPE:
            low -= right[0]
        wrong = (other & ((each_terms[0] != right[0]) | (low < right[1]))).to(tl.int32)
        for block in range(groups * BLOCKS):
            if tl.max(tl.where(i == block, wrong, 0), 0) > 0:
                whole = _again(
                    whole, x, n, block.to(tl.int32), right, most, LANES, SPREAD, GROUP_SIZE, TAIL, False, WALK[5]
                )  # fmt: skip
        values = read_chunk(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)  # not kept meanwhile
    total = with_bad(tree_sum(tl.reshape(halved(whole), (1, GROUPS)), 1), largest)
    if LOG:
        peak = row_exp(largest, right[0], right[1], right[2], DTYPE, WALK[5])
        high, low = log_sum(total, peak, largest, right, DTYPE)
        if any_row(clear_winner(total, peak, DTYPE)) > 0:
            block = tl.max(tl.where(each == most, i, 0), 0)
            left = _again(whole, x, n, block, right, most, LANES, SPREAD, GROUP_SIZE, TAIL, True, WALK[5])
            rest = tree_sum(tl.reshape(halved(left), (1, GROUPS)), 1)
            high, low = log_sum_of_winner(rest, peak, largest, DTYPE)
            values = read_chunk(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)
        factors = emptied((high, low), total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    terms = row_terms(largest, DTYPE)
    write_chunk(x, out, begin, n, values, rows, out_walk, terms, factors, SHAPE, WALK, COUNT, TAIL, STREAM, LOG)
