"""The candidate space of reductions: how rows are cut into programs. Every setting gives the same bits."""

from dataclasses import dataclass

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import GROUP, LANES, Rows, power_of_two


def rows_within(kept: int, tile: int, profile: Profile, function: str) -> int:
    """At most `kept` (a power of two): as many rows of `tile` elements as the profile allows in one reduced tile.

    Raises
    ------
    CompileError
        If it does not even allow one.
    """
    cap = profile.reduce_tile_max
    if tile > cap:
        problem = "rows are reduced in tiles that the device does not allow"
        raise CompileError(function, problem, got=tile, allowed=f"at most {cap}")
    return min(kept, 1 << (cap // tile).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows of a block, elements of each in a tile, and warps."""

    kept: int
    tile: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows of a block, lanes of a part, parts, warps, and tiles of a step (`nbxtensor.kernel.reduce_parts`)."""

    kept: int
    lanes: int
    parts: int
    num_warps: int
    tiles: int = 1


def _fits(setting: Setting, rows: Rows, itemsize: int) -> bool:
    """Whether the registers of a thread hold what it reduces across rows, and in a loop what it loads as well."""
    words = setting.kept * setting.tile * max(4, itemsize) // 4 // (32 * setting.num_warps)
    return rows.axis == 1 or words <= (32 if min(rows.length, GROUP) > setting.tile else 64)


def _warps(words: int) -> int:
    """Warps whose threads hold 32 of them."""
    return min(16, max(4, power_of_two(words // 1024)))


MANY = 1 << 22
"""Elements from which a second launch pays."""
WIDE = 1024
"""Rows beside each other from which there are programs enough of many rows each."""


def in_parts(rows: Rows, tile: int, itemsize: int) -> tuple[Parts, ...]:
    """Settings that reduce long rows across memory in parts, best guess first; none where a tile has no parts."""
    if itemsize > 4:
        tried = [(64, 16, 2, 2), (128, 16, 2, 1)]
    else:
        tried = [(512, 16, 4, 1), (64, 8, 2, 4)]
        if rows.inner < WIDE:
            tried.reverse()
    found = dict[Parts, None]()
    for kept, lanes, warps, tiles in tried:
        least = min(kept, power_of_two(rows.inner))
        if tile >= 4 * lanes:
            found[Parts(least, lanes, tile // lanes, max(1, warps * least // kept), tiles)] = None
    return tuple(found)


def candidates(
    name: str, ordered: bool, rows: Rows, profile: Profile, itemsize: int = 4
) -> tuple[Setting | Parts, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    A thread of a GPU holds 32 elements, fewer where it loops over a long row, and many long rows across memory are
    reduced in parts; a CPU takes long rows one at a time, which keeps the accumulators in the first cache. Where the
    order shows (`ordered`), a tile has all lanes.

    Parameters
    ----------
    itemsize
        Bytes of an accumulator.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    lanes = LANES if ordered else min(LANES, profile.reduce_tile_max)
    tile = min(lanes, max(4, power_of_two(rows.length)))
    widest = rows_within(power_of_two(rows.inner), tile, profile, f"nbx.{name}")
    if profile.warp_size == 1:
        kept = max(32, 16_384 // tile) if rows.axis == 0 else max(1, 1024 // tile)
        tried = [(kept, 1), (2 * kept, 1), (max(1, kept // 2), 1)]
    elif rows.axis == 0:
        kept = min(max(16, (4096 if tile <= 128 else 8192) // tile), widest)
        several = [(k, _warps(k * tile * max(4, itemsize) // 4)) for k in (max(1, kept >> i) for i in range(4))]
        warps = several[0][1]
        tried = [(kept, warps), (kept, max(2, warps // 2)), (max(1, kept // 2), warps), *several[1:]]
    else:
        kept = min(max(1, 2048 // tile), widest)
        warps = 8 if rows.length > tile else max(1, power_of_two(kept * tile // 1024))
        tried = [(kept, warps), (kept, max(1, warps // 2)), (kept, min(16, 2 * warps)), (max(1, kept // 2), warps)]
    found = dict.fromkeys(Setting(min(kept, widest), tile, warps) for kept, warps in tried)
    whole = tuple(s for s in found if profile.warp_size == 1 or _fits(s, rows, itemsize))[:4]
    if profile.warp_size == 1 or rows.axis == 1:
        return whole
    parts = in_parts(rows, tile, itemsize)
    return (*parts, *whole) if tile >= 512 and rows.count * rows.length >= MANY else (*whole, *parts)
