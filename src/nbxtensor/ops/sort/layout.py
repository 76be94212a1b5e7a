"""Where the rows of a sort lie: one operand in, values and indices out, any strides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from nbxtensor.base.dtypes import DType, int32, int64
from nbxtensor.base.shapes import merge_dims
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.rows import offset_of
from nbxtensor.ops.sort.keys import Key, key_of
from nbxtensor.tuning.key import LaunchKey, launch_key

Run = Callable[[int, int, int], None]
"""Sorts, given the addresses of x, values and indices."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of a sort.

    Attributes
    ----------
    kept, kept_strides
        Sizes of the merged other axes, and their strides in x, values and indices.
    count, length, limit
        Rows, elements in each, and how many of them are wanted.
    steps
        Distance of neighbours in a row of x, values and indices.
    key
        What the bits of an element mean; see `nbxtensor.ops.sort.keys`.
    wanted
        Whether values and indices are wanted.
    """

    kept: tuple[int, ...]
    kept_strides: tuple[tuple[int, ...], ...]
    count: int
    length: int
    limit: int
    steps: tuple[int, int, int]
    key: Key
    wanted: tuple[int, int]

    @property
    def forms(self) -> tuple[tuple[int, int], ...]:
        """For x, values and indices: whether neighbours in a row, and in a column, are neighbours in memory."""
        one = len(self.kept) == 1
        return tuple(
            (int(step == 1), int(one and kept[0] == 1))
            for step, kept in zip(self.steps, self.kept_strides, strict=True)
        )


def layout_of(
    shape: Sequence[int],
    axis: int,
    limit: int,
    strides: Sequence[Sequence[int]],
    dtype: DType,
    descending: bool,
    wanted: tuple[bool, bool],
) -> Layout:
    """The rows along `axis` of an operand of `shape`; `strides` are those of x, values and indices."""
    others = [d for d in range(len(shape)) if d != axis]
    kept, kept_strides = merge_dims([shape[d] for d in others], [[s[d] for d in others] for s in strides])
    if kept == (1,):
        kept_strides = ((0,),) * 3  # the offset of the only row is seen to be aligned
    count = 1
    for n in kept:
        count *= n
    x, values, indices = (s[axis] for s in strides)
    return Layout(
        kept, kept_strides, count, shape[axis], limit, (x, values, indices), key_of(dtype, descending),
        (int(wanted[0]), int(wanted[1])),
    )  # fmt: skip


def key_of_launch(variant: str, layout: Layout, device: Device, *more: str, length: int = 0) -> LaunchKey:
    """The launch key of a kernel of the family; `length`: elements of a row where it is not the tensor's."""
    length = length or layout.length
    sizes = {"count": layout.count, "length": length, "limit": min(layout.limit, length)}
    steps = "".join(str(int(step == 1)) for step in layout.steps)
    flags = (f"step {steps}", f"wanted {layout.wanted[0]}{layout.wanted[1]}", f"vectors of {gcd(length, 16)}", *more)
    return launch_key("sort", variant, sizes, (layout.key[0] // 8,), device.target, flags)


def packing(layout: Layout) -> int:
    """PACK for rows of this length."""
    if layout.key[0] <= 16 and layout.length <= 1 << 16:
        return 32
    return 64 if layout.key[0] <= 32 and layout.length <= 1 << 32 else 0


def place_dtype(pack: int) -> DType:
    """What a packed element (PACK = 0: a key, and an index) is kept in between launches."""
    return int32 if pack == 32 else int64


@kernel
def row_offset(row, kept, strides, FORM: tl.constexpr):
    """Element offset of the first element of a row."""
    if FORM[1]:
        offset = row
    else:
        offset = offset_of(row, kept, strides)
    return offset


@kernel
def along_row(i, step, FORM: tl.constexpr):
    """Element offset of position `i` of a row."""
    if FORM[0]:
        offset = i
    else:
        offset = i * step
    return offset
