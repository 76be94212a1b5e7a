"""Softmax of short rows that lie across memory: a thread holds whole rows, and nothing passes between threads."""

from nbxtensor.compiler.source import kernel, tl
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
    row_exp,
    row_terms,
    wide,
    with_bad,
)
from nbxtensor.ops._softmax_kernels import below_top, blocks_of, counted, load_part, result, store_part, tile_exp


@kernel
def _sum_of(parts, SHAPE: tl.constexpr):
    """Canonical sum of a power of two (4 or more) of elements of each row: neighbours twice, then halves."""
    for level in tl.static_range(12):
        if len(parts) > 1:
            sums = ()
            for i in tl.static_range(len(parts) // 2):
                if level < 2:
                    sums += (parts[2 * i] + parts[2 * i + 1],)
                else:
                    sums += (parts[i] + parts[len(parts) // 2 + i],)
            parts = sums
    return tl.reshape(parts[0], (SHAPE[1],))


@kernel
def softmax_columns_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, WALK: tl.constexpr, LENGTH: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """A block of rows of more than LENGTH / 2 (or 4) and at most LENGTH elements; a tile is one element of each."""
    X_FLAGS: tl.constexpr = WALK[0]
    OUT_FLAGS: tl.constexpr = WALK[1]
    SURE: tl.constexpr = LENGTH // 2 + 1 if LENGTH > 4 else 1
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = n * WALK[2]
    x, out, rows, x_walk, out_walk = blocks_of(
        tl.program_id(0).to(tl.int64), x, out, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer,
        reduced, x_reduced, out_reduced, SHAPE, WALK,
    )  # fmt: skip
    values = ()
    for j in tl.static_range(LENGTH):
        v = load_part(x, j, n, rows, x_walk, SHAPE, X_FLAGS, j >= SURE)
        if j == 0:
            top = wide(v)
        else:
            top = larger(top, wide(v), WALK[5])
        values += (v,)
    largest = largest_of(top, 0, WALK[5])
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest, DTYPE)
    powers = ()
    for j in tl.static_range(LENGTH):
        powers += (counted(tile_exp(values[j], terms, SHAPE, WALK), j, n, SHAPE, j >= SURE),)
    total = with_bad(_sum_of(powers, SHAPE), largest)
    if LOG:
        peak = row_exp(largest, terms[0], terms[1], terms[2], DTYPE, WALK[5])
        near = clear_winner(total, peak, DTYPE)
        high, low = log_sum(total, peak, largest, terms, DTYPE)
        if any_row(near) > 0:
            others = ()
            for j in tl.static_range(LENGTH):
                others += (below_top(values[j], powers[j], largest, SHAPE),)
            winner = log_sum_of_winner(_sum_of(others, SHAPE), peak, largest, DTYPE)
            high, low = either(near, winner, (high, low))
        factors = emptied((high, low), total, lowest, SAFE)
    else:
        factors = divisors(total, lowest, SAFE)
    for j in tl.static_range(LENGTH):
        if LOG:
            y = result(values[j], 0.0, factors, DTYPE, SHAPE, True)
        else:
            y = result(0.0, powers[j], factors, DTYPE, SHAPE, False)
        store_part(out, y, j, n, rows, out_walk, SHAPE, OUT_FLAGS, j >= SURE, False)
