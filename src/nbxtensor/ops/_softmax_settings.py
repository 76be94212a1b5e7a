"""The candidate space of softmax: which kernel, and how it is cut into programs. Every setting gives the same bits."""

from dataclasses import dataclass, replace
from typing import Literal

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import GROUP, LANES, Rows, power_of_two

FEW_ROWS = 4  # of which every program of a split row adds the partial sums itself
MANY_ROWS = 64  # from which on a program a row keeps a GPU busy


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
    words = tiles * setting.kept * tile // (setting.num_warps * profile.warp_size) * max(4, itemsize) // 4
    return words + 24 <= min(profile.registers_per_thread, 2048 // setting.num_warps)


def _on_cpu(rows: Rows) -> list[Setting]:
    tile = tile_of(rows)
    across = rows.axis == 0
    kept = min(power_of_two(rows.inner), max(32, 16_384 // tile) if across else max(1, 1024 // tile))
    held = Setting(kept, 1)
    looped = Setting(kept, 1, "looped", unroll=1 if across else 2)
    # Rows stay in the second-level cache together with their exponentials.
    return [held, looped] if rows.length <= (LANES if across else 8 * LANES) else [looped]


def _short(n: int, widest: int, log_form: bool) -> list[Setting]:
    """Rows of up to a tile: about 1,024 elements a program."""
    tile = max(4, power_of_two(n))
    kept = min(widest, max(1, 1024 // tile))
    quick = 2 if log_form or n <= 64 or n > 512 else 4
    warps = max(1, min(quick, kept * tile // 128)) if n <= 1024 else 4
    return [Setting(kept, warps), Setting(kept, max(1, warps // 2)), Setting(min(widest, 2 * kept), 4)]


def _long(n: int, itemsize: int, log_form: bool) -> list[Setting]:
    """Longer rows, one a program: held as long as they fit, then looped with a part held."""
    warps = min(16, power_of_two(n) // (2048 if itemsize == 2 and n > 4 * LANES else 1024))
    held = [Setting(1, warps), Setting(1, min(16, 2 * warps)), Setting(1, max(2, warps // 2))]
    looped = [Setting(1, 8, "looped", unroll=8), Setting(1, 16, "looped", unroll=4)]
    if itemsize == 4 and n > 16 * LANES:
        looped.insert(0, Setting(1, 16, "looped", unroll=4, held=12 if log_form else 8))
        if not log_form and n <= 26 * LANES:
            looped.insert(0, Setting(1, 32))
    elif itemsize == 2 and n > GROUP:
        looped.insert(0, Setting(1, 16, "looped", unroll=4, held=8))
    if n > GROUP and not log_form:
        looped.insert(0, Setting(1, 16, "looped", unroll=8))
    if itemsize == 8:
        held = [replace(s, num_warps=min(16, 2 * s.num_warps)) for s in held]
        looped = [Setting(1, 16, "looped", unroll=2), Setting(1, 8, "looped", unroll=2)]
    held_ends = {2: 8 * LANES, 4: 16 * LANES, 8: 4 * LANES}[itemsize]
    return held + looped if n <= held_ends else looped


def _split(rows: Rows, log_form: bool) -> list[Setting]:
    few = rows.count <= FEW_ROWS and not log_form
    return [Setting(1, 1, "split", unroll=1 if few else 2, width=64), Setting(1, 2, "split", unroll=2, width=128)]


def _on_gpu(rows: Rows, itemsize: int, log_form: bool) -> list[Setting]:
    n, widest = rows.length, power_of_two(rows.inner)
    if rows.axis == 0:
        tile, tiles = tile_of(rows), -(-n // LANES)
        kept = min(widest, max(8, 16_384 // (tile * tiles)))
        across = Setting(kept, 16, "looped" if tiles > 1 else "held")
        return [across, replace(across, kept=max(1, kept // 2)), Setting(1, 8, "looped", unroll=2)]
    looped = [Setting(1, 4, "looped")]
    if n <= LANES:
        return _short(n, widest, log_form) + looped
    split = _split(rows, log_form) if rows.count <= MANY_ROWS and n > 16 * LANES else []
    return split + _long(n, itemsize, log_form) + looped


def candidates(rows: Rows, profile: Profile, itemsize: int = 4, log_form: bool = False) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tried = _on_cpu(rows) if profile.warp_size == 1 else _on_gpu(rows, itemsize, log_form)
    found = tuple(dict.fromkeys(s for s in tried if _fits(s, rows, profile, itemsize)))
    if not found:
        raise CompileError(
            "nbx.nn.softmax",
            "no setting suits the device",
            got=f"{profile.arch}, rows of {rows.length}",
            allowed=f"tiles of at most {profile.reduce_tile_max} elements",
        )
    return found
