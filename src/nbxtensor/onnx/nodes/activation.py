"""Activations and what is computed along one axis: softmax and its kin."""

from math import prod

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.onnx.axes import normalized_axis
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Function, Inputs, Results, handles, need, register
from nbxtensor.program import Value

PLAIN = {"Sigmoid": "sigmoid", "Relu": "relu", "Softplus": "softplus"}


def _plain(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        return context.call(op, need(inputs, 0))

    return handle


for _name, _op in PLAIN.items():
    register(_name, _plain(_op), 1, 10_000, (_op,))


@handles("LeakyRelu", 6, uses=("leaky_relu",))
def leaky_relu(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.call("leaky_relu", need(inputs, 0), node.float("alpha", 0.01))


@handles("Elu", 6, uses=("elu",))
def elu(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.call("elu", need(inputs, 0), node.float("alpha", 1.0))


@handles("Selu", 6, uses=("elu", "multiply"))
def selu(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    alpha, gamma = node.float("alpha", 1.6732632423543772), node.float("gamma", 1.0507009873554805)
    return context.call("multiply", context.call("elu", x, alpha), context.known(gamma, x.dtype))


@handles("Celu", 12, uses=("elu", "divide", "multiply"))
def celu(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    alpha = context.known(node.float("alpha", 1.0), x.dtype)
    return context.call("multiply", context.call("elu", context.call("divide", x, alpha), 1.0), alpha)


@handles("PRelu", 7, uses=("where", "multiply", "less"))
def prelu(context: Context, node: Node, inputs: Inputs) -> Results:
    x, slope = need(inputs, 0), need(inputs, 1)
    below = context.call("less", x, context.known(0, x.dtype))
    return context.call("where", below, context.call("multiply", x, slope), x)


@handles("ThresholdedRelu", 10, uses=("where", "greater"))
def thresholded_relu(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    above = context.call("greater", x, context.known(node.float("alpha", 1.0), x.dtype))
    return context.call("where", above, x, context.known(0, x.dtype))


def _hard_sigmoid(context: Context, x: Value, alpha: float, beta: float) -> Value:
    y = context.call("add", context.call("multiply", x, context.known(alpha, x.dtype)), context.known(beta, x.dtype))
    return context.call("minimum", context.call("maximum", y, context.known(0, x.dtype)), context.known(1, x.dtype))


@handles("HardSigmoid", 6, uses=("minimum", "maximum"))
def hard_sigmoid(context: Context, node: Node, inputs: Inputs) -> Results:
    return _hard_sigmoid(context, need(inputs, 0), node.float("alpha", 0.2), node.float("beta", 0.5))


@handles("HardSwish", 14, uses=("minimum", "maximum"))
def hard_swish(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    return context.call("multiply", x, _hard_sigmoid(context, x, 1 / 6, 0.5))


@handles("Softsign", 1, uses=("abs", "divide"))
def softsign(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    return context.call("divide", x, context.call("add", context.call("abs", x), context.known(1, x.dtype)))


@handles("Mish", 18, uses=("softplus", "tanh"))
def mish(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    return context.call("multiply", x, context.call("tanh", context.call("softplus", x)))


@handles("Gelu", 20, uses=("gelu",))
def gelu(context: Context, node: Node, inputs: Inputs) -> Results:
    approximate = node.string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise ModelError("onnx", "Gelu has an unknown form", got=repr(approximate), allowed=("none", "tanh"))
    return context.call("gelu", need(inputs, 0), approximate=approximate)


def _flattened(op: str) -> Function:
    """Before version 13 the axes from `axis` on are taken as one row."""

    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        axis = normalized_axis(node.int("axis", 1), x.ndim, inclusive=True)
        rows = context.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return context.reshape(context.call(op, rows, axis=-1), x.shape)

    return handle


def _along_axis(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        return context.call(op, x, axis=normalized_axis(node.int("axis", -1), x.ndim))

    return handle


for _name, _op in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax")):
    register(_name, _flattened(_op), 1, 12, (_op,))
    register(_name, _along_axis(_op), 13, 10_000, (_op,))


@handles("Hardmax", 13, uses=("argmax", "equal"))
def hardmax(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    axis = normalized_axis(node.int("axis", -1), x.ndim)
    best = context.call("argmax", x, axis=axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    places = context.reshape(context.known(range(x.shape[axis]), dtypes.int64), shape)
    return context.cast(context.call("equal", places, best), x.dtype)
