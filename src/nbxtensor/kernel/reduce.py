"""Canonical reductions: the order of a sum depends on the position in the row alone.

Inside a group of 65,536 elements, element i belongs to lane i mod 2,048; each lane adds its elements in ascending
order; one tree over the lanes adds neighbours, adds neighbours again, then halves from the top. More than one group:
the group sums are a new row, summed the same way. Missing elements are -0.0, which changes nothing, so a short row may
use any power of two (at least 4) of lanes. Maxima, minima, integer sums and logical reductions have no order.

A reduction is five device functions: `prepare` (element -> accumulator), `identity`, `combine` (lane by lane), `tree`
(over the lanes) and `finish` (accumulator, row length -> result).
"""

from dataclasses import dataclass

from nbxtensor.base.dtypes import DType
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.rows import MASKED, filled, group_of, in_row, load_tile, offset_of, per_row


@kernel
def add(a, b):
    return a + b


@kernel
def multiply(a, b):
    return a * b


@kernel
def minus_zero(dtype: tl.constexpr):
    """-0.0 (a literal -0.0 in a kernel becomes 0.0)."""
    if dtype == tl.float64:
        zero = tl.full((), -9223372036854775808, tl.int64).to(tl.float64, bitcast=True)
    else:
        zero = tl.full((), -2147483648, tl.int32).to(tl.float32, bitcast=True)
    return zero


@kernel
def _add_pair(x, AXIS: tl.constexpr):
    return tl.reduce(x, AXIS, add)


@kernel
def _multiply_pair(x, AXIS: tl.constexpr):
    return tl.reduce(x, AXIS, multiply)


@kernel
def _tree(x, AXIS: tl.constexpr, PAIR: tl.constexpr):
    """Fold the lanes along AXIS of a 2-D tile (a power of two, at least 4) in the canonical order."""
    if AXIS == 1:
        x = PAIR(PAIR(tl.reshape(x, (x.shape[0], x.shape[1] // 4, 2, 2)), 3), 2)
    else:
        x = PAIR(PAIR(tl.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1])), 2), 1)
    for _ in tl.static_range(12):
        if x.shape[AXIS] > 1:
            if AXIS == 1:
                x = PAIR(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), 1)
            else:
                x = PAIR(tl.reshape(x, (2, x.shape[0] // 2, x.shape[1])), 0)
    return tl.reshape(x, (x.shape[1 - AXIS],))


@kernel
def tree_sum(x, AXIS: tl.constexpr):
    """Canonical sum over AXIS of a 2-D tile (a power of two long, at least 4)."""
    return _tree(x, AXIS, _add_pair)


@kernel
def tree_product(x, AXIS: tl.constexpr):
    """The product in the order of the canonical sum."""
    return _tree(x, AXIS, _multiply_pair)


@kernel
def integer_sum(x, AXIS: tl.constexpr):
    """Sum of integers, which has no order."""
    return tl.sum(x, AXIS)


@kernel
def _lane_sum(
    x, row, begin, end, rows, walk,
    ELEMENT: tl.constexpr, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Canonical sum of one group of each row."""
    TILE: tl.constexpr = SHAPE[2]
    acc = filled(minus_zero(tl.float32), SHAPE)
    if TAIL == MASKED:
        for at in range(begin, end, TILE):
            value = ELEMENT(load_tile(x, at, end, rows, walk, SHAPE, FLAGS, True).to(tl.float32), per_row(row, SHAPE))
            acc += tl.where(in_row(at, end, SHAPE), value, minus_zero(tl.float32))
    else:
        whole = begin + (end - begin) // TILE * TILE
        for at in range(begin, whole, TILE):
            value = load_tile(x, at, end, rows, walk, SHAPE, FLAGS, False).to(tl.float32)
            acc += ELEMENT(value, per_row(row, SHAPE))
        if TAIL:
            value = load_tile(x, whole, end, rows, walk, SHAPE, FLAGS, True).to(tl.float32)
            value = ELEMENT(value, per_row(row, SHAPE))
            acc += tl.where(in_row(whole, end, SHAPE), value, minus_zero(tl.float32))
    return tree_sum(acc, SHAPE[0])


@kernel
def add_group(lanes, part, g, rows, SHAPE: tl.constexpr, GROUPS: tl.constexpr):
    """Add the sum of group `g` to its lane; `lanes` is a tile of GROUPS lanes, filled with -0.0 before the first."""
    GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
    lane = g % GROUPS
    mine = in_row(0, lane + 1, GROUP_SHAPE) & (in_row(0, lane, GROUP_SHAPE) == 0)
    return tl.where(mine, lanes + per_row(part, SHAPE), lanes)


@kernel
def row_sum(
    x, row, n, rows, walk,
    ELEMENT: tl.constexpr, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr,
    GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Canonical sum of ``ELEMENT(x, row)`` over whole rows in one program; `row` is one value a row.

    GROUPS: 1 if a row is one group, else a power of two from 4 to 2,048, at least the number of groups if that is less.
    """
    if GROUPS == 1:
        total = _lane_sum(x, row, 0, n, rows, walk, ELEMENT, SHAPE, FLAGS, TAIL)
    else:
        GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
        lanes = filled(minus_zero(tl.float32), GROUP_SHAPE)
        for g in range((n + GROUP_SIZE - 1) // GROUP_SIZE):
            begin = g * GROUP_SIZE
            end = tl.minimum(begin + GROUP_SIZE, n)
            part = _lane_sum(x, row, begin, end, rows, walk, ELEMENT, SHAPE, FLAGS, TAIL)
            lanes = add_group(lanes, part, g, rows, SHAPE, GROUPS)
        total = tree_sum(lanes, SHAPE[0])
    return total


@dataclass(frozen=True, slots=True, eq=False)  # a key of plans, which is quick to hash by identity
class Reduction:
    """A reduction, ready for one input dtype.

    `accumulator` is the dtype of partial results, `empty` the result over no elements.
    """

    prepare: KernelFunction
    identity: KernelFunction
    combine: KernelFunction
    tree: KernelFunction
    finish: KernelFunction
    accumulator: DType
    empty: bool | int | float


@kernel
def as_is(x):
    """The element itself."""
    return x


@kernel
def keep(value, n):
    """The accumulator itself."""
    return value


@kernel
def reduce_kernel(
    x, out, total, n, inner, blocks, groups, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr, TREE: tl.constexpr, FINISH: tl.constexpr,
    SHAPE: tl.constexpr, FLAGS: tl.constexpr, LOOP: tl.constexpr, TAIL: tl.constexpr, GROUP_SIZE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """One group of each row of a block; rows have `n` elements (`total` in the tensor reduced first).

    LOOP: a group is taken tile by tile, TILES of them before the accumulators are stored again where they lie in
    memory; TAIL: how a tile that leaves the row is masked (NONE, APART, MASKED).
    """
    TILE: tl.constexpr = SHAPE[2]
    group, begin, end, k, row = group_of(n, blocks, groups, SHAPE, GROUP_SIZE)
    x += offset_of(row, outer, x_outer)
    rows = (k, inner, reduced)
    walk = (x_inner, x_reduced)
    if LOOP and TAIL == MASKED:
        acc = filled(IDENTITY(), SHAPE)
        for at in range(begin, end, TILE):
            value = PREPARE(load_tile(x, at, end, rows, walk, SHAPE, FLAGS, True))
            acc = COMBINE(acc, tl.where(in_row(at, end, SHAPE), value, IDENTITY()))
    elif LOOP:
        acc = filled(IDENTITY(), SHAPE)
        whole = begin + (end - begin) // TILE * TILE
        first = begin
        if TILES > 1:
            first = begin + (end - begin) // (TILES * TILE) * (TILES * TILE)
            for at in range(begin, first, TILES * TILE):
                for tile in tl.static_range(TILES):
                    value = PREPARE(load_tile(x, at + tile * TILE, end, rows, walk, SHAPE, FLAGS, False))
                    acc = COMBINE(acc, value)
        for at in range(first, whole, TILE):
            acc = COMBINE(acc, PREPARE(load_tile(x, at, end, rows, walk, SHAPE, FLAGS, False)))
        if TAIL:
            value = PREPARE(load_tile(x, whole, end, rows, walk, SHAPE, FLAGS, True))
            acc = COMBINE(acc, tl.where(in_row(whole, end, SHAPE), value, IDENTITY()))
    else:
        acc = PREPARE(load_tile(x, begin, end, rows, walk, SHAPE, FLAGS, TAIL))
        if TAIL:
            acc = tl.where(in_row(begin, end, SHAPE), acc, IDENTITY())
    result = cast(FINISH(TREE(acc, SHAPE[0]), total), out.dtype.element_ty)
    out += offset_of(row, outer, out_outer) + group
    if SHAPE[3]:
        tl.store(out + k * out_inner, result, mask=k < inner)
    else:
        tl.store(out + k * out_inner, result)
