"""Convolution and pooling in one to three spatial dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Function, Inputs, Results, get, handles, need, register
from nbxtensor.program import Value


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window: per spatial axis its size, step, dilation and the padding before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after, per axis."""
        return tuple(zip(self.before, self.after, strict=True))

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Number of window positions along each axis."""
        return tuple(
            (n + b + a - d * (k - 1) - 1) // s + 1
            for n, k, s, d, b, a in zip(
                sizes, self.kernel, self.strides, self.dilations, self.before, self.after, strict=True
            )
        )


def _spatial(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = node.ints(name)
    if values is None:
        return (default,) * rank
    if len(values) != rank or any(v < 1 for v in values):
        raise ModelError("onnx", f"{name} needs {counted(rank, 'positive number')}", got=str(values))
    return values


def window(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window that the attributes of a convolution or pool describe, over axes of these sizes."""
    rank = len(sizes)
    strides, dilations = _spatial(node, "strides", rank, 1), _spatial(node, "dilations", rank, 1)
    mode = node.string("auto_pad", "NOTSET")
    pads = node.ints("pads") or (0,) * (2 * rank)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before: list[int] = []
        after: list[int] = []
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            small, large = total // 2, total - total // 2
            before.append(small if mode == "SAME_UPPER" else large)
            after.append(large if mode == "SAME_UPPER" else small)
        pads = (*before, *after)
    elif mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode != "NOTSET":
        raise ModelError("onnx", "auto_pad is unknown", got=repr(mode))
    if len(pads) != 2 * rank or any(p < 0 for p in pads):
        raise ModelError("onnx", f"pads needs {2 * rank} numbers of at least 0", got=str(pads))
    return Window(kernel, strides, dilations, pads[:rank], pads[rank:])


def _rank(x: Value) -> int:
    if not 3 <= x.ndim <= 5:
        raise ModelError("onnx", "one to three spatial dimensions are supported", got=f"shape {x.shape}")
    return x.ndim - 2


@handles("Conv", uses=("conv",))
def conv(context: Context, node: Node, inputs: Inputs) -> Results:
    x, weight, bias = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    _rank(x)
    groups = node.int("group", 1)
    kernel = node.ints("kernel_shape") or weight.shape[2:]
    if (
        weight.ndim != x.ndim
        or kernel != weight.shape[2:]
        or groups < 1
        or weight.shape[0] % groups
        or weight.shape[1] * groups != x.shape[1]
        or (bias is not None and bias.shape != weight.shape[:1])
    ):
        raise ModelError(
            "onnx",
            f"Conv of {x.shape} with weights {weight.shape}, kernel {kernel}, {counted(groups, 'group')} does not fit",
        )
    w = window(node, x.shape[2:], weight.shape[2:])
    if any(n < 1 for n in w.places(x.shape[2:])):
        raise ModelError("onnx", f"Conv has a kernel larger than its padded input {x.shape}")
    return context.call("conv", x, weight, bias, stride=w.strides, padding=w.pads, dilation=w.dilations, groups=groups)


def _spread(context: Context, x: Value, strides: Sequence[int]) -> Value:
    """`x` with ``stride - 1`` zeros between neighbours along each spatial axis."""
    for axis, stride in enumerate(strides, start=2):
        n = x.shape[axis]
        if stride > 1 and n:
            apart = context.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
            width = tuple((0, stride - 1) if i == axis + 1 else (0, 0) for i in range(apart.ndim))
            joined = context.reshape(
                context.call("pad", apart, width, 0), (*x.shape[:axis], n * stride, *x.shape[axis + 1 :])
            )
            lead: list[tuple[int | None, int | None, int]] = [(None, None, 1)] * axis
            x = context.take_slices(joined, [*lead, (0, (n - 1) * stride + 1, 1)])
    return x


@handles("ConvTranspose", uses=("conv", "pad"))
def conv_transpose(context: Context, node: Node, inputs: Inputs) -> Results:
    """A convolution of the spread input with the turned weights."""
    x, weight, bias = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    rank, groups = _rank(x), node.int("group", 1)
    kernel = weight.shape[2:]
    if weight.ndim != x.ndim or groups < 1 or weight.shape[0] % groups or weight.shape[0] != x.shape[1]:
        raise ModelError(
            "onnx", f"ConvTranspose of {x.shape} with weights {weight.shape} in {counted(groups, 'group')}"
        )
    if node.ints("kernel_shape") not in (None, kernel) or 0 in kernel:
        raise ModelError("onnx", f"ConvTranspose has weights {weight.shape} for another kernel")
    strides, dilations = _spatial(node, "strides", rank, 1), _spatial(node, "dilations", rank, 1)
    extra = node.ints("output_padding") or (0,) * rank
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    full = tuple((n - 1) * s + r + e for n, s, r, e in zip(x.shape[2:], strides, reach, extra, strict=True))
    begin, end = _transposed_pads(node, x.shape[2:], strides, full)
    spread = _spread(context, x, strides)
    width = tuple((r - 1 - b, r - 1 - a + e) for r, b, a, e in zip(reach, begin, end, extra, strict=True))
    kept = tuple((max(-b, 0), n + min(a, 0), 1) for (b, a), n in zip(width, spread.shape[2:], strict=True))
    spread = context.take_slices(spread, ((None, None, 1), (None, None, 1), *kept))
    grown = ((0, 0), (0, 0), *((max(b, 0), max(a, 0)) for b, a in width))
    if any(map(any, grown)):
        spread = context.call("pad", spread, grown, 0)
    if any(n < r for n, r in zip(spread.shape[2:], reach, strict=True)):
        raise ModelError("onnx", f"ConvTranspose of {x.shape} has no output")
    turned = context.take_slices(weight, ((None, None, 1), (None, None, 1), *[(None, None, -1)] * rank))
    inner, outer = weight.shape[0] // groups, weight.shape[1]
    apart = context.reshape(turned, (groups, inner, outer, *kernel))
    swapped = context.permute(apart, (0, 2, 1, *range(3, 3 + rank)))
    turned = context.reshape(swapped, (groups * outer, inner, *kernel))
    ones = (1,) * rank
    return context.call(
        "conv", spread, turned, bias, stride=ones, padding=(0,) * rank, dilation=dilations, groups=groups
    )


def _transposed_pads(
    node: Node, sizes: Sequence[int], strides: Sequence[int], full: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut off the full result before and after, from pads, auto_pad or output_shape."""
    rank = len(sizes)
    wanted, mode = node.ints("output_shape"), node.string("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(n * s for n, s in zip(sizes, strides, strict=True))
    if wanted is None:
        pads = (0,) * (2 * rank) if mode == "VALID" else node.ints("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise ModelError("onnx", f"pads needs {2 * rank} numbers", got=str(pads))
        return pads[:rank], pads[rank:]
    if len(wanted) != rank:
        raise ModelError("onnx", f"output_shape needs {counted(rank, 'number')}", got=str(wanted))
    total = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _pool_window(context: Context, node: Node, x: Value) -> tuple[Window, Window]:
    """The window as given, and with more padding at the end where `ceil_mode` asks for one more place."""
    rank, kernel = _rank(x), node.ints("kernel_shape")
    if kernel is None or len(kernel) != rank or any(k < 1 for k in kernel):
        raise ModelError("onnx", f"a pool needs {rank} positive kernel sizes", got=str(kernel))
    w = window(node, x.shape[2:], kernel)
    if not node.int("ceil_mode", 0):
        return w, w
    after: list[int] = []
    for n, k, s, d, b, a in zip(x.shape[2:], kernel, w.strides, w.dilations, w.before, w.after, strict=True):
        reach = d * (k - 1) + 1
        places = -(-(n + b + a - reach) // s) + 1
        if (places - 1) * s >= n + b:  # a window that starts in the end padding is left out
            places -= 1
        after.append(max(a, (places - 1) * s + reach - n - b))
    return w, Window(kernel, w.strides, w.dilations, w.before, tuple(after))


def _checked_places(w: Window, x: Value) -> tuple[int, ...]:
    places = w.places(x.shape[2:])
    if any(n < 1 for n in places):
        raise ModelError("onnx", f"a pool has a kernel larger than its padded input {x.shape}")
    return places


@handles("MaxPool", uses=("max_pool",))
def max_pool(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    if len([o for o in node.outputs if o]) > 1:
        raise ModelError("onnx", "MaxPool with the output Indices is not supported")
    w = _pool_window(context, node, x)[1]
    _checked_places(w, x)
    return context.call("max_pool", x, w.kernel, stride=w.strides, padding=w.pads, dilation=w.dilations)


@handles("AveragePool", uses=("avg_pool",))
def average_pool(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    given, w = _pool_window(context, node, x)
    places = _checked_places(w, x)
    if any(d != 1 for d in w.dilations):
        raise ModelError("onnx", "AveragePool with dilations is not supported")
    sizes = x.shape[2:]
    average = context.call("avg_pool", x, w.kernel, stride=w.strides, padding=w.pads, count_include_pad=True)
    counts = np.ones((), np.float64)
    for axis, (n, k, s, b) in enumerate(zip(sizes, w.kernel, w.strides, w.before, strict=True)):
        starts = np.arange(places[axis]) * s - b
        low, high = (-b, n + given.after[axis]) if node.int("count_include_pad", 0) else (0, n)
        count = np.minimum(starts + k, high) - np.maximum(starts, low)
        counts = counts[..., None] * count
    if np.all(counts == prod(w.kernel)):
        return average
    factor = prod(w.kernel) / np.maximum(counts, 1)
    return context.call("multiply", average, context.known(factor, x.dtype))


def _global(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        if x.ndim < 3:
            raise ModelError("onnx", f"{node.op} needs spatial axes", got=str(x.shape))
        return context.call(op, x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return handle


register("GlobalAveragePool", _global("mean"), 1, 10_000, ("mean",))
register("GlobalMaxPool", _global("max"), 1, 10_000, ("max",))
