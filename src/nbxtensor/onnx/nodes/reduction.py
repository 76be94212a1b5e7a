"""Reductions: the axes come as an attribute in old versions and as an input in newer ones."""

from collections.abc import Callable

from nbxtensor.onnx.axes import normalized_axes
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Function, Inputs, Results, need, register
from nbxtensor.program import Value

Body = Callable[[Context, Value, tuple[int, ...], bool], Value]


def _same_dtype(op: str) -> Body:
    """`op`, whose result has the dtype of its operand here whatever the standard promotes to."""

    def body(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
        return context.cast(context.call(op, x, axis=axes, keepdims=keep), x.dtype)

    return body


_sum = _same_dtype("sum")
_max = _same_dtype("max")


def _l1(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _sum(context, context.call("abs", x), axes, keep)


def _sum_square(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _sum(context, context.call("multiply", x, x), axes, keep)


def _l2(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return context.call("sqrt", _sum_square(context, x, axes, keep))


def _log_sum(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return context.call("log", _sum(context, x, axes, keep))


def _log_sum_exp(context: Context, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    largest = _max(context, x, axes, True)
    finite = context.call("less", context.call("abs", largest), context.known(float("inf"), x.dtype))
    shift = context.call("where", finite, largest, context.known(0, x.dtype))
    total = _sum(context, context.call("exp", context.call("subtract", x, shift)), axes, True)
    result = context.call("add", context.call("log", total), shift)
    return result if keep else context.reshape(result, [d for i, d in enumerate(x.shape) if i not in axes])


def _reduction(body: Body, axes_input_since: int) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        if context.opset < axes_input_since:
            given = node.ints("axes")
        else:
            given = context.optional_ints(inputs, 1, f"the axes of {node.op}")
        if not given and node.int("noop_with_empty_axes", 0):
            return x
        axes = tuple(sorted(normalized_axes(given, x.ndim))) if given else tuple(range(x.ndim))
        return body(context, x, axes, bool(node.int("keepdims", 1)))

    return handle


for _name, _body, _since, _uses in (
    ("ReduceSum", _sum, 13, ("sum",)),
    ("ReduceMean", _same_dtype("mean"), 18, ("mean",)),
    ("ReduceMax", _max, 18, ("max",)),
    ("ReduceMin", _same_dtype("min"), 18, ("min",)),
    ("ReduceProd", _same_dtype("prod"), 18, ("prod",)),
    ("ReduceL1", _l1, 18, ("sum", "abs")),
    ("ReduceL2", _l2, 18, ("sum", "sqrt")),
    ("ReduceSumSquare", _sum_square, 18, ("sum",)),
    ("ReduceLogSum", _log_sum, 18, ("sum", "log")),
    ("ReduceLogSumExp", _log_sum_exp, 18, ("sum", "log", "exp", "max")),
):
    register(_name, _reduction(_body, _since), 1, 10_000, _uses)
