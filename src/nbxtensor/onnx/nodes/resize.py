"""Resampling: every axis in turn, as a weighted sum of elements taken at places that the host knows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.axes import normalized_axes
from nbxtensor.onnx.graph import Array, Node
from nbxtensor.onnx.registry import Context, Inputs, Results, get, handles, need
from nbxtensor.program import Value

MAX_SIZE = 1 << 24
Taps = list[tuple[Array, Array | None]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One resized axis: its size before and after, and the scale that the node states."""

    before: int
    after: int
    scale: float


def _half_pixel(i: Array, axis: Axis) -> Array:
    return (i + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5)


def _pytorch_half_pixel(i: Array, axis: Axis) -> Array:
    return _half_pixel(i, axis) if axis.after > 1 else np.zeros_like(i)


def _half_pixel_symmetric(i: Array, axis: Axis) -> Array:
    share = axis.after / (axis.scale * axis.before)
    return np.float32(axis.before / 2 * (1 - share)) + _half_pixel(i, axis)


def _align_corners(i: Array, axis: Axis) -> Array:
    return i * np.float32(axis.before - 1) / np.float32(axis.after - 1) if axis.after > 1 else np.zeros_like(i)


def _asymmetric(i: Array, axis: Axis) -> Array:
    return i / np.float32(axis.scale)


PLACES: dict[str, Callable[[Array, Axis], Array]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
}
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - np.float32(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _bounded(places: Array, axis: Axis) -> Array:
    return np.clip(places, 0, axis.before - 1).astype(np.int64)


def _nearest(x: Array, axis: Axis, rounding: str) -> Taps:
    return [(_bounded(ROUNDINGS[rounding](x), axis), None)]


def _linear(x: Array, axis: Axis) -> Taps:
    x = np.clip(x, 0, axis.before - 1)
    low = np.floor(x)
    return [(_bounded(low, axis), 1 - (x - low)), (_bounded(low + 1, axis), x - low)]


def _cubic(x: Array, axis: Axis, a: float) -> Taps:
    """Four taps of the cubic convolution kernel with the parameter `a`."""
    low = np.floor(x)
    taps: Taps = []
    for step in (-1, 0, 1, 2):
        d = np.abs(x - low - step).astype(np.float64)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        taps.append((_bounded(low + step, axis), np.where(d <= 1, near, far)))
    return taps


def _resampled(context: Context, x: Value, position: int, taps: Taps) -> Value:
    parts: list[Value] = []
    for places, weights in taps:
        part = context.call("take", x, context.known(places, dtypes.int64), axis=position)
        if weights is not None:
            shaped = weights.reshape(-1, *[1] * (x.ndim - position - 1))
            part = context.call("multiply", part, context.known(shaped, x.dtype))
        parts.append(part)
    return reduce(lambda a, b: context.call("add", a, b), parts)


def _apply(context: Context, node: Node, x: Value, axes: dict[int, Axis], where: str, rounding: str) -> Value:
    mode = node.string("mode", "nearest")
    if where not in PLACES or rounding not in ROUNDINGS or mode not in ("nearest", "linear", "cubic"):
        raise ModelError("onnx", f"{node.op} in mode {mode!r} with {where!r}, {rounding!r} is not supported")
    if mode != "nearest" and not x.dtype.is_float:
        raise ModelError("onnx", f"{node.op} in mode {mode!r} of {x.dtype.name} is not supported")
    for position, axis in axes.items():
        if axis.before == axis.after and axis.scale == 1:
            continue
        if axis.before < 1 or not 0 <= axis.after <= MAX_SIZE:
            raise ModelError(
                "onnx", f"{node.op} from {axis.before} to {counted(axis.after, 'element')} is not supported"
            )
        at = PLACES[where](np.arange(axis.after, dtype=np.float32), axis)
        if mode == "nearest":
            taps = _nearest(at, axis, rounding)
        elif mode == "linear":
            taps = _linear(at, axis)
        else:
            taps = _cubic(at, axis, node.float("cubic_coeff_a", -0.75))
        x = _resampled(context, x, position, taps)
    return x


def _by_scales(x: Value, positions: tuple[int, ...], scales: Array) -> dict[int, Axis]:
    if scales.shape != (len(positions),) or not bool(np.all(np.isfinite(scales) & (scales > 0))):
        raise ModelError(
            "onnx", f"{counted(len(positions), 'positive scale is', 'positive scales are')} needed", got=str(scales)
        )
    return {
        p: Axis(x.shape[p], int(np.floor(x.shape[p] * np.float64(s))), float(s))
        for p, s in zip(positions, scales, strict=True)
    }


@handles("Upsample", 7, 8, uses=("take",))
def upsample_attribute(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    scales = np.asarray(node.attributes.get("scales", ()), np.float32)
    return _apply(context, node, x, _by_scales(x, tuple(range(x.ndim)), scales), "asymmetric", "floor")


@handles("Upsample", 9, 9, uses=("take",))
@handles("Resize", 10, 10, uses=("take",))
def upsample_input(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    scales = context.array(need(inputs, 1), f"the scales of {node.op}")
    return _apply(context, node, x, _by_scales(x, tuple(range(x.ndim)), scales), "asymmetric", "floor")


@handles("Resize", 11, uses=("take",))
def resize(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scales, sizes = need(inputs, 0), get(inputs, 2), get(inputs, 3)
    if node.int("antialias", 0) or node.int("exclude_outside", 0):
        raise ModelError("onnx", "Resize with antialias or exclude_outside is not supported")
    if node.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ModelError("onnx", "Resize that keeps the aspect ratio is not supported")
    given = node.ints("axes")
    positions = tuple(range(x.ndim)) if given is None else normalized_axes(given, x.ndim)
    if sizes is not None and sizes.size:
        wanted = context.ints(sizes, "the sizes of Resize")
        if len(wanted) != len(positions):
            raise ModelError("onnx", f"Resize needs {counted(len(positions), 'size')}", got=str(wanted))
        axes = {
            p: Axis(x.shape[p], n, float(np.float32(n) / np.float32(max(x.shape[p], 1))))
            for p, n in zip(positions, wanted, strict=True)
        }
    elif scales is not None:
        axes = _by_scales(x, positions, context.array(scales, "the scales of Resize"))
    else:
        raise ModelError("onnx", "Resize needs scales or sizes")
    where = node.string("coordinate_transformation_mode", "half_pixel")
    return _apply(context, node, x, axes, where, node.string("nearest_mode", "round_prefer_floor"))
