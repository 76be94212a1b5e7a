"""Reductions of long rows that lie across memory, in parts: nothing passes between threads, each holds a few lanes.

The tree of a canonical reduction (`nbxtensor.kernel.reduce`) adds neighbours twice and then halves from the top, so of
its Q quads of lanes those at p, p + P, p + 2 P, ... are a tree of their own. One program reduces such a part of a group
for a block of rows; a second launch folds the P parts by halves, which finishes the tree.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.rows import kept_block, offset_of


@kernel
def folded(values, COMBINE: tl.constexpr, QUADS: tl.constexpr):
    """Fold a power of two of values by halves from the top; QUADS: after neighbours were folded twice."""
    for level in tl.static_range(12):
        if len(values) > 1:
            pairs = ()
            for i in tl.static_range(len(values) // 2):
                if QUADS and level < 2:
                    pairs += (COMBINE(values[2 * i], values[2 * i + 1]),)
                else:
                    pairs += (COMBINE(values[i], values[len(values) // 2 + i]),)
            values = pairs
    return values[0]


@kernel
def _element(
    x, at, end, k, inner, reduced, x_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, PARTIAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Element `at` of each row; the identity from `end` on (only if MASKED)."""
    pointers = x + offset_of(at, reduced, x_reduced) + k
    if MASKED and PARTIAL:
        value = tl.load(pointers, mask=(k < inner) & (at < end), other=0)
    elif MASKED:
        value = tl.load(pointers, mask=at < end, other=0)
    elif PARTIAL:
        value = tl.load(pointers, mask=k < inner, other=0)
    else:
        value = tl.load(pointers)
    value = PREPARE(value)
    if MASKED:
        value = tl.where(at < end, value, IDENTITY())
    return value


@kernel
def _added(
    lanes, x, at, end, part, k, inner, reduced, x_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr,
    SHAPE: tl.constexpr, PARTS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The lanes with the elements of one more tile."""
    sums = ()
    for i in tl.static_range(len(lanes)):
        e = at + 4 * part + (i // 4 * 4 * PARTS + i % 4)
        value = _element(x, e, end, k, inner, reduced, x_reduced, PREPARE, IDENTITY, SHAPE[3], MASKED)
        sums += (COMBINE(lanes[i], value),)
    return sums


@kernel
def reduce_part_kernel(
    x, out, n, inner, blocks, groups, outer, x_outer, reduced, x_reduced,
    PREPARE: tl.constexpr, IDENTITY: tl.constexpr, COMBINE: tl.constexpr,
    SHAPE: tl.constexpr, PARTS: tl.constexpr, TAIL: tl.constexpr, GROUP_SIZE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """One part of a group of each row of a block; `out` is (outer, group, part, inner), of accumulators.

    SHAPE is that of a tile: the axis (0), rows, lanes of a part (4 or more), and whether the last block leaves `inner`.
    A loop takes TILES tiles at a time, whose loads may then be under way together.
    """
    LANES: tl.constexpr = SHAPE[2]
    TILE: tl.constexpr = LANES * PARTS
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    program = program // blocks
    part = program % PARTS
    group = program // PARTS % groups
    begin = group * GROUP_SIZE
    end = tl.minimum(begin + GROUP_SIZE, n)
    x += offset_of(program // PARTS // groups, outer, x_outer)
    whole = begin + (end - begin) // TILE * TILE
    lanes = ()
    for i in tl.static_range(LANES):
        e = begin + 4 * part + (i // 4 * 4 * PARTS + i % 4)
        lanes += (_element(x, e, end, k, inner, reduced, x_reduced, PREPARE, IDENTITY, SHAPE[3], TAIL),)
    first = begin + TILE
    if TILES > 1:
        first += tl.maximum(whole - first, 0) // (TILES * TILE) * (TILES * TILE)
        for at in range(begin + TILE, first, TILES * TILE):
            for tile in tl.static_range(TILES):
                lanes = _added(
                    lanes, x, at + tile * TILE, end, part, k, inner, reduced, x_reduced,
                    PREPARE, IDENTITY, COMBINE, SHAPE, PARTS, False,
                )  # fmt: skip
    for at in range(first, whole, TILE):
        lanes = _added(
            lanes, x, at, end, part, k, inner, reduced, x_reduced,
            PREPARE, IDENTITY, COMBINE, SHAPE, PARTS, False,
        )  # fmt: skip
    if TAIL:
        lanes = _added(
            lanes, x, tl.maximum(whole, begin + TILE), end, part, k, inner, reduced, x_reduced,
            PREPARE, IDENTITY, COMBINE, SHAPE, PARTS, True,
        )  # fmt: skip
    result = folded(lanes, COMBINE, True)
    out += program * inner + k
    if SHAPE[3]:
        tl.store(out, result, mask=k < inner)
    else:
        tl.store(out, result)


@kernel
def reduce_fold_kernel(
    x, out, total, inner, blocks, groups, out_inner, outer, out_outer,
    COMBINE: tl.constexpr, FINISH: tl.constexpr, SHAPE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Fold what `reduce_part_kernel` left: tiles of SHAPE, then what is in one tile."""
    WIDTH: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    program = program // blocks
    pointers = x + (program * PARTS + tl.arange(0, WIDTH))[:, None] * inner + k[None, :]
    values = ()
    for i in tl.static_range(PARTS // WIDTH):
        if SHAPE[3]:
            value = tl.load(pointers + i * WIDTH * inner, mask=(k < inner)[None, :], other=0)
        else:
            value = tl.load(pointers + i * WIDTH * inner)
        values += (value,)
    tile = folded(values, COMBINE, False)
    for _ in tl.static_range(12):
        if tile.shape[0] > 1:
            halves = tl.permute(tl.reshape(tile, (2, tile.shape[0] // 2, tile.shape[1])), (1, 2, 0))
            first, second = tl.split(halves)
            tile = COMBINE(first, second)
    result = cast(FINISH(tl.reshape(tile, (SHAPE[1],)), total), out.dtype.element_ty)
    out += offset_of(program // groups, outer, out_outer) + program % groups + k * out_inner
    if SHAPE[3]:
        tl.store(out, result, mask=k < inner)
    else:
        tl.store(out, result)
