"""Gathering elements by index, padding, one-hot, the largest and its place."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.axes import normalized_axes, normalized_axis
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Function, Inputs, Results, get, handles, need, register
from nbxtensor.program import Value


def _checked(indices: Value, sizes: Sequence[int]) -> Value:
    """`indices` (the last axis over `sizes` if there are several), out of range in no known place.

    Negative ones count from the end, as in the operators that take them.
    """
    if indices.array is not None and indices.size:
        limits = np.asarray(sizes)
        if bool(np.any((indices.array < -limits) | (indices.array >= limits))):
            raise ModelError("onnx", f"an index is out of range for {tuple(sizes)} elements")
    return indices


@handles("Gather", uses=("take",))
def gather(context: Context, node: Node, inputs: Inputs) -> Results:
    x, indices = need(inputs, 0), need(inputs, 1)
    axis = normalized_axis(node.int("axis", 0), x.ndim)
    return context.call("take", x, _checked(indices, [x.shape[axis]]), axis=axis)


@handles("GatherElements", 11, uses=("take_along_axis",))
def gather_elements(context: Context, node: Node, inputs: Inputs) -> Results:
    x, indices = need(inputs, 0), need(inputs, 1)
    axis = normalized_axis(node.int("axis", 0), x.ndim)
    if indices.ndim != x.ndim:
        raise ModelError("onnx", "GatherElements needs indices of the rank of the data", got=str(indices.shape))
    kept = [(0, n, 1) if i != axis else (None, None, 1) for i, n in enumerate(indices.shape)]
    if any(i != axis and n > m for i, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))):
        raise ModelError("onnx", f"GatherElements has indices of shape {indices.shape} for data of shape {x.shape}")
    part = context.take_slices(x, kept)
    return context.call("take_along_axis", part, _checked(indices, [x.shape[axis]]), axis=axis)


@handles("GatherND", 11, uses=("gather_nd",))
def gather_nd(context: Context, node: Node, inputs: Inputs) -> Results:
    x, indices = need(inputs, 0), need(inputs, 1)
    batch = node.int("batch_dims", 0)
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 <= batch < min(x.ndim, max(indices.ndim, 1)) or not 1 <= depth <= x.ndim - batch:
        raise ModelError("onnx", f"GatherND has indices of shape {indices.shape} for data of shape {x.shape}")
    checked = _checked(indices, x.shape[batch : batch + depth])
    return context.call("gather_nd", x, checked, batch_dims=batch)


def _extreme(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        axis = normalized_axis(node.int("axis", 0), x.ndim)
        keep = bool(node.int("keepdims", 1))
        if not node.int("select_last_index", 0):
            return context.call(op, x, axis=axis, keepdims=keep)
        lead: list[tuple[int | None, int | None, int]] = [(None, None, 1)] * axis
        place = context.call(op, context.take_slices(x, [*lead, (None, None, -1)]), axis=axis, keepdims=keep)
        return context.call("subtract", context.known(x.shape[axis] - 1, dtypes.int64), place)

    return handle


for _name, _op in (("ArgMax", "argmax"), ("ArgMin", "argmin")):
    register(_name, _extreme(_op), 1, 10_000, (_op,))


@handles("TopK", 10, uses=("topk",))
def topk(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    k = context.ints(need(inputs, 1), "k of TopK")
    axis = normalized_axis(node.int("axis", -1), x.ndim)
    if len(k) != 1 or not 0 <= k[0] <= x.shape[axis]:
        raise ModelError("onnx", f"TopK needs one k of at most {x.shape[axis]}", got=str(k))
    return context.tracer.calls("topk", [x, k[0]], {"axis": axis, "largest": bool(node.int("largest", 1))})


@handles("OneHot", 9, uses=("equal", "where"))
def one_hot(context: Context, node: Node, inputs: Inputs) -> Results:
    indices, values = need(inputs, 0), need(inputs, 2)
    depth = int(context.array(need(inputs, 1), "the depth of OneHot").reshape(-1)[0])
    if values.shape != (2,) or not 0 < depth <= 1 << 24:
        raise ModelError("onnx", "OneHot needs a positive depth and two values", got=f"{depth}, {values.shape}")
    axis = normalized_axis(node.int("axis", -1), indices.ndim + 1)
    wide = context.cast(indices, dtypes.int64)
    below = context.call("less", wide, context.known(0, dtypes.int64))
    wide = context.call("where", below, context.call("add", wide, context.known(depth, dtypes.int64)), wide)
    wide = context.reshape(wide, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    places = context.known(np.arange(depth).reshape(depth, *[1] * (indices.ndim - axis)), dtypes.int64)
    hot = context.call("equal", places, wide)
    off, on = (context.reshape(context.take_slices(values, [(i, i + 1, 1)]), ()) for i in (0, 1))
    return context.call("where", hot, on, off)


def _pad_places(n: int, before: int, after: int, mode: str) -> "np.ndarray[Any, Any]":
    """For each element of a padded axis, the element of the axis that it repeats."""
    places = np.arange(-before, n + after)
    if mode == "edge":
        return np.clip(places, 0, n - 1)
    if mode == "wrap":
        return places % n
    if max(before, after) >= n:
        raise ModelError("onnx", f"Pad reflects {counted(max(before, after), 'element')} of {n}")
    return n - 1 - np.abs(n - 1 - np.abs(places))


def _pad(context: Context, x: Value, mode: str, pads: list[int], axes: tuple[int, ...], filler: Value | None) -> Value:
    if len(pads) != 2 * len(axes):
        raise ModelError("onnx", f"Pad needs {2 * len(axes)} numbers", got=str(pads))
    width = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    cut: list[tuple[int | None, int | None, int]] = []
    for axis, n in enumerate(x.shape):
        before, after = width.get(axis, (0, 0))
        if -min(before, 0) - min(after, 0) > n:
            raise ModelError("onnx", f"Pad removes more than the {counted(n, 'element')} of axis {axis}", got=str(pads))
        cut.append((-min(before, 0), n + min(after, 0), 1))
    x = context.take_slices(x, cut)
    grown = tuple((max(b, 0), max(a, 0)) for b, a in (width.get(i, (0, 0)) for i in range(x.ndim)))
    if not any(b or a for b, a in grown):
        return x
    if mode == "constant":
        value = 0 if filler is None else context.array(filler, "the value of Pad").reshape(-1)[0].item()
        return context.call("pad", x, grown, value)
    if mode not in ("reflect", "edge", "wrap") or max(map(max, grown)) > 1 << 24:
        raise ModelError("onnx", f"Pad in mode {mode!r} by {grown} is not supported")
    for axis, (before, after) in enumerate(grown):
        if before or after:
            if not x.shape[axis]:
                raise ModelError("onnx", f"Pad in mode {mode!r} of an empty axis")
            places = _pad_places(x.shape[axis], before, after, mode)
            x = context.call("take", x, context.known(places, dtypes.int64), axis=axis)
    return x


@handles("Pad", 2, 10, uses=("pad",))
def pad_attributes(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    filler = context.known(node.float("value", 0.0), x.dtype)
    pads = list(node.ints("pads") or ())
    return _pad(context, x, node.string("mode", "constant"), pads, tuple(range(x.ndim)), filler)


@handles("Pad", 11, uses=("pad",))
def pad(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    pads = context.ints(need(inputs, 1), "the pads of Pad")
    axes = context.optional_ints(inputs, 3, "the axes of Pad")
    chosen = tuple(range(x.ndim)) if axes is None else normalized_axes(axes, x.ndim)
    return _pad(context, x, node.string("mode", "constant"), pads, chosen, get(inputs, 2))
