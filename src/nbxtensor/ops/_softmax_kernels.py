"""The kernels of softmax and log_softmax: whole rows in registers, and rows of any length tile by tile.

Both take the exact maximum first, then sum the exponentials in the canonical order: they give the same bits.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.reduce import add_group, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import log_sum, minus_log_sum, quotient, reciprocal_sum, row_exp, row_terms
from nbxtensor.kernel.rows import APART, MASKED, filled, in_row, kept_block, load_tile, offset_of, per_row, store_tile


@kernel
def _tile_terms(v, valid, largest, terms, SHAPE: tl.constexpr, LOG: tl.constexpr, TAIL: tl.constexpr):
    """Exponentials of a tile, what of them counts towards the sum, and (LOG) which elements are largest, left out."""
    e = row_exp(v, per_row(terms[0], SHAPE), per_row(terms[1], SHAPE), per_row(terms[2], SHAPE))
    counted = e
    is_top = v == per_row(largest, SHAPE)
    if LOG:
        vanishes = v - per_row(terms[0], SHAPE) < per_row(terms[1], SHAPE)
        counted = tl.where(is_top | vanishes, minus_zero(tl.float32), e)
    if TAIL:
        counted = tl.where(valid, counted, minus_zero(tl.float32))
        is_top = is_top & valid
    return e, counted, is_top.to(tl.int32)


@kernel
def softmax_forward_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TILES: tl.constexpr, TAIL: tl.constexpr,
    LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """A block of whole rows in registers, as TILES tiles along the row; TAIL: the last one is not full."""
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    values = ()
    for j in tl.static_range(TILES):
        v = load_tile(x, j * TILE, n, rows, x_walk, SHAPE, X_FLAGS, TAIL and j == TILES - 1).to(tl.float32)
        if TAIL and j == TILES - 1:
            v = tl.where(in_row(j * TILE, n, SHAPE), v, float("-inf"))
        if j == 0:
            top = v
        else:
            top = tl.maximum(top, v)
        values += (v,)
    largest = tl.max(top, SHAPE[0])
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest)
    powers = ()
    for j in tl.static_range(TILES):
        valid = in_row(j * TILE, n, SHAPE)
        e, counted, is_top = _tile_terms(values[j], valid, largest, terms, SHAPE, LOG, TAIL and j == TILES - 1)
        powers += (e,)
        if j == 0:
            acc = counted
            tops = is_top
        else:
            acc += counted
            tops += is_top
    total = tree_sum(acc, SHAPE[0])
    if LOG:
        high, low = log_sum(total, tl.sum(tops, SHAPE[0]), largest, terms, lowest, SAFE)
    else:
        scale = reciprocal_sum(total, lowest, SAFE)
    for j in tl.static_range(TILES):
        if LOG:
            y = minus_log_sum(values[j], per_row(high, SHAPE), per_row(low, SHAPE))
        else:
            y = quotient(powers[j], per_row(total, SHAPE), per_row(scale, SHAPE))
        store_tile(out, y, j * TILE, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL and j == TILES - 1)


@kernel
def _row_max(x, n, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr):
    """Largest element of each row; NaN does not count (it reaches the result through the sum)."""
    TILE: tl.constexpr = SHAPE[2]
    top = filled(tl.full((), float("-inf"), tl.float32), SHAPE)
    whole = n // TILE * TILE
    for at in range(0, whole, TILE):
        top = tl.maximum(top, load_tile(x, at, n, rows, walk, SHAPE, FLAGS, False).to(tl.float32))
    if TAIL:
        v = load_tile(x, whole, n, rows, walk, SHAPE, FLAGS, True).to(tl.float32)
        top = tl.maximum(top, tl.where(in_row(whole, n, SHAPE), v, float("-inf")))
    return tl.max(top, SHAPE[0])


@kernel
def _group_sum(
    x, out, begin, end, rows, x_walk, out_walk, largest, terms,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr,
    STASH: tl.constexpr,
):  # fmt: skip
    """Canonical sum of a group's exponentials, and (LOG) how many elements are the largest; STASH: `out` keeps them."""
    TILE: tl.constexpr = SHAPE[2]
    acc = filled(minus_zero(tl.float32), SHAPE)
    tops = filled(tl.zeros((), tl.int32), SHAPE)
    INNER: tl.constexpr = TAIL == MASKED
    if INNER:
        whole = end
    else:
        whole = begin + (end - begin) // TILE * TILE
    for at in range(begin, whole, TILE):
        v = load_tile(x, at, end, rows, x_walk, SHAPE, X_FLAGS, INNER).to(tl.float32)
        e, counted, is_top = _tile_terms(v, in_row(at, end, SHAPE), largest, terms, SHAPE, LOG, INNER)
        acc += counted
        if LOG:
            tops += is_top
        if STASH:
            store_tile(out, e, at, end, rows, out_walk, SHAPE, OUT_FLAGS, INNER)
    if TAIL == APART:
        v = load_tile(x, whole, end, rows, x_walk, SHAPE, X_FLAGS, True).to(tl.float32)
        e, counted, is_top = _tile_terms(v, in_row(whole, end, SHAPE), largest, terms, SHAPE, LOG, True)
        acc += counted
        if LOG:
            tops += is_top
        if STASH:
            store_tile(out, e, whole, end, rows, out_walk, SHAPE, OUT_FLAGS, True)
    return tree_sum(acc, SHAPE[0]), tl.sum(tops, SHAPE[0])


@kernel
def _finish_tile(
    x, out, at, n, rows, x_walk, out_walk, terms, total, factor,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr,
    STASH: tl.constexpr,
):  # fmt: skip
    """Write one tile of the result: e / total with factor = 1 / total, or (LOG) x - (total + factor)."""
    if STASH:
        e = load_tile(out, at, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL)
        y = quotient(e, per_row(total, SHAPE), per_row(factor, SHAPE))
    else:
        v = load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, TAIL).to(tl.float32)
        if LOG:
            y = minus_log_sum(v, per_row(total, SHAPE), per_row(factor, SHAPE))
        else:
            e = row_exp(v, per_row(terms[0], SHAPE), per_row(terms[1], SHAPE), per_row(terms[2], SHAPE))
            y = quotient(e, per_row(total, SHAPE), per_row(factor, SHAPE))
    store_tile(out, y, at, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL)


@kernel
def softmax_forward_looped_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr, STASH: tl.constexpr,
):  # fmt: skip
    """A block of rows of any length, three times tile by tile: largest element, sum, result.

    GROUPS: lanes of the sum over group sums; 1 if a row is one group.
    """
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    largest = _row_max(x, n, rows, x_walk, SHAPE, X_FLAGS, TAIL)
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest)
    if GROUPS == 1:
        total, tops = _group_sum(
            x, out, 0, n, rows, x_walk, out_walk, largest, terms, SHAPE, X_FLAGS, OUT_FLAGS, TAIL, LOG, STASH
        )
    else:
        GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
        lanes = filled(minus_zero(tl.float32), GROUP_SHAPE)
        tops = (k * 0).to(tl.int32)
        groups = (n + GROUP_SIZE - 1) // GROUP_SIZE
        for g in range(groups):
            begin = g * GROUP_SIZE
            end = tl.minimum(begin + GROUP_SIZE, n)
            part, count = _group_sum(
                x, out, begin, end, rows, x_walk, out_walk, largest, terms, SHAPE, X_FLAGS, OUT_FLAGS, TAIL, LOG, STASH
            )
            lanes = add_group(lanes, part, g, rows, SHAPE, GROUPS)
            tops += count
        total = tree_sum(lanes, SHAPE[0])
    if LOG:
        total, factor = log_sum(total, tops, largest, terms, lowest, SAFE)
    else:
        factor = reciprocal_sum(total, lowest, SAFE)
    whole = n // TILE * TILE
    for at in range(0, whole, TILE):
        _finish_tile(
            x, out, at, n, rows, x_walk, out_walk, terms, total, factor,
            SHAPE, X_FLAGS, OUT_FLAGS, False, LOG, STASH,
        )  # fmt: skip
    if TAIL:
        _finish_tile(
            x, out, whole, n, rows, x_walk, out_walk, terms, total, factor,
            SHAPE, X_FLAGS, OUT_FLAGS, True, LOG, STASH,
        )  # fmt: skip
