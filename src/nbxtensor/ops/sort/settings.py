"""The candidate spaces of the sort family: how rows are cut into programs. Every setting gives the same answer.

The first candidate is the best guess. What a profile does not allow is left out: tiles of more elements than it
reduces, and more elements in a thread than its registers hold beside what a step of the network needs.
"""

from dataclasses import dataclass
from typing import TypeVar

from nbxtensor.base.errors import CompileError
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.rows import power_of_two
from nbxtensor.ops.sort.layout import Layout, packing, place_dtype

LONGEST_LOG = 12
"""Elements (log2) of the longest rows that are sorted in registers; twice as many where 32 bits hold key and index."""
PIECE_LOG = 12
"""Elements (log2) of a piece of the tensor that one program selects from; more are split into groups first."""
WINNER_LOG = 10
"""The same among bests of groups, of which there are few."""
BINS = 256

Chosen = TypeVar("Chosen")


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block of rows is sorted: rows in a tile, warps, neighbours (log2) that one thread loads."""

    rows: int
    num_warps: int
    low: int


@dataclass(frozen=True, slots=True)
class Radix:
    """How a radix sort runs: tile (log2), its warps, tiles of a chunk (at least), rows of a table at a time."""

    log: int = 10
    num_warps: int = 2
    chunk: int = 32
    block: int = 32


@dataclass(frozen=True, slots=True)
class Selection:
    """How the first elements of long rows are selected.

    Attributes
    ----------
    size
        Elements of a group (at most); 0: pieces of the row itself.
    num_warps
        Warps of a program that looks for the best of groups.
    piece_log
        Elements (log2) among which a network selects.
    steps
        Elements of a group that are loaded at a time.
    """

    size: int
    num_warps: int
    piece_log: int = WINNER_LOG
    steps: int = 8


def _chosen(found: list[Chosen], name: str, profile: Profile) -> tuple[Chosen, ...]:
    if not found:
        raise CompileError(
            f"nbx.{name}",
            "no setting suits the device",
            got=profile.arch,
            allowed=f"tiles of at most {profile.reduce_tile_max} elements, {profile.registers_per_thread} registers",
        )
    return tuple(dict.fromkeys(found))


def cap_log(profile: Profile) -> int:
    """Elements (log2) of the largest tile that the profile reduces."""
    return profile.reduce_tile_max.bit_length() - 1


def longest(profile: Profile, layout: Layout) -> int:
    """Elements of the longest row that is sorted in registers."""
    return 1 << min(LONGEST_LOG + 1 if packing(layout) == 32 else LONGEST_LOG, cap_log(profile))


def _registers(layout: Layout, elements: int) -> int:
    """Registers of a thread that sorts so many elements: twice what holds them, and what tells it where they lie."""
    return elements * {32: 2, 64: 5, 0: 10}[packing(layout)] // 2 + 48 if elements > 1 else 48


def tile_candidates(
    profile: Profile, layout: Layout, log: int, first: bool = True, quick: bool = False, name: str = "sort"
) -> tuple[Tile, ...]:
    """Settings for tiles of 2^log columns.

    Parameters
    ----------
    first
        Whether the tile is read from the tensor.
    quick
        There are few tiles, so that each should take little time.
    """
    n = 1 << log
    if profile.warp_size == 1:
        return _chosen([Tile(1, 1, 0)] if n <= profile.reduce_tile_max else [], name, profile)
    pack, threads = packing(layout), profile.warp_size
    size = layout.key[0] // 8 if first else place_dtype(pack).itemsize
    whole = layout.length % 16 == 0 and layout.steps[0] == 1 if first else True
    low = min(power_of_two(16 // size).bit_length() - 1 if whole else 0, log, 5)
    best = 8 if quick else 32 if pack and n > 512 else 16

    def tile(elements: int, low: int = low) -> Tile:
        warps = max(1, n // (threads * elements))
        return Tile(max(1, threads * elements * warps // n) if n <= 1024 else 1, min(16, warps), low)

    tried = [tile(best), tile(best // 2), tile(best, 0), tile(best // 4)]
    return _chosen(
        [
            one
            for one in tried
            if one.rows * n <= profile.reduce_tile_max
            and _registers(layout, one.rows * n // (threads * one.num_warps)) <= profile.registers_per_thread
        ],
        name,
        profile,
    )


def radix_candidates(profile: Profile, layout: Layout, name: str = "sort") -> tuple[Radix, ...]:
    """Settings for rows that do not fit into a tile."""
    block = min(32, profile.reduce_tile_max // BINS)
    if profile.warp_size == 1:
        return _chosen([Radix(6, 1, 16, min(4, block))] if block else [], name, profile)
    warps = 2 if packing(layout) == 0 and profile.is_roomy else 1
    small, large = Radix(9, warps, 32, block), Radix(10, 2 * warps, 32, block)
    tried = [small, large] if layout.length <= 1 << 24 else [large, small]  # far apart, more should go to one place
    return _chosen([one for one in tried if block and 1 << one.log <= profile.reduce_tile_max], name, profile)


def selection_candidates(profile: Profile, layout: Layout, name: str = "topk") -> tuple[Selection, ...]:
    """Settings that select the first `limit` of each row."""
    keep, cap = log_of(layout.limit), cap_log(profile)
    n, count, threads = layout.length, layout.count, profile.warp_size
    piece, winners = min(PIECE_LOG, cap), min(WINNER_LOG, cap)
    found: list[Selection] = []
    if n > 1 << piece and power_of_two(layout.limit) << 7 <= n:
        few = count * n <= 1 << 22
        for size, warps in ((16, 4), (32, 4), (32, 1)) if few else ((32, 4), (16, 4), (64, 4)):
            size = max(2, min(size, 1 << max(piece - keep, 0)))
            warps = warps if threads > 1 else 1
            steps = max(1, min(8, size, profile.reduce_tile_max // (4 * threads * warps)))
            found.append(Selection(size, warps, winners, steps))
    found.append(Selection(0, 0, max(piece, keep)))
    return _chosen([one for one in found if keep <= one.piece_log <= cap], name, profile)


def row_candidates(layout: Layout, length: int) -> tuple[tuple[int, int], ...]:
    """Bits of a digit and passes where a program is one thread, for `length` elements at a time."""
    few, many = ((bits, -(-layout.key[0] // bits)) for bits in (8, 11))
    return (few, many) if length < 1 << 13 or layout.key[0] <= 16 else (many, few)


def log_of(length: int) -> int:
    """Bits of the position in the shortest tile that holds `length` elements (at least 1)."""
    return max(1, (length - 1).bit_length())
