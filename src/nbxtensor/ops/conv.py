"""Convolution: ``conv(x, w, bias, stride, padding, dilation, groups)``.

``out[n, o, p] = sum over c, t of x[n, c, p * stride - before + t * dilation] * w[o, c, t] + bias[o]``

Shapes
    x is (N, C, *spatial) with one to three spatial axes, w is (O, C / groups, *taps), bias is (O,); the result is
    (N, O, *places), places = (size + padding - dilation * (taps - 1) - 1) // stride + 1. Output channel o sees the
    channels of its group alone. Any strides are read where they are.
Dtypes
    Operands are promoted. float32; float16 and bfloat16 (computed in float32, rounded once); float64.
Errors
    ShapeError for sizes that do not match, ArgumentError for stride, padding, dilation or groups that do not fit,
    DTypeError for other dtypes, DeviceError.
Accuracy
    One fused multiply-add for each product, taps on padding included (they multiply +0.0). The chain runs over
    (channel, tap) in row-major order in chunks of 512; the sums of the chunks are added in order, from 0; the bias
    comes last. So the error is at most ``(513 + K / 512) * 2^-24 * (sum |x||w| + |bias|)`` in float32, K products.
Guarantee
    universal: the order depends on (channel, tap) alone, never on tiles, batch, strides in memory or device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import DType, float32, float64
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from nbxtensor.base.promotion import result_type
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.conv import conv_direct_kernel, conv_kernel
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._samples import Array
from nbxtensor.ops._window import (
    LineTile,
    Padding,
    Sizes,
    Window,
    floor_power,
    line_tile_for,
    padded_axes,
    per_axis,
    three_axes,
    window_of,
)
from nbxtensor.tensor.tensor import Tensor, empty

CHUNK = 512
UNROLLED = 64  # longest chain that is written out
NAME = "nbx.nn.conv"


@dataclass(frozen=True, slots=True)
class Problem:
    """Sizes and strides of a convolution over three spatial axes."""

    batch: int
    groups: int
    m: int  # output channels of a group
    channels: int  # input channels of a group
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    window: Window
    x: tuple[int, ...]  # strides of batch, channel, spatial axes
    w: tuple[int, ...]
    bias: int  # stride

    @property
    def k(self) -> int:
        """Products in one output element."""
        return self.channels * prod(self.window.taps)

    @property
    def positions(self) -> int:
        """Places in all images."""
        return self.batch * prod(self.places)


@dataclass(frozen=True, slots=True)
class Tile:
    """How the tiled kernel runs. `flat`: columns run through all positions, else through a row of one image."""

    bm: int
    bn: int
    bk: int
    flat: bool
    num_warps: int


def _least_waste(size: int, blocks: tuple[int, ...]) -> int:
    """The block (of several, best first) that computes the fewest elements of an axis of `size` needlessly."""
    fitting = [b for b in blocks if b <= size] or [floor_power(size)]
    return min(fitting, key=lambda b: -(-size // b) * (b + 4))


def settings_for(p: Problem, dtype: DType, profile: Profile) -> Tile | LineTile:
    """Kernel and tile of a convolution. BK divides a chunk."""
    serial = profile.warp_size == 1
    if dtype is float64 or p.m < (4 if serial else 8):
        lines = p.batch * p.groups * p.m * p.places[0] * p.places[1]
        return line_tile_for(lines, p.places[2], profile)
    limit = 256 if serial else 32
    bk = 16
    while bk < limit and p.k % (2 * bk) == 0:
        bk *= 2
    if p.k % bk:
        bk = 16 if p.k < 64 else 32
    if not serial:
        bm = 64 if p.m >= 64 else 32 if p.m >= 32 else 16
        bn = 64 if p.positions >= 64 else 32 if p.positions >= 32 else 16
        return Tile(bm, bn, bk, True, 4)
    bm = _least_waste(p.m, (64, 32, 16))
    if p.places[2] >= 16:
        return Tile(bm, _least_waste(p.places[2], (64, 32, 16)), bk, False, 1)
    return Tile(bm, _least_waste(p.positions, (64, 32, 16)), bk, True, 1)


@lru_cache(maxsize=4096)
def _plan_of(p: Problem, types: tuple[DType | None, ...], device: Device, settings: Tile | LineTile | None) -> Plan:
    """The launch of a convolution; `types` of x, w, bias (or None) and the result."""
    if settings is None:
        settings = settings_for(p, types[3] or float32, device.profile)
    window, (x_batch, x_channel, *x_steps), (w_row, w_channel, *w_steps) = p.window, p.x, p.w
    pointers: dict[str, Argument] = {
        name: Pointer(t) for name, t in zip(("x", "w", "bias", "out"), types, strict=True) if t is not None
    }
    x_place = tuple(step * s for step, s in zip(x_steps, window.stride, strict=True))
    common: dict[str, Argument] = {
        "x_origin": -sum(step * b for step, b in zip(x_steps, window.before, strict=True)),
        "x_group": p.channels * x_channel,
        "x_batch": x_batch,
        "x_channel": x_channel,
        "x_place": x_place,
        "x_tap": tuple(step * d for step, d in zip(x_steps, window.dilation, strict=True)),
        "w_row": w_row,
        "w_channel": w_channel,
        "w_tap": tuple(w_steps),
        "bias_step": p.bias,
    }
    spatial: dict[str, Argument] = {
        "sizes": p.sizes,
        "places": p.places,
        "stride": window.stride,
        "dilation": window.dilation,
        "before": window.before,
    }
    constants: dict[str, Constant] = {
        "TAPS": window.taps,
        "PAD": padded_axes(p.sizes, p.places, window),
        "X_UNIT": x_place[2] == 1,
        "CHUNK": CHUNK,
    }
    if types[2] is None:
        constants["bias"] = None
    outputs = p.groups * p.m
    if isinstance(settings, LineTile):
        lines = p.batch * outputs * p.places[0] * p.places[1]
        constants |= {
            "TYPE": float64 if types[3] is float64 else float32,
            "UNROLL": p.k if p.k <= UNROLLED else 0,
            "BR": settings.lines,
            "BC": settings.places,
            "R_TAIL": lines < settings.lines,
            "C_TAIL": p.places[2] < settings.places,
        }
        arguments = {**pointers, "m": p.m, "k": p.k, "channels": outputs, "lines": lines, **common, **spatial}
        grid = (-(-lines // settings.lines) * -(-p.places[2] // settings.places), 1, 1)
        kernel = conv_direct_kernel
    else:
        row_tiles = -(-p.m // settings.bm)
        if settings.flat:
            columns, column_tiles = p.positions, -(-p.positions // settings.bn)
        else:
            columns = p.places[2]
            column_tiles = p.batch * p.places[0] * p.places[1] * -(-columns // settings.bn)
        taps = prod(window.taps)
        natural = [taps, *(prod(window.taps[d + 1 :]) for d in range(3))]
        dense = all(s == n for s, n, size in zip(p.w[1:], natural, (p.channels, *window.taps), strict=True) if size > 1)
        constants |= {
            "FLAT": settings.flat,
            "W_UNIT": dense,
            "BM": settings.bm,
            "BN": settings.bn,
            "BK": settings.bk,
            "K_TAIL": p.k % CHUNK % settings.bk != 0,
            "M_TAIL": p.m < settings.bm,
            "N_TAIL": columns < settings.bn,
        }
        arguments = {
            **pointers,
            "m": p.m,
            "k": p.k,
            "row_tiles": row_tiles,
            "column_tiles": column_tiles,
            "positions": p.positions,
            **common,
            "out_batch": outputs * prod(p.places),
            **spatial,
        }
        grid = (column_tiles * row_tiles * p.groups, 1, 1)
        kernel = conv_kernel
    options = Options(num_warps=settings.num_warps)
    return Plan("conv", kernel, device, grid, arguments, constants, options, p.positions * outputs * p.k // 8)


def _checked(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> tuple[Window, tuple[int, ...]]:
    """The window and the places of a convolution whose arguments are right."""
    for operand in (x, w, *([] if bias is None else [bias])):
        check_tensor("nn.conv", operand)
        if operand.device is not x.device:
            raise DeviceError(
                NAME,
                "operands are on different devices",
                got=f"{x.device.name} and {operand.device.name}",
                mend="move one of them with to_device",
            )
    if not 3 <= x.ndim <= 5:
        raise ShapeError(NAME, "x has the wrong rank", got=x.shape, allowed="(N, C, *spatial), 1 to 3 spatial axes")
    if w.ndim != x.ndim:
        raise ShapeError(NAME, "w has the wrong rank", got=w.shape, allowed=f"{x.ndim} axes, as x: {x.shape}")
    if 0 in w.shape[2:]:
        raise ShapeError(NAME, "the kernel is empty", got=w.shape, allowed="at least one tap along each axis")
    (count,) = per_axis(groups, 1, "groups", NAME)
    if x.shape[1] % count or w.shape[0] % count:
        raise ArgumentError(
            NAME,
            "groups does not fit",
            got=groups,
            allowed=f"a positive int that divides the channels {x.shape[1]} of x and {w.shape[0]} of w",
        )
    if w.shape[1] * groups != x.shape[1]:
        raise ShapeError(
            NAME,
            "the channels differ",
            got=f"x {x.shape}, w {w.shape}, groups {groups}",
            allowed="w.shape[1] * groups == x.shape[1]",
        )
    if bias is not None and bias.shape != (w.shape[0],):
        raise ShapeError(NAME, "bias has the wrong shape", got=bias.shape, allowed=f"{(w.shape[0],)}")
    if prod(w.shape[1:]) >= 2**31:
        raise ShapeError(NAME, "too many products in one output element", got=w.shape, allowed="fewer than 2^31")
    window = window_of(w.shape[2:], stride, padding, dilation, NAME)
    return window, window.places(x.shape[2:], NAME)


def _direct_reference(x: Array, w: Array, window: Window, places: tuple[int, ...], groups: int) -> Array:
    """One slice of `x` for each tap; `x` is padded."""
    n, o, per = x.shape[0], w.shape[0], w.shape[1]
    out = np.zeros((n, groups, o // groups, *places), np.result_type(x, w))
    grouped = x.reshape(n, groups, per, *x.shape[2:])
    for tap in np.ndindex(*window.taps):
        cut = tuple(
            slice(t * d, t * d + (p - 1) * s + 1, s)
            for t, d, s, p in zip(tap, window.dilation, window.stride, places, strict=True)
        )
        factor = w[(slice(None), slice(None), *tap)].reshape(groups, o // groups, per)
        out += np.einsum("goc,ngc...->ngo...", factor, grouped[(..., *cut)])
    return out.reshape(n, o, *places)


def conv_reference(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Convolution in float64."""
    window = window_of(w.shape[2:], stride, padding, dilation, NAME)
    places = window.places(x.shape[2:], NAME)
    width = ((0, 0), (0, 0), *zip(window.before, window.after, strict=True))
    out = _direct_reference(np.pad(x.astype(np.float64), width), w.astype(np.float64), window, places, groups)
    return out if bias is None else out + bias.astype(np.float64).reshape(-1, *(1,) * len(places))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Convolutions in one to three dimensions: tiled and direct, chains shorter and longer than a chunk."""

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    yield normal(2, 24, 37), normal(20, 24, 5), normal(20), 1, 2
    yield normal(1, 70, 9, 19), normal(9, 70, 3, 3), None, (1, 2), ((1, 0), (2, 1)), (2, 1)
    yield normal(2, 12, 9, 30), normal(12, 1, 3, 3), normal(12), 1, 1, 1, 12
    yield normal(1, 4, 5, 6, 7), normal(8, 2, 2, 3, 2), None, 1, 1, 1, 2
    yield normal(3, 33, 6, 7), normal(17, 33, 1, 1), normal(17)


@operator("conv", kernels=(conv_kernel, conv_direct_kernel), reference=conv_reference, samples=samples)
def conv(
    x: Tensor,
    w: Tensor,
    /,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) over one to three spatial axes.

    Parameters
    ----------
    x
        Input, (N, C, *spatial).
    w
        Weights, (O, C / groups, *taps).
    bias
        (O,), added last; or None.
    stride
        Step between places: an int, or one an axis.
    padding
        Zeros around the input: an int, one an axis, or one pair (before, after) an axis.
    dilation
        Distance of taps: an int, or one an axis.
    groups
        Number of groups into which the channels fall; every output channel sees the input channels of its group.

    Returns
    -------
    Tensor
        (N, O, *places), contiguous.

    Raises
    ------
    ShapeError, ArgumentError, DTypeError, DeviceError
        See the text of the module.

    Notes
    -----
    The same bits on every device and for every batch size.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> x = nbx.asarray([[[1.0, 2.0, 3.0, 4.0]]])
    >>> nbx.nn.conv(x, nbx.asarray([[[1.0, -1.0]]]))
    Tensor([[[-1., -1., -1.]]], dtype=float32, device='cpu')
    """
    return _conv(x, w, bias, stride, padding, dilation, groups, None)


def _conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    settings: Tile | LineTile | None,
) -> Tensor:
    window, places = _checked(x, w, bias, stride, padding, dilation, groups)
    dtype = result_type(x.dtype, w.dtype, *([] if bias is None else [bias.dtype]), function=NAME)
    if not dtype.is_float or dtype.storage_only:
        raise DTypeError(
            NAME, "dtype not supported", got=dtype.name, allowed=("float16", "bfloat16", "float32", "float64"),
            mend="convert with astype",
        )  # fmt: skip
    out = empty((x.shape[0], w.shape[0], *places), dtype, x.device)
    if out.size == 0:
        return out
    sizes, spots, window, x_steps, w_steps = three_axes(x.shape[2:], places, window, x.strides[2:], w.strides[2:])
    problem = Problem(
        batch=x.shape[0],
        groups=groups,
        m=w.shape[0] // groups,
        channels=w.shape[1],
        sizes=sizes,
        places=spots,
        window=window,
        x=(*x.strides[:2], *x_steps),
        w=(*w.strides[:2], *w_steps),
        bias=0 if bias is None else bias.strides[0],
    )
    types = (x.dtype, w.dtype, None if bias is None else bias.dtype, dtype)
    plan = _plan_of(problem, types, x.device, settings)
    plan.run(x.ptr, w.ptr, *([] if bias is None else [bias.ptr]), out.ptr)
    return out
