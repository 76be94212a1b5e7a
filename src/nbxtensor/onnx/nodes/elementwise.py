"""Arithmetic, comparison, logic, bits, casts."""

from functools import reduce

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Function, Inputs, Results, get, handles, need, register
from nbxtensor.onnx.tensors import element_type
from nbxtensor.program import Value

UNARY = {
    "Abs": "abs", "Neg": "negative", "Sign": "sign", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Floor": "floor",
    "Ceil": "ceil", "Round": "round", "Reciprocal": "reciprocal", "Tanh": "tanh", "Sin": "sin", "Cos": "cos",
    "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Not": "logical_not", "BitwiseNot": "bitwise_invert",
    "IsNaN": "isnan", "Identity": "",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "Equal": "equal", "Less": "less", "Greater": "greater", "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}  # fmt: skip
VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _unary(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        x = need(inputs, 0)
        return context.call(op, x) if op else x

    return handle


def _binary(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        return context.call(op, need(inputs, 0), need(inputs, 1))

    return handle


def _variadic(op: str) -> Function:
    def handle(context: Context, node: Node, inputs: Inputs) -> Results:
        return reduce(lambda a, b: context.call(op, a, b), [need(inputs, i) for i in range(len(inputs))])

    return handle


for _name, _op in UNARY.items():
    register(_name, _unary(_op), 1, 10_000, (_op,) if _op else ())
for _name, _op in BINARY.items():
    register(_name, _binary(_op), 7, 10_000, (_op,))
for _name, _op in VARIADIC.items():
    register(_name, _variadic(_op), 6, 10_000, (_op,))


@handles("Mean", uses=("add", "divide"))
def mean(context: Context, node: Node, inputs: Inputs) -> Results:
    total = reduce(lambda a, b: context.call("add", a, b), [need(inputs, i) for i in range(len(inputs))])
    return context.call("divide", total, context.known(len(inputs), total.dtype)) if len(inputs) > 1 else total


def truncated_quotient(context: Context, a: Value, b: Value) -> Value:
    """Integer division that rounds towards zero."""
    if a.dtype.kind == "u":
        return context.call("floor_divide", a, b)
    zero = context.known(0, a.dtype)
    magnitude = context.call("floor_divide", context.call("abs", a), context.call("abs", b))
    unlike = context.call("not_equal", context.call("less", a, zero), context.call("less", b, zero))
    return context.call("where", unlike, context.call("negative", magnitude), magnitude)


@handles("Div", 7, uses=("divide", "floor_divide"))
def divide(context: Context, node: Node, inputs: Inputs) -> Results:
    a, b = need(inputs, 0), need(inputs, 1)
    return context.call("divide", a, b) if a.dtype.is_float else truncated_quotient(context, a, b)


@handles("Mod", 10, uses=("remainder",))
def modulo(context: Context, node: Node, inputs: Inputs) -> Results:
    a, b = need(inputs, 0), need(inputs, 1)
    if not node.int("fmod", 0):
        if a.dtype.is_float:
            raise ModelError("onnx", "Mod of floats needs the attribute fmod=1")
        return context.call("remainder", a, b)
    if a.dtype.kind == "u":
        return context.call("remainder", a, b)
    zero = context.known(0, a.dtype)
    size = context.call("remainder", context.call("abs", a), context.call("abs", b))
    return context.call("where", context.call("less", a, zero), context.call("negative", size), size)


@handles("Pow", 7, uses=("pow",))
def power(context: Context, node: Node, inputs: Inputs) -> Results:
    base, exponent = need(inputs, 0), need(inputs, 1)
    if base.dtype is exponent.dtype:
        return context.call("pow", base, exponent)
    if base.dtype.is_float or exponent.dtype.is_integer:
        return context.call("pow", base, context.cast(exponent, base.dtype))
    wide = context.cast(base, exponent.dtype)
    return context.cast(context.call("pow", wide, exponent), base.dtype)


@handles("BitShift", 11, uses=("bitwise_left_shift", "bitwise_right_shift"))
def shift(context: Context, node: Node, inputs: Inputs) -> Results:
    direction = node.string("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError("onnx", "BitShift has an unknown direction", got=repr(direction), allowed=("LEFT", "RIGHT"))
    return context.call(f"bitwise_{direction.lower()}_shift", need(inputs, 0), need(inputs, 1))


@handles("IsInf", 10, uses=("equal", "logical_or"))
def is_infinite(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    above = context.call("equal", x, context.known(float("inf"), x.dtype))
    below = context.call("equal", x, context.known(float("-inf"), x.dtype))
    wanted = [v for v, on in ((above, "detect_positive"), (below, "detect_negative")) if node.int(on, 1)]
    if len(wanted) == 2:
        return context.call("logical_or", *wanted)
    return wanted[0] if wanted else context.broadcast(context.known(False, dtypes.bool_), x.shape)


@handles("Where", 9, uses=("where",))
def where(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.call("where", need(inputs, 0), need(inputs, 1), need(inputs, 2))


@handles("Cast", 6, uses=("astype",))
def cast(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.cast(need(inputs, 0), element_type(node.int("to", 0), "the result of Cast"))


@handles("CastLike", 15, uses=("astype",))
def cast_like(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.cast(need(inputs, 0), need(inputs, 1).dtype)


@handles("Clip", 6, 10, uses=("minimum", "maximum"))
def clip_attributes(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    low = context.known(node.float("min", 0.0), x.dtype) if "min" in node.attributes else None
    high = context.known(node.float("max", 0.0), x.dtype) if "max" in node.attributes else None
    return _clip(context, x, low, high)


@handles("Clip", 11, uses=("minimum", "maximum"))
def clip(context: Context, node: Node, inputs: Inputs) -> Results:
    return _clip(context, need(inputs, 0), get(inputs, 1), get(inputs, 2))


def _clip(context: Context, x: Value, low: Value | None, high: Value | None) -> Value:
    if low is not None:
        x = context.call("maximum", x, low)
    return x if high is None else context.call("minimum", x, high)


@handles("Dropout", 7)
def dropout(context: Context, node: Node, inputs: Inputs) -> Results:
    x, training = need(inputs, 0), get(inputs, 2)
    if training is not None and context.array(training, "training_mode of Dropout").any():
        raise ModelError("onnx", "Dropout in training mode is not supported")
    if len(node.outputs) < 2:
        return x
    return [x, context.broadcast(context.known(True, dtypes.bool_), x.shape)]
