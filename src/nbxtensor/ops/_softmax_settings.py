"""The candidate space of softmax: which kernel, and how it is cut into programs. Every setting gives the same bits."""

from dataclasses import dataclass, replace
from typing import Literal

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import GROUP, LANES, Rows, power_of_two

FEW_ROWS = 4  # whose programs must be small to keep a GPU busy
FEW_GROUPS = 4  # of a row, whose partial sums every program that writes adds itself
MANY_ROWS = 64  # from which on a program a row keeps a GPU busy
SPARE = 4096  # bytes of shared memory that reductions take


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
        ``held``: rows in registers; ``columns``: in those of a thread; ``looped``: tile by tile in one program;
        ``split``: over programs.
    unroll
        Tiles that are loaded at once (looped), or written by a program (split).
    held
        Tiles at the start of a row that stay in registers (looped).
    width
        Neighbouring lanes that a program sums (split).
    fold
        Parts of a row of which a thread holds elements (held).
    stages
        Turns of the loop that are under way at once, their elements in shared memory (looped, split); 1: one.
    steps
        Elements of a lane that are loaded at once (split).
    writers
        Warps of the programs that write (split).
    run
        Neighbours among those lanes, the others far away: then each program that writes adds the partial sums itself,
        if those are few; 0: a launch of its own adds them (split).
    """

    kept: int
    num_warps: int
    form: Literal["held", "columns", "looped", "split"] = "held"
    unroll: int = 1
    held: int = 0
    width: int = 0
    fold: int = 1
    stages: int = 1
    steps: int = 8
    writers: int = 4
    run: int = 0


def tile_of(rows: Rows) -> int:
    """Elements of a tile along the row: a lane each."""
    return min(LANES, max(4, power_of_two(rows.length)))


def write_tile(rows: Rows, kept: int) -> int:
    """Elements along the row of a tile that the last launch of a split softmax writes."""
    return LANES if rows.axis == 1 else max(4, LANES // kept)


def _fits(setting: Setting, rows: Rows, profile: Profile, itemsize: int) -> bool:
    """Whether a program respects the profile: the reduce cap, and the registers and shared memory for its elements."""
    tile = tile_of(rows)
    size = setting.kept * (setting.width * setting.steps if setting.form == "split" else tile * setting.unroll)
    if setting.stages > 1 and (setting.stages - 1) * size * itemsize + SPARE > profile.shared_bytes:
        return False
    if setting.form == "split":
        largest = setting.kept * max(setting.width, write_tile(rows, setting.kept))
        return rows.length > LANES and max(LANES, largest) <= profile.reduce_tile_max and profile.warp_size > 1
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


def _short(n: int, widest: int, itemsize: int, log_form: bool) -> list[Setting]:
    """Rows of up to a tile, about 1,024 elements a program: few threads for a row, which all do the row's own part."""
    tile = max(4, power_of_two(n))
    kept = min(widest, max(1, 1024 // tile))
    if n > 512 or kept * tile < 1024:
        if itemsize == 8 and n > 512:
            return [Setting(kept, 8), *([Setting(kept, 4)] if n > 1024 else [])]
        warps = max(1, min(2, kept * tile // 128)) if n <= 1024 else 4
        found = [Setting(kept, warps), Setting(kept if warps > 1 else 1, max(1, warps // 2))]
        return found[::-1] if itemsize == 2 and kept == 1 else found
    # Parts of at least four elements, the first step of the tree, and of whole vectors.
    many = log_form and n > (32 if itemsize == 2 else 64)
    fold = min(4 if many else 2, max(1, tile * min(itemsize, 4) // 16))
    warps = 1 if many and itemsize == 2 else 4 if itemsize == 8 else 2
    return [Setting(kept, warps, fold=fold), Setting(kept, 4)]


def _looped(rows: Rows, itemsize: int, log_form: bool, roomy: bool) -> list[Setting]:
    """Rows that one program goes through tile by tile: bytes under way matter, and programs on a processor at once."""
    n = rows.length
    if itemsize == 8:
        return [Setting(1, 16, "looped", unroll=2)]
    if n <= GROUP and n * itemsize % 16:
        unroll = 4 if roomy or itemsize == 4 else 2
        return [Setting(1, 16, "looped", unroll=unroll, held=1 if itemsize == 2 else 12 if log_form else 8)]
    if itemsize == 2 and not roomy:
        return [Setting(1, 8, "looped", unroll=2)]
    staged = Setting(1, 8, "looped", unroll=4, stages=4)
    if itemsize == 4:
        staged = Setting(1, 16, "looped", unroll=8, held=8, stages=3)
        if log_form and n <= GROUP:
            staged = replace(staged, unroll=4, held=12)
        return [staged, Setting(1, 16, "looped", unroll=4, held=8)]
    return [Setting(1, 8, "looped", unroll=8)] if n <= GROUP and not (log_form and n > 16 * LANES) else [staged]


def _long(rows: Rows, itemsize: int, log_form: bool, roomy: bool) -> list[Setting]:
    """Longer rows, one a program: held as long as they fit."""
    n = rows.length
    warps = min(16, power_of_two(n) // (2048 if itemsize == 2 and n > 2 * LANES else 512 if itemsize == 8 else 1024))
    held = [Setting(1, warps), Setting(1, min(16, 2 * warps) if itemsize == 2 else max(2, warps // 2))]
    if log_form and itemsize == 4 and 4 * LANES < n <= 8 * LANES:
        held = held[::-1]
    ends = {2: 8 * LANES, 4: 16 * LANES, 8: 4 * LANES}[itemsize]
    return held if n <= ends else _looped(rows, itemsize, log_form, roomy)


def _split(rows: Rows, itemsize: int, measured: bool) -> list[Setting]:
    staged = Setting(1, 1, "split", unroll=2, width=64, steps=4, stages=4, writers=8)
    three = Setting(1, 1, "split", unroll=2, width=64) if itemsize == 2 else staged
    if rows.groups > FEW_GROUPS or itemsize == 8:
        return [three]
    # More warps where it was never measured: ptxas keeps a register of four in memory on some targets.
    two = replace(staged, width=128, run=32, writers=4 if measured else 8)
    if rows.count <= FEW_ROWS:
        two = replace(two, width=64, run=16, unroll=1, writers=4)
    return [two, three]


def _across(rows: Rows, itemsize: int, log_form: bool) -> list[Setting]:
    """Rows that lie across memory: a block of neighbouring rows is as wide as a line of a cache, if registers allow."""
    tile, widest = tile_of(rows), power_of_two(rows.inner)
    line = min(widest, 32)
    if rows.length > LANES:
        if itemsize == 8:
            return [Setting(1, 16, "looped")]
        split = Setting(line, 4, "split", unroll=2, width=32, steps=2)
        return [split, replace(split, width=64, steps=1), Setting(min(widest, 2), 16, "looped")]
    if tile * max(4, itemsize) <= 128:
        one, two = (Setting(min(widest, rows_each), 4, "columns") for rows_each in (128, 256))
        return [one] if tile * max(4, itemsize) == 128 and log_form else [two, one]
    warps = 4 if tile <= 256 else 8 if tile <= 1024 else 16
    elements = (16 if log_form and tile == LANES else 32) // (itemsize // 4 or 1)
    held = Setting(min(widest, max(1, 32 * elements * warps // tile)), warps)
    return [held, replace(held, kept=max(1, held.kept // 2))]


def _on_gpu(rows: Rows, itemsize: int, log_form: bool, profile: Profile) -> list[Setting]:
    n, widest = rows.length, power_of_two(rows.inner)
    if rows.axis == 0:
        return _across(rows, itemsize, log_form)
    if n <= LANES:
        return _short(n, widest, itemsize, log_form)
    split = _split(rows, itemsize, profile.is_measured) if rows.count <= MANY_ROWS and n > 16 * LANES else []
    return split + _long(rows, itemsize, log_form, profile.is_roomy)


def candidates(rows: Rows, profile: Profile, itemsize: int = 4, log_form: bool = False) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tried = _on_cpu(rows) if profile.warp_size == 1 else _on_gpu(rows, itemsize, log_form, profile)
    # What needs least is for devices that leave nothing else.
    for settings in (tried, [Setting(1, 16, "looped"), Setting(1, 4, "looped")]):
        if found := tuple(dict.fromkeys(s for s in settings if _fits(s, rows, profile, itemsize))):
            return found
    raise CompileError(
        "nbx.nn.log_softmax" if log_form else "nbx.nn.softmax",
        "no setting suits the device",
        got=f"{profile.arch}, rows of {rows.length}",
        allowed=f"tiles of at most {profile.reduce_tile_max} elements",
    )
