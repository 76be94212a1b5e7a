"""The candidate space of the pointwise skeleton: how elements are cut into programs. No setting changes a bit."""

from dataclasses import dataclass

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import power_of_two

MOST = 16  # elements of a thread, beyond which registers fill with elements that wait
MOST_UNSEEN = 8  # of one that was never measured: some keep their odd tails on a stack with more


@dataclass(frozen=True, slots=True)
class FlatSetting:
    """Elements of a program, and its warps."""

    block: int
    num_warps: int


def _fits(setting: FlatSetting, profile: Profile) -> bool:
    if setting.block > profile.reduce_tile_max:  # functions with a rare branch ask the whole block for it
        return False
    if profile.warp_size == 1:
        return True
    threads = setting.num_warps * profile.warp_size
    most = MOST if profile.is_measured else MOST_UNSEEN
    return threads <= setting.block <= most * threads


def flat_candidates(profile: Profile, itemsize: int) -> tuple[FlatSetting, ...]:
    """The settings worth trying for contiguous elements of `itemsize` bytes, best guess first.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    if profile.warp_size == 1:
        tried = [(4096, 1), (2048, 1), (1024, 1), (8192, 1)]
    elif itemsize == 2:
        tried = [(1024, 2), (2048, 4), (4096, 8), (2048, 8), (1024, 4), (512, 2)]
    elif itemsize == 8:
        tried = [(512, 4), (1024, 4), (512, 2), (1024, 8)]
    else:  # 32 bytes a thread of 4, 16 elements of 1
        tried = [(4096 // max(itemsize, 2), 4), (2048, 8), (1024, 8), (512, 2), (1024, 4)]
    settings = (FlatSetting(*one) for one in tried)
    found = tuple(dict.fromkeys(s for s in settings if _fits(s, profile)))
    if not found:
        raise CompileError(
            "pointwise",
            "no setting suits the device",
            got=f"{profile.arch}, elements of {itemsize} bytes",
            allowed=f"blocks of at most {profile.reduce_tile_max} elements",
        )
    return found


@dataclass(frozen=True, slots=True)
class TileSetting:
    """Rows and columns of a program, and its warps."""

    rows: int
    columns: int
    num_warps: int


def tile_candidates(profile: Profile, rows: int, cols: int, inners: tuple[int, ...]) -> tuple[TileSetting, ...]:
    """The settings worth trying for rows times columns, best guess first.

    Tiles are square where some operand does not run along the inner dimension (2 among `inners`).
    """
    if profile.warp_size == 1:
        tried = [(2048, 2048, 1), (4096, 4096, 1), (1024, 1024, 1)]
    else:
        widest = 32 if 2 in inners else 1024
        tried = [(1024, widest, 4), (2048, 2 * widest, 4), (512, widest, 2), (2048, widest, 8)]
    found: list[TileSetting] = []
    for elements, widest, warps in tried:
        elements = min(elements, profile.reduce_tile_max)
        columns = min(power_of_two(cols), widest, elements)
        found.append(TileSetting(max(1, min(power_of_two(rows), elements // columns)), columns, warps))
    return tuple(dict.fromkeys(found))
