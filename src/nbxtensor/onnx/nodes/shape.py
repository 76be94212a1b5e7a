"""Shapes and layouts: what moves or repeats elements without computing with them, and constants."""

from math import ceil, prod

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import dtype as as_dtype
from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.axes import normalized_axes, normalized_axis
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Inputs, Results, get, handles, need
from nbxtensor.program import Value

MAX_RANGE = 1 << 24
"""Elements of a Range that are made on the host."""


@handles("Constant")
def constant(context: Context, node: Node, inputs: Inputs) -> Results:
    attributes = node.attributes
    value = attributes.get("value")
    if isinstance(value, np.ndarray):
        return context.tracer.constant(value, f"output {node.outputs[0]}")
    if "value_float" in attributes or "value_floats" in attributes:
        return context.known(attributes.get("value_float", attributes.get("value_floats")), dtypes.float32)
    if "value_int" in attributes or "value_ints" in attributes:
        return context.known(attributes.get("value_int", attributes.get("value_ints")), dtypes.int64)
    raise ModelError("onnx", "a Constant without a dense numeric value is not supported")


@handles("ConstantOfShape", 9, uses=("broadcast_to",))
def constant_of_shape(context: Context, node: Node, inputs: Inputs) -> Results:
    shape = context.ints(need(inputs, 0), "the shape of ConstantOfShape")
    value = node.attributes.get("value")
    filler = value if isinstance(value, np.ndarray) else np.zeros(1, np.float32)
    if filler.size != 1 or any(d < 0 for d in shape):
        raise ModelError(
            "onnx", "ConstantOfShape needs one value and a shape", got=f"{counted(filler.size, 'value')}, {shape}"
        )
    return context.broadcast(context.known(filler.reshape(()), as_dtype(filler.dtype)), shape)


@handles("Range", 11)
def arange(context: Context, node: Node, inputs: Inputs) -> Results:
    parts = [need(inputs, i) for i in range(3)]
    start, limit, step = (context.array(v, "the ends of Range").reshape(-1) for v in parts)
    if any(v.size != 1 for v in (start, limit, step)) or not step[0]:
        raise ModelError("onnx", "Range needs three scalars, the last not 0")
    first, last, by = start[0].item(), limit[0].item(), step[0].item()
    if parts[0].dtype.is_float:
        length = ceil((last - first) / by) if np.isfinite((last - first) / by) else MAX_RANGE + 1
    else:
        length = -((first - last) // by)
    if length > MAX_RANGE:
        raise ModelError("onnx", f"a Range of more than {MAX_RANGE} elements is not supported", got=str(length))
    steps = np.arange(max(length, 0)).astype(start.dtype)
    return context.known(start[0] + steps * step[0], parts[0].dtype)


@handles("Shape")
def shape(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    return context.known(x.shape[slice(node.int("start", 0), node.int("end", x.ndim))], dtypes.int64)


@handles("Size")
def size(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.known(need(inputs, 0).size, dtypes.int64)


@handles("Reshape", 5, uses=("reshape",))
def reshape(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    wanted = context.ints(need(inputs, 1), "the shape of Reshape")
    if not node.int("allowzero", 0):
        if any(d == 0 and i >= x.ndim for i, d in enumerate(wanted)):
            raise ModelError("onnx", "Reshape copies a dimension that is not there", got=f"{wanted} for {x.shape}")
        wanted = [x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        raise ModelError("onnx", "Reshape allows one -1 and no other negative size", got=str(wanted))
    if -1 in wanted:
        rest = prod(d for d in wanted if d != -1)
        if rest == 0 or x.size % rest:
            raise ModelError("onnx", f"Reshape cannot make {wanted} of {x.shape}")
        wanted[wanted.index(-1)] = x.size // rest
    if prod(wanted) != x.size:
        raise ModelError("onnx", f"Reshape cannot make {wanted} of {x.shape}")
    return context.reshape(x, wanted)


@handles("Flatten", uses=("reshape",))
def flatten(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    axis = normalized_axis(node.int("axis", 1), x.ndim, inclusive=True)
    return context.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@handles("Transpose", uses=("permute_dims",))
def transpose(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    axes = node.ints("perm") or tuple(reversed(range(x.ndim)))
    if sorted(axes) != list(range(x.ndim)):
        raise ModelError("onnx", f"Transpose needs every axis of rank {x.ndim} once", got=str(axes))
    return context.permute(x, axes)


def _axes(context: Context, node: Node, inputs: Inputs) -> tuple[int, ...] | list[int] | None:
    """Axes as an attribute (before version 13) or as the second input."""
    return node.ints("axes") if context.opset < 13 else context.optional_ints(inputs, 1, f"the axes of {node.op}")


@handles("Squeeze", uses=("reshape",))
def squeeze(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    given = _axes(context, node, inputs)
    axes = [i for i, d in enumerate(x.shape) if d == 1] if given is None else normalized_axes(given, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ModelError("onnx", f"Squeeze of an axis whose size is not 1: axes {tuple(axes)} of {x.shape}")
    return context.reshape(x, [d for i, d in enumerate(x.shape) if i not in axes])


@handles("Unsqueeze", uses=("reshape",))
def unsqueeze(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    given = _axes(context, node, inputs)
    if given is None:
        raise ModelError("onnx", "Unsqueeze needs axes")
    rank = x.ndim + len(given)
    axes = normalized_axes(given, rank)
    rest = iter(x.shape)
    return context.reshape(x, [1 if i in axes else next(rest) for i in range(rank)])


@handles("Expand", 8, uses=("broadcast_to",))
def expand(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    wanted = context.ints(need(inputs, 1), "the shape of Expand")
    if any(d < 0 for d in wanted):
        raise ModelError("onnx", "Expand to a negative size", got=str(wanted))
    rank = max(len(wanted), x.ndim)
    own, other = (1,) * (rank - x.ndim) + x.shape, [1] * (rank - len(wanted)) + wanted
    if any(a != b and 1 not in (a, b) for a, b in zip(own, other, strict=True)):
        raise ModelError("onnx", f"Expand cannot broadcast {x.shape} to {wanted}")
    return context.broadcast(x, [b if a == 1 else a for a, b in zip(own, other, strict=True)])


@handles("Tile", 6, uses=("broadcast_to", "reshape"))
def tile(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    repeats = context.ints(need(inputs, 1), "the repeats of Tile")
    if len(repeats) != x.ndim or any(r < 0 for r in repeats):
        raise ModelError("onnx", f"Tile needs one repeat per axis of {x.shape}", got=str(repeats))
    apart = [n for d in x.shape for n in (1, d)]
    repeated = [n for d, r in zip(x.shape, repeats, strict=True) for n in (r, d)]
    spread = context.broadcast(context.reshape(x, apart), repeated)
    return context.reshape(spread, [d * r for d, r in zip(x.shape, repeats, strict=True)])


@handles("Concat", 4, uses=("concat",))
def concat(context: Context, node: Node, inputs: Inputs) -> Results:
    parts = [need(inputs, i) for i in range(len(inputs))]
    axis = normalized_axis(node.int("axis", 0), parts[0].ndim)
    filled = [p for p in parts if p.size] or parts[:1]
    shapes = {p.shape[:axis] + p.shape[axis + 1 :] for p in parts}
    if len(shapes) != 1 or any(p.ndim != parts[0].ndim for p in parts):
        raise ModelError("onnx", "Concat of shapes that do not fit", got=", ".join(str(p.shape) for p in parts))
    return context.concat(filled, axis)


@handles("Split")
def split(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    axis = normalized_axis(node.int("axis", 0), x.ndim)
    total, parts = x.shape[axis], len(node.outputs)
    if context.opset < 13:
        sizes = node.ints("split")
    else:
        sizes = context.optional_ints(inputs, 1, "the sizes of Split")
    if sizes is None:
        step = -(-total // parts)
        if context.opset < 18 and total % parts:
            raise ModelError("onnx", f"Split of {counted(total, 'element')} into {counted(parts, 'equal part')}")
        sizes = [max(0, min(step, total - i * step)) for i in range(parts)]
    if sum(sizes) != total or any(s < 0 for s in sizes) or len(sizes) != parts:
        raise ModelError(
            "onnx", f"Split of {counted(total, 'element')} into {counted(parts, 'part')}", got=str(list(sizes))
        )
    ends = np.cumsum(sizes).tolist()
    lead: tuple[tuple[int | None, int | None, int], ...] = ((None, None, 1),) * axis
    return [context.take_slices(x, (*lead, (end - n, end, 1))) for end, n in zip(ends, sizes, strict=True)]


def _slice(context: Context, x: Value, starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> Value:
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError("onnx", "Slice needs as many starts, ends, axes and steps, no step 0")
    slices: list[tuple[int | None, int | None, int]] = [(None, None, 1)] * x.ndim
    for axis, start, end, step in zip(normalized_axes(axes, x.ndim), starts, ends, steps, strict=True):
        n = x.shape[axis]
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first = min(max(start + n if start < 0 else start, 0), n if step > 0 else n - 1)
        stop = min(max(end + n if end < 0 else end, low), high if step > 0 else n)
        slices[axis] = (first, None if stop < 0 else stop, step)
    return context.take_slices(x, slices)


@handles("Slice", 1, 9)
def slice_attributes(context: Context, node: Node, inputs: Inputs) -> Results:
    starts, ends = node.ints("starts") or (), node.ints("ends") or ()
    axes = node.ints("axes") or tuple(range(len(starts)))
    return _slice(context, need(inputs, 0), list(starts), list(ends), list(axes), [1] * len(starts))


@handles("Slice", 10)
def slice_inputs(context: Context, node: Node, inputs: Inputs) -> Results:
    starts = context.ints(need(inputs, 1), "the starts of Slice")
    ends = context.ints(need(inputs, 2), "the ends of Slice")
    axes = context.optional_ints(inputs, 3, "the axes of Slice")
    steps = context.optional_ints(inputs, 4, "the steps of Slice")
    return _slice(
        context,
        need(inputs, 0),
        starts,
        ends,
        list(range(len(starts))) if axes is None else axes,
        [1] * len(starts) if steps is None else steps,
    )


@handles("DepthToSpace", uses=("reshape", "permute_dims"))
def depth_to_space(context: Context, node: Node, inputs: Inputs) -> Results:
    x, b = need(inputs, 0), node.int("blocksize", 0)
    if x.ndim != 4 or b <= 0 or x.shape[1] % (b * b):
        raise ModelError("onnx", f"DepthToSpace by {b} does not fit {x.shape}")
    n, c, h, w = x.shape
    if node.string("mode", "DCR") == "DCR":
        apart = context.permute(context.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = context.permute(context.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return context.reshape(apart, (n, c // (b * b), h * b, w * b))


@handles("SpaceToDepth", uses=("reshape", "permute_dims"))
def space_to_depth(context: Context, node: Node, inputs: Inputs) -> Results:
    x, b = need(inputs, 0), node.int("blocksize", 0)
    if x.ndim != 4 or b <= 0 or x.shape[2] % b or x.shape[3] % b:
        raise ModelError("onnx", f"SpaceToDepth by {b} does not fit {x.shape}")
    n, c, h, w = x.shape
    apart = context.permute(context.reshape(x, (n, c, h // b, b, w // b, b)), (0, 3, 5, 1, 2, 4))
    return context.reshape(apart, (n, c * b * b, h // b, w // b))


@handles("Trilu", 14, uses=("where",))
def trilu(context: Context, node: Node, inputs: Inputs) -> Results:
    x, offset = need(inputs, 0), get(inputs, 1)
    if x.ndim < 2:
        raise ModelError("onnx", "Trilu needs two axes", got=str(x.shape))
    k = 0 if offset is None else context.ints(offset, "the diagonal of Trilu")[0]
    rows, cols = (context.known(range(n), dtypes.int64) for n in x.shape[-2:])
    rows = context.call("add", context.reshape(rows, (x.shape[-2], 1)), context.known(k, dtypes.int64))
    kept = context.call("greater_equal" if node.int("upper", 1) else "less_equal", cols, rows)
    return context.call("where", kept, x, context.known(0, x.dtype))
