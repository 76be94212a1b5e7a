"""Rectifiers: relu, leaky_relu, elu, hard_sigmoid."""

from typing import Any

import numpy as np

from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import expm1
from nbxtensor.kernel.math64 import expm164
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.ops._categories import check_tensor, math_types, number, unary
from nbxtensor.ops._samples import Array, singles
from nbxtensor.tensor.tensor import Tensor


@kernel
def relu_value(x):
    return tl.where(x <= 0, tl.zeros(x.shape, x.dtype), x)


@kernel
def leaky_relu_value(x, alpha):
    return tl.where(x < 0, x * alpha, x)


@kernel
def elu_value(x, alpha):
    if x.dtype == tl.float64:
        e = expm164(x)
    else:
        e = expm1(x)
    return tl.where(x < 0, e * alpha, x)


@kernel
def hard_sigmoid_value(x, alpha, beta):
    y = x * alpha + beta
    return tl.where(y <= 0.0, 0.0, tl.where(y >= 1.0, 1.0, y))


def relu_reference(x: Array) -> Array:
    return np.maximum(x, 0)


@operator("relu", kernels=(relu_value,), reference=relu_reference, samples=singles)
def relu(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """max(x, 0), elementwise; NaN passes and relu(-0.0) is 0.0.

    Parameters
    ----------
    x
        Operand of any shape and a numeric dtype.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x`. The result is exact, and the same bits on every device.
    """
    return unary("nn.relu", relu_value, x, out, "numeric")


def _with_parameters(name: str, fn: KernelFunction, x: Tensor, parameters: tuple[float, ...], out: Any) -> Tensor:
    check_tensor(f"nn.{name}", x)
    kind, dtype = math_types(f"nn.{name}", x.dtype)
    operands = (x, *(number(f"nn.{name}", "a parameter", p, kind) for p in parameters))
    return pointwise(name, fn, operands, (kind,) * len(operands), dtype, out)


def leaky_relu_reference(x: Array, alpha: float = 0.01) -> Array:
    return np.where(x < 0, x * float(np.float32(alpha)), x)


@operator(
    "leaky_relu",
    kernels=(leaky_relu_value,),
    reference=leaky_relu_reference,
    samples=singles,
    ulp={"float16": 0.51, "bfloat16": 0.51, "float32": 0.5, "float64": 0.5},
)
def leaky_relu(x: Tensor, /, alpha: float = 0.01, *, out: Tensor | None = None) -> Tensor:
    """x where x >= 0, else alpha * x, elementwise.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    alpha
        Slope below 0, taken in the dtype of the computation.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32; correctly rounded in float32, then once more to 16 bits.
    """
    return _with_parameters("leaky_relu", leaky_relu_value, x, (alpha,), out)


def elu_reference(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)) * float(np.float32(alpha)), x)


@operator(
    "elu",
    kernels=(elu_value,),
    reference=elu_reference,
    samples=singles,
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 2.5, "float64": 2.0},
)
def elu(x: Tensor, /, alpha: float = 1.0, *, out: Tensor | None = None) -> Tensor:
    """x where x >= 0, else alpha * (exp(x) - 1), elementwise.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    alpha
        Scale below 0, taken in the dtype of the computation.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32; at most 2.5 ULP.
    """
    return _with_parameters("elu", elu_value, x, (alpha,), out)


@operator("hard_sigmoid", kernels=(hard_sigmoid_value,))
def hard_sigmoid(x: Tensor, /, alpha: float = 0.2, beta: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """max(0, min(1, alpha * x + beta)), elementwise; NaN passes.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    alpha, beta
        Slope and offset, taken in the dtype of the computation.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32. Product and sum are rounded to float32 one after the
        other, on every device.
    """
    return _with_parameters("hard_sigmoid", hard_sigmoid_value, x, (alpha, beta), out)
