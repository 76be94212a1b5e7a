"""How kernels with sliding windows find their elements: in the input, or in a copy that suits vectors better."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from nbxtensor.base.dtypes import DType
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.rows import power_of_two
from nbxtensor.kernel.tuned import FIXED, tuned
from nbxtensor.kernel.window import lay_out_kernel
from nbxtensor.ops._window import Window
from nbxtensor.tensor.tensor import Tensor, empty
from nbxtensor.tuning.certificate import encode
from nbxtensor.tuning.key import LaunchKey, launch_key

OVERRUN = 1024
"""Elements behind a copy that may be read (and are then dropped)."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A window that slides over three spatial axes of a strided tensor of images with channels.

    `strides` are those of batch, channels and spatial axes.
    """

    batch: int
    channels: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    window: Window
    strides: tuple[int, ...]

    @property
    def lines(self) -> tuple[int, ...]:
        """Elements along each axis of one phase of the input, as far as taps reach."""
        w = self.window
        extents = ((p - 1) * s + r for p, s, r in zip(self.places, w.stride, w.reach, strict=True))
        return tuple(-(-extent // s) for extent, s in zip(extents, w.stride, strict=True))

    @property
    def is_plane(self) -> bool:
        """Whether places lie one after the other in lines one after the other, and no tap lies on padding."""
        reading = in_place(self)
        return (
            not any(reading.pad)
            and (self.places[2] == 1 or reading.place[2] == 1)
            and (self.places[1] == 1 or reading.place[1] == self.sizes[2])
            and (self.places[0] == 1 or reading.place[0] == self.sizes[1] * self.sizes[2])
        )

    @property
    def pitch(self) -> tuple[int, ...]:
        """Distances of lines where places lie one after the other: in the input, or in its copy."""
        return (1, *self.sizes[1:]) if self.is_plane else (1, *self.lines[1:])

    def columns(self, pitch: tuple[int, ...]) -> int:
        """Elements from the first place of an image to the last."""
        return ((self.places[0] - 1) * pitch[1] + self.places[1] - 1) * pitch[2] + self.places[2]

    @property
    def geometry(self) -> dict[str, Argument]:
        """Arguments of kernels that look at coordinates."""
        w = self.window
        return {
            "sizes": self.sizes,
            "places": self.places,
            "stride": w.stride,
            "dilation": w.dilation,
            "before": w.before,
        }


@lru_cache(maxsize=4096)
def walk_over(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    places: tuple[int, ...],
    window: Window,
    weights: tuple[int, ...] | None = None,
) -> tuple[Walk, tuple[int, ...]]:
    """Bring the spatial axes of a tensor to three; `weights` are strides of the taps, which come along.

    Axes of one tap and one place go, axes of one tap without padding lose what lies between places, and those that
    only pass through become one.
    """
    axes: list[tuple[int, ...]] = []
    steps = (0,) * len(places) if weights is None else weights
    columns = (window.taps, window.stride, window.dilation, window.before, window.after, strides[2:], steps)
    for size, place, taps, stride, dilation, before, after, step, weight in zip(
        shape[2:], places, *columns, strict=True
    ):
        if taps > 1 or before or after:
            axes.append((size, place, taps, stride, dilation, before, after, step, weight))
            continue
        if place == 1:
            continue
        step = step * stride
        if axes and axes[-1][2] == 1 and axes[-1][5:7] == (0, 0) and axes[-1][7] == step * place:
            place *= axes.pop()[1]
        axes.append((place, place, 1, 1, 1, 0, 0, step, weight))
    axes = [(1, 1, 1, 1, 1, 0, 0, 0, 0)] * (3 - len(axes)) + axes
    sizes, places, t, s, d, b, a, steps, weights = (tuple(column) for column in zip(*axes, strict=True))
    return Walk(shape[0], shape[1], sizes, places, Window(t, s, d, b, a), (*strides[:2], *steps)), weights


@dataclass(frozen=True, slots=True)
class Reading:
    """How kernels find what a window sees: offsets of the first tap, images, channels, places, taps and phases.

    `split` are strides and dilations of the axes where the input was laid out, else ones; `pad` says along which axes
    taps may lie outside, `pitch` how many elements apart the lines are.
    """

    origin: int
    batch: int
    channel: int
    place: tuple[int, ...]
    tap: tuple[int, ...]
    phase: tuple[int, ...] = (0, 0, 0)
    split: tuple[int, ...] = (1, 1, 1, 1, 1, 1)
    pad: tuple[int, ...] = (0, 0, 0)
    pitch: tuple[int, ...] = (1, 1, 1)

    @property
    def arguments(self) -> dict[str, Argument]:
        return {
            "x_origin": self.origin,
            "x_batch": self.batch,
            "x_channel": self.channel,
            "x_place": self.place,
            "x_tap": self.tap,
            "x_phase": self.phase,
        }


def in_place(walk: Walk) -> Reading:
    """Read the tensor where it is."""
    window, steps = walk.window, walk.strides[2:]
    ends = zip(walk.places, window.stride, window.reach, walk.sizes, window.before, strict=True)
    return Reading(
        origin=-sum(step * b for step, b in zip(steps, window.before, strict=True)),
        batch=walk.strides[0],
        channel=walk.strides[1],
        place=tuple(step * s for step, s in zip(steps, window.stride, strict=True)),
        tap=tuple(step * d for step, d in zip(steps, window.dilation, strict=True)),
        pad=tuple(int(before > 0 or (p - 1) * s + reach > n + before) for p, s, reach, n, before in ends),
        pitch=(1, walk.sizes[1], walk.sizes[2]),
    )


def wants_copy(walk: Walk, profile: Profile) -> bool:
    """Whether a kernel that goes line by line should read a copy: vectors need neighbours that need no mask."""
    if profile.warp_size > 1:
        return False
    reading, window = in_place(walk), walk.window
    if walk.places[2] < 32 and prod(window.taps) > 1:
        return True
    return any(reading.pad) or (reading.place[2] != 1 and prod(window.taps) > 2 * prod(window.stride))


def window_key(
    name: str, walk: Walk, types: Sequence[DType | None], device: Device, setting: object, *flags: str
) -> LaunchKey:
    """The launch key of a kernel that slides a window; its setting follows from the sizes, and is part of it."""
    sizes = {"count": walk.batch * walk.channels, "length": prod(walk.places)}
    taps = "x".join(map(str, walk.window.taps))
    shown = ("-" if one is None else one.name for one in types)
    values = " ".join(f"{n}={v}" for n, v in encode(setting).items())
    return launch_key("window", name, sizes, shown, device.target, (f"taps {taps}", values, *flags))


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A copy to make before: its launch, its number of elements, and how kernels read it."""

    plan: Plan
    size: int
    reading: Reading


def laid_out(name: str, walk: Walk, dtype: DType, device: Device, fill: float | None) -> LaidOut:
    """Plan a copy with padding (`fill`; None: -0.0), split into phases, in which neighbouring places are neighbours."""
    window = walk.window
    lines = walk.lines
    phases = prod(window.stride)
    rows = phases * lines[0] * lines[1]
    columns = min(256, max(32, power_of_two(lines[2])))
    height = min(power_of_two(rows), max(1, 1024 // columns))
    row_blocks, column_blocks = -(-rows // height), -(-lines[2] // columns)
    arguments: dict[str, Argument] = {
        "x": Pointer(dtype),
        "out": Pointer(dtype),
        "channels": walk.channels,
        "rows": rows,
        "row_blocks": row_blocks,
        "column_blocks": column_blocks,
        "x_batch": walk.strides[0],
        "x_channel": walk.strides[1],
        "x_steps": walk.strides[2:],
        "sizes": walk.sizes,
        "lines": lines,
        "before": window.before,
    }
    constants: dict[str, Constant] = {
        "STEP": window.stride,
        "DEEP": lines[0] > 1,
        "X_UNIT": walk.strides[4] == 1,
        "FILL": fill,
        "BR": height,
        "BC": columns,
    }
    images = walk.batch * walk.channels
    grid = (images * row_blocks * column_blocks, 1, 1)
    options = Options(num_warps=1 if device.profile.warp_size == 1 else 4)
    size = images * rows * lines[2]
    plane = prod(lines)
    channel = phases * plane
    strides = window.stride
    reading = Reading(
        origin=0,
        batch=walk.channels * channel,
        channel=channel,
        place=(lines[1] * lines[2], lines[2], 1),
        tap=(lines[1] * lines[2], lines[2], 1),
        phase=(strides[1] * strides[2] * plane, strides[2] * plane, plane),
        split=(*strides, *window.dilation) if phases > 1 else (1,) * 6,
        pitch=(1, lines[1], lines[2]),
    )
    if phases == 1:
        reading = replace(reading, tap=tuple(t * d for t, d in zip(reading.tap, window.dilation, strict=True)))
    key = window_key("lay_out", walk, [dtype], device, (height, columns))
    plan = tuned(key, FIXED, lambda _: Plan(name, lay_out_kernel, device, grid, arguments, constants, options, size))
    return LaidOut(plan, size, reading)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of an operator with a sliding window; the input is laid out before where `layout` says so."""

    layout: LaidOut | None
    plan: Plan

    def run(self, x: Tensor, *pointers: int) -> None:
        """Launch; `pointers` are those of the other operands and the result."""
        if self.layout is None:
            self.plan.run(x.ptr, *pointers)
            return
        copy = empty((self.layout.size + OVERRUN,), x.dtype, x.device)
        self.layout.plan.run(x.ptr, copy.ptr)
        self.plan.run(copy.ptr, *pointers)


@dataclass(frozen=True, slots=True)
class LineTile:
    """Lines and places of one image that one program computes, and its warps."""

    lines: int
    places: int
    num_warps: int

    def grid(self, walk: Walk, images: int) -> tuple[int, int, int]:
        """Programs for `images` images (and channels)."""
        p0, p1, p2 = walk.places
        return images * -(-p0 * p1 // self.lines) * -(-p2 // self.places), 1, 1

    def constants(self, walk: Walk, copied: bool) -> dict[str, Constant]:
        """Constants of kernels that go line by line; `copied`: what follows a line may be read."""
        p0, p1, p2 = walk.places
        return {
            "BR": self.lines,
            "BC": self.places,
            "R_TAIL": p0 * p1 < self.lines,
            "C_TAIL": p2 < self.places,
            "OVERRUN": copied,
            "DEEP": p0 > 1,
        }


def line_tile_for(walk: Walk, copied: bool, profile: Profile) -> LineTile:
    """A tile of about a thousand elements; vectors of a CPU should not run across lines."""
    p0, p1, p2 = walk.places
    serial = profile.warp_size == 1
    if (serial and not copied) or p2 >= 64:
        wide = min(floor_power(p2), 1024)
    else:
        wide = max(32 if serial else 1, power_of_two(p2))
    high = min(power_of_two(p0 * p1), 1024 // wide)
    if high > p0 * p1 >= 16:
        high //= 2
    return LineTile(high, wide, 1 if serial else max(1, min(4, high * wide // 64)))


def floor_power(n: int) -> int:
    """The largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)
