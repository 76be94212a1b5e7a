"""The candidate space of scans: how rows are cut into programs. Every setting gives the same bits."""

from dataclasses import dataclass, replace

from nbxtensor.base.errors import CompileError
from nbxtensor.base.knobs import num_threads
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import Rows, power_of_two

TILE = 16**3
SEGMENT = 16**4
"""Elements of the largest tile, and of a row that one program takes element after element."""
FEW_ROWS = 512
"""Fewer leave a GPU idle."""
MOST_FOLDED = 1 << 24
"""Elements (of all rows) up to which it takes less time to add up totals in each program than to launch once more."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run a scan.

    Attributes
    ----------
    kept
        Rows of a block.
    num_warps
        Warps of a program.
    tile
        Elements of a tile (16, 256 or 4,096); 0: element after element along the row.
    split
        Rows are split over programs: totals of segments, then the segments after them.
    fold
        Whether each program of the second launch adds up the totals before it, where that is possible; else a launch
        between the two does.
    """

    kept: int
    num_warps: int
    tile: int = 0
    split: bool = False
    fold: bool = True

    @property
    def serial(self) -> bool:
        return self.tile == 0

    @property
    def segment(self) -> int:
        """Elements that one program takes of a split row."""
        return self.tile or SEGMENT


def _fits(setting: Setting, rows: Rows, profile: Profile, itemsize: int) -> bool:
    """Whether the profile allows a setting; `itemsize` is that of the accumulator."""
    if setting.serial:
        return not (profile.warp_size == 1 and setting.num_warps > 1)
    tile = setting.kept * setting.tile
    if tile // 16 > profile.reduce_tile_max:
        return False
    if profile.registers_per_thread == 0:
        return True
    words = tile * itemsize // 4 // (setting.num_warps * profile.warp_size)
    if rows.length > setting.tile and not setting.split:
        needed = 6 * words + 80  # the chains of the levels beside a tile
    else:
        needed = 3 * words + 32
    return needed <= min(profile.registers_per_thread, 2048 // setting.num_warps)


def _on_cpu(rows: Rows) -> list[Setting]:
    dense = rows.inner_strides == (1, 1)
    whole = Setting(min(power_of_two(rows.inner), 128) if dense else 1, 1)
    if num_threads.get() > 1 and rows.count < 4 and rows.length >= 4 * SEGMENT:
        return [replace(whole, split=True), whole]
    return [whole]


def _on_gpu(rows: Rows, itemsize: int) -> list[Setting]:
    n, inner = rows.length, power_of_two(rows.inner)
    if not rows.unit(0) and rows.inner_strides == (1, 1) and rows.inner >= 32:
        column = Setting(min(inner, 128), max(1, min(inner, 128) // 32))
        found = [column, replace(column, kept=32, num_warps=1)]
        return [replace(column, split=True), *found] if rows.count < FEW_ROWS and n >= 4 * SEGMENT else found
    tile = 16 if n <= 16 else 256 if n <= 256 else TILE
    kept = min(inner, max(1, TILE // tile))
    wide = Setting(kept, max(1, kept * tile // 512), tile)
    half = replace(wide, num_warps=max(1, wide.num_warps // 2))
    whole = [half, wide] if itemsize <= 4 and tile > 16 else [wide, half]
    if n <= TILE:
        return [*(whole if tile > 16 else [wide]), replace(half, kept=max(1, kept // 2))]
    apart = replace(wide, split=True, fold=rows.count * n <= MOST_FOLDED)
    split = [apart, replace(apart, fold=not apart.fold)]
    # Programs that walk along rows do well if they are many and load vectors.
    return split + whole if n >= 4 * TILE and (rows.count < FEW_ROWS or n % 16) else whole + split


def candidates(rows: Rows, profile: Profile, itemsize: int = 4, name: str = "cumulative_sum") -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Parameters
    ----------
    itemsize
        Bytes of an accumulator.
    name
        Operator, for the error.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tried = _on_cpu(rows) if profile.warp_size == 1 else _on_gpu(rows, itemsize)
    found = tuple(dict.fromkeys(s for s in tried if _fits(s, rows, profile, itemsize)))
    if not found:
        raise CompileError(
            f"nbx.{name}",
            "no setting suits the device",
            got=f"{profile.arch}, rows of {rows.length}",
            allowed=f"reduced tiles of at most {profile.reduce_tile_max} elements",
        )
    return found
