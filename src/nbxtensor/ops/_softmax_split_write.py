"""The last launch of a softmax that is split over programs: it writes the result, from the sums of groups."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import minus_zero, tree_sum
from nbxtensor.kernel.row_exp import (
    clear_winner,
    divisors,
    either,
    emptied,
    log_sum,
    log_sum_of_winner,
    row_exp,
    row_terms,
    with_bad,
)
from nbxtensor.ops._softmax_kernels import blocks_of, load_part, result, store_part, tile_exp
from nbxtensor.ops._softmax_split import HANDED_ON, divided, numbers


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
def write_chunk(
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
def read_chunk(
    x, begin, n, rows, walk, SHAPE: tl.constexpr, WALK: tl.constexpr, COUNT: tl.constexpr, TAIL: tl.constexpr
):
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
    values = read_chunk(x, begin, n, rows, x_walk, SHAPE, WALK, COUNT, TAIL)
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
    write_chunk(x, out, begin, n, values, rows, out_walk, terms, factors, SHAPE, WALK, COUNT, TAIL, STREAM, LOG)
