"""Matrix products and normalizations."""

from math import prod

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.axes import normalized_axis
from nbxtensor.onnx.graph import Node
from nbxtensor.onnx.registry import Context, Inputs, Results, get, handles, need
from nbxtensor.onnx.tensors import element_type
from nbxtensor.program import Value


@handles("MatMul", uses=("matmul",))
def matmul(context: Context, node: Node, inputs: Inputs) -> Results:
    return context.call("matmul", need(inputs, 0), need(inputs, 1))


@handles("Gemm", 7, uses=("matmul", "permute_dims", "add", "multiply"))
def gemm(context: Context, node: Node, inputs: Inputs) -> Results:
    a, b, c = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    if a.ndim != 2 or b.ndim != 2:
        raise ModelError("onnx", "Gemm needs two matrices", got=f"{a.shape} and {b.shape}")
    a = context.permute(a, (1, 0)) if node.int("transA", 0) else a
    b = context.permute(b, (1, 0)) if node.int("transB", 0) else b
    y = _scaled(context, context.call("matmul", a, b), node.float("alpha", 1.0))
    beta = node.float("beta", 1.0)
    return y if c is None or beta == 0 else context.call("add", y, _scaled(context, c, beta))


def _scaled(context: Context, x: Value, factor: float) -> Value:
    return x if factor == 1 else context.call("multiply", x, context.known(factor, x.dtype))


def _per_channel(context: Context, v: Value, ndim: int) -> Value:
    """A vector of one value per channel, shaped to broadcast along axis 1."""
    return context.reshape(v, (v.size, *[1] * (ndim - 2)))


def _standardized(context: Context, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value, Value]:
    """``(x - mean) / sqrt(variance + epsilon)`` over `axes`, the mean, and the reciprocal of the deviation."""
    mean = context.call("mean", x, axis=axes, keepdims=True)
    centred = context.call("subtract", x, mean)
    variance = context.call("mean", context.call("multiply", centred, centred), axis=axes, keepdims=True)
    spread = context.call("sqrt", context.call("add", variance, context.known(epsilon, x.dtype)))
    inverse = context.call("divide", context.known(1, x.dtype), spread)
    return context.call("multiply", centred, inverse), mean, inverse


def _affine(context: Context, x: Value, scale: Value, bias: Value | None) -> Value:
    y = context.call("multiply", x, scale)
    return y if bias is None else context.call("add", y, bias)


@handles("BatchNormalization", 7, uses=("sqrt", "divide", "multiply", "add", "subtract"))
def batch_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, bias, mean, variance = (need(inputs, i) for i in range(5))
    training = node.int("training_mode", 0) if context.opset >= 14 else len(node.outputs) > 1
    if training or not node.int("spatial", 1):
        raise ModelError("onnx", "BatchNormalization in training mode or per element is not supported")
    if x.ndim < 2 or any(v.shape != (x.shape[1],) for v in (scale, bias, mean, variance)):
        raise ModelError("onnx", f"BatchNormalization needs one value per channel of {x.shape}")
    spread = context.call(
        "sqrt", context.call("add", variance, context.known(node.float("epsilon", 1e-5), variance.dtype))
    )
    factor = context.call("divide", context.cast(scale, spread.dtype), spread)
    shift = context.call("subtract", context.cast(bias, spread.dtype), context.call("multiply", mean, factor))
    factor, shift = (context.cast(_per_channel(context, v, x.ndim), x.dtype) for v in (factor, shift))
    return context.call("add", context.call("multiply", x, factor), shift)


@handles("InstanceNormalization", 6, uses=("mean", "sqrt"))
def instance_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, bias = (need(inputs, i) for i in range(3))
    if x.ndim < 3 or scale.shape != (x.shape[1],) or bias.shape != scale.shape:
        raise ModelError("onnx", f"InstanceNormalization needs one value per channel of {x.shape}")
    y = _standardized(context, x, tuple(range(2, x.ndim)), node.float("epsilon", 1e-5))[0]
    return _affine(context, y, _per_channel(context, scale, x.ndim), _per_channel(context, bias, x.ndim))


@handles("GroupNormalization", 18, uses=("mean", "sqrt"))
def group_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, bias = (need(inputs, i) for i in range(3))
    groups = node.int("num_groups", 0)
    values = groups if context.opset < 21 else x.shape[1] if x.ndim > 1 else 0
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups or scale.shape != (values,) or bias.shape != scale.shape:
        raise ModelError(
            "onnx", f"GroupNormalization of {x.shape} in {counted(groups, 'group')} with {scale.shape} scales"
        )
    apart = context.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    y = _standardized(context, apart, tuple(range(2, apart.ndim)), node.float("epsilon", 1e-5))[0]
    if context.opset < 21:
        scale, bias = (_per_channel(context, v, apart.ndim) for v in (scale, bias))
        return context.reshape(_affine(context, y, scale, bias), x.shape)
    scale, bias = (_per_channel(context, v, x.ndim) for v in (scale, bias))
    return _affine(context, context.reshape(y, x.shape), scale, bias)


@handles("LayerNormalization", 17, uses=("layer_norm",))
def layer_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, bias = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    axis = normalized_axis(node.int("axis", -1), x.ndim)
    epsilon = node.float("epsilon", 1e-5)
    if len([o for o in node.outputs if o]) > 1:
        wide = context.cast(x, element_type(node.int("stash_type", 1), "stash_type of LayerNormalization"))
        y, mean, inverse = _standardized(context, wide, tuple(range(axis, x.ndim)), epsilon)
        return [_affine(context, context.cast(y, x.dtype), scale, bias), mean, inverse][: len(node.outputs)]
    row = x.shape[axis:]
    if scale.shape != row or (bias is not None and bias.shape != row):
        y = _standardized(context, x, tuple(range(axis, x.ndim)), epsilon)[0]
        return _affine(context, y, scale, bias)
    if axis == x.ndim - 1:
        return context.call("layer_norm", x, scale, bias, eps=epsilon)
    n = prod(row)
    rows = context.reshape(x, (*x.shape[:axis], n))
    flat = None if bias is None else context.reshape(bias, (n,))
    return context.reshape(context.call("layer_norm", rows, context.reshape(scale, (n,)), flat, eps=epsilon), x.shape)


@handles("LpNormalization", uses=("sum", "sqrt", "divide", "abs"))
def lp_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x, p = need(inputs, 0), node.int("p", 2)
    axis = normalized_axis(node.int("axis", -1), x.ndim)
    if p not in (1, 2):
        raise ModelError("onnx", "LpNormalization knows p = 1 and 2", got=str(p))
    terms = context.call("abs", x) if p == 1 else context.call("multiply", x, x)
    total = context.call("sum", terms, axis=(axis,), keepdims=True)
    length = total if p == 1 else context.call("sqrt", total)
    zero = context.known(0, x.dtype)
    quotient = context.call("divide", x, length)
    return context.call("where", context.call("equal", length, zero), zero, quotient)


@handles("MeanVarianceNormalization", 9, uses=("mean", "sqrt"))
def mean_variance_normalization(context: Context, node: Node, inputs: Inputs) -> Results:
    x = need(inputs, 0)
    axes = tuple(normalized_axis(a, x.ndim) for a in node.ints("axes") or (0, 2, 3))
    return _standardized(context, x, axes, 1e-9)[0]


@handles("DequantizeLinear", 10, uses=("astype", "subtract", "multiply"))
def dequantize_linear(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, zero = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    if node.int("block_size", 0):
        raise ModelError("onnx", "DequantizeLinear in blocks is not supported")
    scale, zero = (_along(context, v, x, node.int("axis", 1)) for v in (scale, zero))
    assert scale is not None
    y = context.cast(x, scale.dtype) if zero is None else _difference(context, x, zero, scale)
    return context.call("multiply", y, scale)


def _difference(context: Context, x: Value, zero: Value, scale: Value) -> Value:
    """``x - zero`` without overflow, as floats."""
    wide = context.call("subtract", context.cast(x, dtypes.int32), context.cast(zero, dtypes.int32))
    return context.cast(wide, scale.dtype)


@handles("QuantizeLinear", 10, uses=("divide", "round", "minimum", "maximum", "astype"))
def quantize_linear(context: Context, node: Node, inputs: Inputs) -> Results:
    x, scale, zero = need(inputs, 0), need(inputs, 1), get(inputs, 2)
    target = dtypes.uint8 if zero is None else zero.dtype
    if node.int("block_size", 0) or target.minimum is None or target.maximum is None or target.itemsize > 2:
        raise ModelError("onnx", "QuantizeLinear in blocks or to this dtype is not supported", got=target.name)
    x = context.cast(x, scale.dtype)
    scale, zero = (_along(context, v, x, node.int("axis", 1)) for v in (scale, zero))
    assert scale is not None
    y = context.call("round", context.call("divide", x, scale))
    if zero is not None:
        y = context.call("add", y, context.cast(zero, y.dtype))
    y = context.call("maximum", y, context.known(target.minimum, y.dtype))
    return context.cast(context.call("minimum", y, context.known(target.maximum, y.dtype)), target)


def _along(context: Context, v: Value | None, x: Value, axis: int) -> Value | None:
    """Scale or zero point, shaped to broadcast along `axis` of `x` if it is a vector."""
    if v is None or v.ndim == 0 or v.size == 1:
        return v if v is None else context.reshape(v, ())
    axis = normalized_axis(axis, x.ndim)
    if v.shape != (x.shape[axis],):
        raise ModelError("onnx", f"one scale per element of axis {axis} of {x.shape} is needed", got=str(v.shape))
    return context.reshape(v, (v.size, *[1] * (x.ndim - axis - 1)))
