"""The candidate space of softmax: which kernel, and how it is cut into programs. Every setting gives the same bits."""

from dataclasses import dataclass
from typing import Literal

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import GROUP, LANES, Rows, power_of_two


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run softmax.

    Attributes
    ----------
    kept
        Rows of a block.
    num_warps
        Warps of a program (split: of those that sum lanes).
    form
        ``held``: rows in registers; ``looped``: tile by tile in one program; ``split``: over programs.
    unroll
        Tiles that are loaded at once (looped), or written by a program (split).
    held
        Tiles at the start of a row that stay in registers (looped).
    width
        Neighbouring lanes that a program sums (split).
    together
        Rows that go through all launches before the next ones start (split); 0: all of them.
    """

    kept: int
    num_warps: int
    form: Literal["held", "looped", "split"] = "held"
    unroll: int = 1
    held: int = 0
    width: int = 0
    together: int = 0


def tile_of(rows: Rows) -> int:
    """Elements of a tile along the row: a lane each."""
    return min(LANES, max(4, power_of_two(rows.length)))


def _fits(setting: Setting, rows: Rows, profile: Profile, itemsize: int) -> bool:
    """Whether a program's tile respects the profile: the reduce cap, and the registers that elements are held in."""
    tile = tile_of(rows)
    if setting.form == "split":
        return rows.length > LANES and setting.kept * LANES <= profile.reduce_tile_max and profile.warp_size > 1
    if setting.kept * tile > profile.reduce_tile_max:
        return False
    if setting.held * tile > min(rows.length, GROUP):
        return False
    if setting.form == "held" and rows.length > GROUP:
        return False
    if profile.registers_per_thread == 0:
        return True
    tiles = setting.unroll + setting.held if setting.form == "looped" else -(-rows.length // LANES)
    words = tiles * setting.kept * tile // (setting.num_warps * profile.warp_size)
    return words + 24 <= min(profile.registers_per_thread, 2048 // setting.num_warps)


def _on_cpu(rows: Rows) -> list[Setting]:
    tile = tile_of(rows)
    across = rows.axis == 0
    kept = min(power_of_two(rows.inner), max(32, 16_384 // tile) if across else max(1, 1024 // tile))
    held = Setting(kept, 1)
    looped = Setting(kept, 1, "looped", unroll=1 if across else 2)
    # Rows stay in the second-level cache together with their exponentials.
    return [held, looped] if rows.length <= (LANES if across else 8 * LANES) else [looped]


def _on_gpu(rows: Rows, itemsize: int) -> list[Setting]:
    tile, widest = tile_of(rows), power_of_two(rows.inner)
    tiles = -(-rows.length // LANES)
    tried: list[Setting] = []
    if rows.axis == 0:
        tried.append(Setting(min(widest, max(8, 16_384 // (tile * tiles))), 16, "looped" if tiles > 1 else "held"))
    else:
        # 2,048 bytes to a warp at least; where rows are masked, several of them hide what the masks cost.
        together = 4 if tile <= 1024 and rows.length % tile else 1
        kept = min(widest, together * max(1, 2048 // (itemsize * tile)))
        warps = min(16, max(1, power_of_two(kept * tile * tiles // 1024)))
        if rows.length > 4 * LANES and rows.count <= 64:
            tried.append(Setting(1, 1, "split", unroll=2, width=64))
        tried.append(Setting(kept, warps, "held"))
        tried.append(Setting(1, 16, "looped", unroll=8))
    tried.append(Setting(1, 8, "looped", unroll=4))
    tried += [Setting(k, w, "held") for k in (1, 2, 4, 8, 16, 32) if k <= widest for w in (1, 2, 4, 8, 16, 32)]
    tried += [Setting(1, w, "looped", unroll=u) for w in (4, 8, 16, 32) for u in (1, 2, 4, 8, 16)]
    tried += [Setting(1, w, "split", unroll=2, width=c) for c in (32, 64, 128, 256) for w in (1, 2)]
    return tried


def candidates(rows: Rows, profile: Profile, itemsize: int = 4) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tried = _on_cpu(rows) if profile.warp_size == 1 else _on_gpu(rows, itemsize)
    found = tuple(dict.fromkeys(s for s in tried if _fits(s, rows, profile, itemsize)))
    if not found:
        raise CompileError(
            "nbx.nn.softmax",
            "no setting suits the device",
            got=f"{profile.arch}, rows of {rows.length}",
            allowed=f"tiles of at most {profile.reduce_tile_max} elements",
        )
    return found
