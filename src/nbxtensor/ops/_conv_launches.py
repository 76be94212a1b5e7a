"""How convolutions are launched: which kernel, which tile, and whether the input is laid out first."""

from dataclasses import dataclass
from math import prod

from nbxtensor.base.dtypes import DType, float32, float64
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.conv import conv_direct_kernel, conv_kernel
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.tuned import FIXED, plan_memo, tuned
from nbxtensor.ops._walk import (
    LaidOut,
    Launches,
    LineTile,
    Reading,
    Walk,
    floor_power,
    in_place,
    laid_out,
    line_tile_for,
    wants_copy,
    window_key,
)
from nbxtensor.tuning.buckets import bucket

CHUNK = 512
UNROLLED = 64  # longest chain that is written out


@dataclass(frozen=True, slots=True)
class Problem:
    """A convolution over three spatial axes.

    Attributes
    ----------
    walk
        The window over the input.
    groups, m, channels
        Groups, and output and input channels of each.
    w
        Strides of the weights: output channels, input channels, taps.
    bias
        Stride of the bias.
    types
        Dtypes of input, weights, bias (or None) and result.
    """

    walk: Walk
    groups: int
    m: int
    channels: int
    w: tuple[int, ...]
    bias: int
    types: tuple[DType, DType, DType | None, DType]

    @property
    def k(self) -> int:
        """Products in one output element."""
        return self.channels * prod(self.walk.window.taps)

    @property
    def outputs(self) -> int:
        return self.groups * self.m

    @property
    def positions(self) -> int:
        """Places in all images."""
        return self.walk.batch * prod(self.walk.places)

    @property
    def w_dense(self) -> bool:
        """Whether the weights of one output element lie one after the other."""
        taps = self.walk.window.taps
        natural = (prod(taps), taps[1] * taps[2], taps[2], 1)
        sizes = (self.channels, *taps)
        return all(step == n for step, n, size in zip(self.w[1:], natural, sizes, strict=True) if size > 1)


@dataclass(frozen=True, slots=True)
class Tile:
    """How the tiled kernel runs. `plane`: columns are neighbours in memory, in the input or in a copy of it."""

    bm: int
    bn: int
    bk: int
    plane: bool
    num_warps: int


def _least_waste(size: int, blocks: tuple[int, ...]) -> int:
    """The block (of several) that computes the fewest elements of an axis of `size` needlessly; large ones if equal."""
    fitting = [b for b in blocks if b <= size] or [floor_power(size)]
    return min(fitting, key=lambda b: -(-size // b) * (b + 4))


def settings_for(p: Problem, device: Device) -> Tile | LineTile:
    """Kernel and tile of a convolution. BK divides a chunk."""
    serial = device.profile.warp_size == 1
    if p.types[3] is float64 or p.m < (4 if serial else 8):
        return line_tile_for(p.walk, wants_copy(p.walk, device.profile), device.profile)
    limit = 256 if serial else 16
    bk = 16
    while bk < limit and p.k % (2 * bk) == 0:
        bk *= 2
    if p.k % bk:
        bk = 32 if serial and p.k >= 64 else 16
    if not serial:
        bm = 64 if p.m >= 64 else 32 if p.m >= 32 else 16
        bn = 64 if p.positions >= 64 else 32 if p.positions >= 32 else 16
        return Tile(bm, bn, bk, False, 4)
    columns = p.walk.columns(p.walk.pitch)
    plane = columns >= 16
    bm, bn = (_least_waste(n, (64, 32, 16)) for n in (p.m, columns if plane else p.positions))
    return Tile(bm, bn, bk, plane, 1)


@plan_memo
def launches_of(p: Problem, device: Device, settings: Tile | LineTile | None) -> Launches:
    """The launches of a convolution; `settings` None: the best ones known."""
    settings = settings_for(p, device) if settings is None else settings
    layout: LaidOut | None = None
    reading = in_place(p.walk)
    if isinstance(settings, Tile):
        copied = settings.plane and not p.walk.is_plane
    else:
        copied = wants_copy(p.walk, device.profile)
    if copied:
        layout = laid_out("conv", p.walk, p.types[0], device, 0.0)
        reading = layout.reading
    flags = ("copied" if copied else "in place", f"k {bucket('k', p.k)}")
    key = window_key("conv", p.walk, p.types, device, settings, *flags)
    if isinstance(settings, Tile):
        return Launches(layout, tuned(key, FIXED, lambda _: _tiled(p, device, settings, reading)))
    return Launches(layout, tuned(key, FIXED, lambda _: _direct(p, device, settings, reading, copied)))


def _pointers(p: Problem) -> dict[str, Argument]:
    named = zip(("x", "w", "bias", "out"), p.types, strict=True)
    return {name: Pointer(dtype) for name, dtype in named if dtype is not None}


def _steps(p: Problem, reading: Reading) -> dict[str, Argument]:
    return {
        "x_group": p.channels * reading.channel,
        **reading.arguments,
        "w_row": p.w[0],
        "w_channel": p.w[1],
        "w_tap": p.w[2:],
        "bias_step": p.bias,
    }


def _constants(p: Problem, reading: Reading) -> dict[str, Constant]:
    absent: dict[str, Constant] = {"bias": None} if p.types[2] is None else {}
    shared = {"TAPS": p.walk.window.taps, "SPLIT": reading.split, "PAD": reading.pad, "CHUNK": CHUNK}
    return {**absent, **shared}


def _tiled(p: Problem, device: Device, tile: Tile, reading: Reading) -> Plan:
    walk = p.walk
    row_tiles = -(-p.m // tile.bm)
    columns = walk.columns(reading.pitch) if tile.plane else p.positions
    column_tiles = -(-columns // tile.bn) * (walk.batch if tile.plane else 1)
    p0, p1, p2 = walk.places
    dense = p0 * p1 == 1 or (p2 == reading.pitch[2] and (p0 == 1 or p1 == reading.pitch[1]))
    arguments: dict[str, Argument] = {
        **_pointers(p),
        "m": p.m,
        "k": p.k,
        "row_tiles": row_tiles,
        "column_tiles": column_tiles,
        "positions": columns,
        **_steps(p, reading),
        "out_batch": p.outputs * prod(walk.places),
        "pitch": reading.pitch,
        **walk.geometry,
    }
    constants: dict[str, Constant] = {
        **_constants(p, reading),
        "PLANE": (1 if dense else 2) if tile.plane else 0,
        "W_UNIT": p.w_dense,
        "BM": tile.bm,
        "BN": tile.bn,
        "BK": tile.bk,
        "K_TAIL": p.k % CHUNK % tile.bk != 0,
        "M_TAIL": p.m < tile.bm,
        "N_TAIL": columns < tile.bn,
    }
    grid = (column_tiles * row_tiles * p.groups, 1, 1)
    work = p.positions * p.outputs * p.k // 8
    return Plan("conv", conv_kernel, device, grid, arguments, constants, Options(num_warps=tile.num_warps), work)


def _direct(p: Problem, device: Device, tile: LineTile, reading: Reading, copied: bool) -> Plan:
    walk = p.walk
    arguments: dict[str, Argument] = {
        **_pointers(p),
        "m": p.m,
        "k": p.k,
        "channels": p.outputs,
        "rows": walk.places[0] * walk.places[1],
        **_steps(p, reading),
        **walk.geometry,
    }
    constants: dict[str, Constant] = {
        **_constants(p, reading),
        **tile.constants(walk, copied),
        "TYPE": float64 if p.types[3] is float64 else float32,
        "X_UNIT": reading.place[2] == 1,
        "UNROLL": p.k if p.k <= UNROLLED else 0,
    }
    grid = tile.grid(walk, walk.batch * p.outputs)
    work = p.positions * p.outputs * p.k
    options = Options(num_warps=tile.num_warps)
    return Plan("conv", conv_direct_kernel, device, grid, arguments, constants, options, work)
