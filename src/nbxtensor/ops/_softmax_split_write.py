"""The last launch of a softmax that is split over programs: it writes the result.

Either from the sums of groups, or, where those are few, in place of the launch that makes them.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    any_row,
    clear_winner,
    divisors,
    either,
    emptied,
    guessed,
    largest_of,
    log_sum,
    log_sum_of_winner,
    row_exp,
    row_terms,
    with_bad,
)
from nbxtensor.ops._softmax_kernels import blocks_of, halved, load_part, result, store_part, tile_exp
from nbxtensor.ops._softmax_looped import row_rest, row_sum
from nbxtensor.ops._softmax_split import HANDED_ON, divided, numbers, without_winner


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
def _write(
    x, out, begin, n, values, rows, out_walk, terms, factors,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, TAIL: tl.constexpr, STREAM: tl.constexpr,
    LOG: tl.constexpr,
):  # fmt: skip
    """Write COUNT tiles of the result, of which `values` are the elements."""
    OUT_FLAGS: tl.constexpr = WALK[1]
    DTYPE: tl.constexpr = x.dtype.element_ty
    for j in tl.static_range(COUNT):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, tile_exp(values[j], terms, SHAPE, WALK), factors, DTYPE, SHAPE, False)
        store_part(out, y, begin + j * SHAPE[2], n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL, STREAM)


@kernel
def _read(x, begin, n, rows, walk, SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, TAIL: tl.constexpr):
    """COUNT tiles of elements."""
    X_FLAGS: tl.constexpr = WALK[0]
    values = ()
    for j in tl.static_range(COUNT):
        values += (load_part(x, begin + j * SHAPE[2], n, rows, walk, SHAPE, X_FLAGS, TAIL),)
    return values


@kernel
def softmax_split_write_kernel(
    x, sums, out, n, inner, blocks, chunks, groups, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, TAIL: tl.constexpr,
    STREAM: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Write COUNT tiles of a block of rows; LANES: lanes of the sum over group sums."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    block, chunk = divided(tl.program_id(0), chunks)
    begin = chunk * (COUNT * SHAPE[2])
    x, out, rows, x_walk, out_walk = blocks_of(
        block, x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    values = _read(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)
    k, mask = numbers(block, inner, blocks, SHAPE, WALK)
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
        factors = either(clear_winner(total, peak, DTYPE), winner, log_sum(total, peak, largest, terms, DTYPE))
        factors = emptied(factors, total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    _write(x, out, begin, n, values, rows, out_walk, terms, factors, SHAPE, WALK, COUNT, TAIL, STREAM, LOG)


@kernel
def softmax_split_finish_kernel(
    x, tops, guesses, nodes, out, n, inner, chunks, groups, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, STREAM: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """The second and third launch in one, for rows of at most GROUPS groups (4): write COUNT tiles of one row."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    LANES: tl.constexpr = SHAPE[2]
    NODES: tl.constexpr = LANES // 4
    PARTS: tl.constexpr = LANES // WIDTH
    n = n * WALK[2]
    row, chunk = divided(tl.program_id(0), chunks)
    begin = chunk * (COUNT * LANES)
    x, out, rows, x_walk, out_walk = blocks_of(
        row, x, out, inner, inner, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
        SHAPE, WALK,
    )  # fmt: skip
    values = _read(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)
    i = tl.arange(0, GROUPS * PARTS)
    blocks = row * groups * PARTS + i
    each = tl.load(tops + blocks, mask=i < groups * PARTS, other=float("-inf"))
    starts = tl.load(guesses + blocks, mask=i < groups * PARTS, other=0.0)
    g = tl.arange(0, GROUPS)[:, None]
    place = row * groups * NODES + g * NODES + tl.arange(0, NODES)[None, :]
    whole = tl.where(g < groups, tl.load(nodes + place, mask=g < groups, other=0.0), minus_zero(nodes.dtype.element_ty))
    largest = tl.broadcast_to(largest_of(each, 0, WALK[5]), (1,))
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    right = row_terms(largest, DTYPE)
    terms = row_terms(guessed(starts), DTYPE)
    wrong = any_row(((terms[0] != right[0]) | (terms[2] != right[2])) & (i < groups * PARTS)) > 0
    total = tree_sum(tl.reshape(halved(whole), (1, GROUPS)), 1)
    if wrong:
        total, _same = row_sum(
            x, out, n, (), rows, x_walk, out_walk, right, SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL, False, 1, 0, 1
        )
    total = with_bad(total, largest)
    if LOG:
        peak = row_exp(largest, right[0], right[1], right[2], DTYPE, WALK[5])
        near = clear_winner(total, peak, DTYPE)
        high, low = log_sum(total, peak, largest, right, DTYPE)
        if any_row(near) > 0:
            if wrong:
                rest = row_rest(x, n, rows, x_walk, right, largest, SHAPE, WALK, GROUPS, GROUP_SIZE, TAIL)
            else:
                at = tl.max(tl.where(each == largest, i, 0), 0)
                BLOCK: tl.constexpr = (SHAPE[0], 1, WIDTH, 0)
                left = without_winner(
                    whole, x, n, at // PARTS, at % PARTS, rows, x_walk, right, largest,
                    BLOCK, WALK, LANES, GROUP_SIZE, TAIL,
                )  # fmt: skip
                rest = tree_sum(tl.reshape(halved(left), (1, GROUPS)), 1)
            high, low = log_sum_of_winner(rest, peak, largest, DTYPE)
        factors = emptied((high, low), total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    _write(x, out, begin, n, values, rows, out_walk, right, factors, SHAPE, WALK, COUNT, TAIL, STREAM, LOG)
