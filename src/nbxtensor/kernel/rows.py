"""Row skeleton: how an operator that works on whole rows walks a strided tensor.

The axes of a row (the *reduced* axes) and the rest (the *kept* axes) are merged apart from each other. A program owns
one index of the outer kept axes and a block of the innermost kept axis; along the row it goes tile by tile. The tile
lies ``(kept, row)`` (``AXIS = 1``), or ``(row, kept)`` (``AXIS = 0``) where neighbours in memory are neighbours in the
kept axis. Nothing is copied: transposed, reversed and broadcast operands are walked by their strides. The position of
an element in its row is its row-major index over the reduced axes, whatever the strides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nbxtensor.base.shapes import contiguous_strides, merge_dims, reduced_shape
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.math import cast

Made = TypeVar("Made")

MAX_PLANS = 4096
LANES = 2048
GROUP = 65_536
NONE, APART, MASKED = 0, 1, 2
"""What becomes of a tile that leaves the row: there is none; it is masked apart from the loop; the loop masks each one.

The last costs nothing where a compiler splits masked loops itself, and lets it keep the accumulators in memory.
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """The walk over the rows of one or more operands that share a shape.

    Attributes
    ----------
    outer, inner
        Sizes of the merged kept axes: all but the innermost, and the innermost.
    outer_strides, inner_strides
        Their strides, for each operand.
    reduced, reduced_strides
        Sizes and strides of the merged reduced axes.
    count, length
        Number of rows, and elements in each.
    """

    outer: tuple[int, ...]
    outer_strides: tuple[tuple[int, ...], ...]
    inner: int
    inner_strides: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[tuple[int, ...], ...]

    @property
    def programs(self) -> int:
        """Number of outer indices."""
        total = 1
        for n in self.outer:
            total *= n
        return total

    @property
    def count(self) -> int:
        return self.programs * self.inner

    @property
    def length(self) -> int:
        total = 1
        for n in self.reduced:
            total *= n
        return total

    @property
    def groups(self) -> int:
        """Number of groups in a row."""
        return -(-self.length // GROUP)

    def unit(self, operand: int) -> bool:
        """Whether the elements of a row of `operand` lie one after the other."""
        return len(self.reduced) == 1 and (self.reduced_strides[operand][0] == 1 or self.reduced[0] == 1)

    def shape(self, kept: int, tile: int) -> tuple[int, int, int, int]:
        """Constant SHAPE of the kernels, for tiles of `kept` rows and `tile` elements of each."""
        return self.axis, kept, tile, int(self.inner % kept != 0)

    def tail(self, tile: int, profile: Profile) -> int:
        """How rows that are no multiple of `tile` are masked."""
        if self.length % tile == 0:
            return NONE
        return APART if profile.warp_size > 1 else MASKED

    def flags(self, operand: int) -> tuple[int, int]:
        """Constant FLAGS of the kernels: rows are contiguous; elements along the innermost kept axis are."""
        return int(self.unit(operand)), int(self.inner_strides[operand] == 1)

    def arguments(self, blocks: int) -> dict[str, int | tuple[int, ...]]:
        """Arguments of kernels that reduce the first operand to one element of the second for each group."""
        return {
            "n": self.length,
            "inner": self.inner,
            "blocks": blocks,
            "groups": self.groups,
            "x_inner": self.inner_strides[0],
            "out_inner": self.inner_strides[1] * self.groups,
            "outer": self.outer,
            "x_outer": self.outer_strides[0],
            "out_outer": tuple(s * self.groups for s in self.outer_strides[1]),
            "reduced": self.reduced,
            "x_reduced": self.reduced_strides[0],
        }

    @property
    def axis(self) -> int:
        """Where a tile has the row: 1 as a rule, 0 where the first operand is contiguous across rows only."""
        return 0 if not self.unit(0) and self.inner_strides[0] == 1 and self.inner > 1 else 1


def rows_of(shape: Sequence[int], axes: Sequence[int], strides: Sequence[Sequence[int]]) -> Rows:
    """The walk over rows along `axes` of operands of `shape` with the given strides."""
    chosen = set(axes)
    kept = [d for d in range(len(shape)) if d not in chosen]
    taken = [d for d in range(len(shape)) if d in chosen]
    kept_shape, kept_strides = merge_dims([shape[d] for d in kept], [[s[d] for d in kept] for s in strides])
    reduced, reduced_strides = merge_dims([shape[d] for d in taken], [[s[d] for d in taken] for s in strides])
    outer = kept_shape[:-1] or (1,)
    return Rows(
        outer=outer,
        outer_strides=tuple(s[:-1] or (0,) for s in kept_strides),
        inner=kept_shape[-1],
        inner_strides=tuple(s[-1] for s in kept_strides),
        reduced=reduced,
        reduced_strides=reduced_strides,
    )


def passes_of(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> list[Rows]:
    """The walks of a reduction: along the rows, then along what their groups left, until a row is one group."""
    steps = contiguous_strides(reduced_shape(shape, axes, True))
    passes = [rows_of(shape, axes, (strides, [0 if d in axes else s for d, s in enumerate(steps)]))]
    while (groups := passes[-1].groups) > 1:
        passes.append(rows_of((passes[-1].count, groups), (1,), ((groups, 1), (1, 0))))
    return passes


def cached(plans: dict[Any, Made], key: Any, make: Callable[[], Made]) -> Made:
    """What `plans` holds under `key`, made if it is not there; the dict is emptied when it is full."""
    found = plans.get(key)
    if found is None:
        if len(plans) >= MAX_PLANS:
            plans.clear()
        found = plans[key] = make()
    return found


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


@kernel
def offset_of(index, shape, strides):
    """Element offset of the row-major `index` into axes of the given sizes and strides (tuples of int64)."""
    offset = index * 0
    for i in tl.static_range(len(shape) - 1):
        offset += (index % shape[len(shape) - 1 - i]) * strides[len(shape) - 1 - i]
        index = index // shape[len(shape) - 1 - i]
    return offset + index * strides[0]


# In the helpers below SHAPE is ``(AXIS, KEPT, TILE, PARTIAL)``: which axis of the tile is the row, its sizes, and
# whether the last block leaves the kept axis. FLAGS is ``(UNIT, DENSE)`` of one operand: its rows are contiguous; its
# kept elements are. `rows` is ``(k, inner, reduced)``: the block's indices, the size of the kept axis, the sizes of the
# row's axes. `walk` is ``(stride, strides)`` of one operand: along the kept axis, along the row's axes.


@kernel
def kept_block(block, SHAPE: tl.constexpr):
    """Indices of a block along the innermost kept axis (int64)."""
    return block * SHAPE[1] + tl.arange(0, SHAPE[1])


@kernel
def group_of(n, blocks, groups, SHAPE: tl.constexpr, GROUP_SIZE: tl.constexpr):
    """What a program reduces: the group's index, first and end element, and the rows' inner indices and outer index."""
    program = tl.program_id(0).to(tl.int64)
    group = program % groups
    program = program // groups
    begin = group * GROUP_SIZE
    return group, begin, tl.minimum(begin + GROUP_SIZE, n), kept_block(program % blocks, SHAPE), program // blocks


@kernel
def filled(value, SHAPE: tl.constexpr):
    """A tile full of one value."""
    AXIS: tl.constexpr = SHAPE[0]
    KEPT: tl.constexpr = SHAPE[1]
    TILE: tl.constexpr = SHAPE[2]
    if AXIS == 1:
        tile = tl.broadcast_to(value, (KEPT, TILE))
    else:
        tile = tl.broadcast_to(value, (TILE, KEPT))
    return tile


@kernel
def pointers_of(x, at, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr):
    """Pointers of the tile whose row part starts at `at`."""
    i = tl.arange(0, SHAPE[2])
    across = rows[0]
    if not FLAGS[1]:
        across = across * walk[0]
    if FLAGS[0]:
        along = i
        x += at
    else:
        along = offset_of(at + i.to(tl.int64), rows[2], walk[1])
    if SHAPE[0] == 1:
        pointers = (x + across[:, None]) + along[None, :]
    else:
        pointers = (x + along[:, None]) + across[None, :]
    return pointers


@kernel
def in_row(at, end, SHAPE: tl.constexpr):
    """Which elements of the tile that starts at `at` lie before `end`."""
    mask = at + tl.arange(0, SHAPE[2]) < end
    if SHAPE[0] == 1:
        mask = mask[None, :]
    else:
        mask = mask[:, None]
    return mask


@kernel
def in_tile(at, end, rows, SHAPE: tl.constexpr, TAIL: tl.constexpr):
    """Which elements of a tile are in the block and (TAIL) before `end`."""
    mask = rows[0] < rows[1]
    if SHAPE[0] == 1:
        mask = mask[:, None]
    else:
        mask = mask[None, :]
    if TAIL:
        mask = mask & in_row(at, end, SHAPE)
    return mask


@kernel
def load_tile(x, at, end, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr):
    """Elements of the tile that starts at `at`; 0 where it leaves the row (only if TAIL) or the block."""
    pointers = pointers_of(x, at, rows, walk, SHAPE, FLAGS)
    if SHAPE[3]:
        value = tl.load(pointers, mask=in_tile(at, end, rows, SHAPE, TAIL), other=0)
    elif TAIL:
        value = tl.load(pointers, mask=in_row(at, end, SHAPE), other=0)
    else:
        value = tl.load(pointers)
    return value


@kernel
def load_along(x, at, end, reduced, strides, SHAPE: tl.constexpr, UNIT: tl.constexpr, TAIL: tl.constexpr):
    """Elements (float32) of an operand that is the same for every row, in the shape that broadcasts against a tile."""
    i = tl.arange(0, SHAPE[2])
    if UNIT:
        pointers = (x + at) + i
    else:
        pointers = x + offset_of(at + i.to(tl.int64), reduced, strides)
    if TAIL:
        value = tl.load(pointers, mask=at + i < end, other=0)
    else:
        value = tl.load(pointers)
    if SHAPE[0] == 1:
        value = value[None, :]
    else:
        value = value[:, None]
    return value.to(tl.float32)


@kernel
def store_tile(x, value, at, end, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr):
    """Store a tile where `load_tile` would load it."""
    pointers = pointers_of(x, at, rows, walk, SHAPE, FLAGS)
    value = cast(value, x.dtype.element_ty)
    if SHAPE[3]:
        tl.store(pointers, value, mask=in_tile(at, end, rows, SHAPE, TAIL))
    elif TAIL:
        tl.store(pointers, value, mask=in_row(at, end, SHAPE))
    else:
        tl.store(pointers, value)


@kernel
def per_row(value, SHAPE: tl.constexpr):
    """One value a row, in the shape that broadcasts against a tile."""
    if SHAPE[0] == 1:
        value = value[:, None]
    else:
        value = value[None, :]
    return value
