"""Comparisons and logic, elementwise: a row each, like `nbxtensor.ops.arithmetic`."""

from typing import Any

import numpy as np

from nbxtensor.base.dtypes import bool_
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.pointwise import Operand, pointwise
from nbxtensor.ops._categories import check_tensor, operands
from nbxtensor.ops._samples import pairs, singles
from nbxtensor.ops.arithmetic import Binary, one, two
from nbxtensor.tensor.tensor import Tensor


@kernel
def equal_value(a, b):
    return a == b


@kernel
def not_equal_value(a, b):
    return a != b


@kernel
def less_value(a, b):
    return a < b


@kernel
def less_equal_value(a, b):
    return a <= b


@kernel
def greater_value(a, b):
    return a > b


@kernel
def greater_equal_value(a, b):
    return a >= b


@kernel
def and_value(a, b):
    return a & b


@kernel
def or_value(a, b):
    return a | b


@kernel
def xor_value(a, b):
    return a ^ b


@kernel
def invert_value(a):
    return ~a


@kernel
def not_value(a):
    return a == 0


@kernel
def left_shift_value(a, b):
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@kernel
def right_shift_value(a, b):
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    if a.dtype.is_int_signed():
        r = a >> tl.where(inside, b, bits - 1)
    else:
        r = tl.where(inside, a >> tl.where(inside, b, 0), 0)
    return r


def _logical(name: str, fn: KernelFunction, word: str, reference: Any) -> Binary:
    def function(x1: Operand, x2: Operand, /, *, out: Tensor | None = None) -> Tensor:
        a, b, _ = operands(name, x1, x2, "any")
        return pointwise(name, fn, (a, b), (bool_, bool_), bool_, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""x1 {word} x2, elementwise, where 0 is false and everything else (NaN too) is true.

    Parameters
    ----------
    x1, x2
        Operands whose shapes broadcast; one of them may be a Python scalar.
    out
        Tensor of the result's shape and dtype bool to write into.

    Returns
    -------
    Tensor
        Of dtype bool.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    """
    return operator(name, kernels=(fn,), reference=reference, samples=pairs)(function)


equal = two("equal", equal_value, "any", "x1 == x2", np.equal, test=True)
not_equal = two("not_equal", not_equal_value, "any", "x1 != x2", np.not_equal, test=True)
less = two("less", less_value, "any", "x1 < x2", np.less, test=True)
less_equal = two("less_equal", less_equal_value, "any", "x1 <= x2", np.less_equal, test=True)
greater = two("greater", greater_value, "any", "x1 > x2", np.greater, test=True)
greater_equal = two("greater_equal", greater_equal_value, "any", "x1 >= x2", np.greater_equal, test=True)
bitwise_and = two("bitwise_and", and_value, "integer or bool", "x1 & x2", np.bitwise_and)
bitwise_or = two("bitwise_or", or_value, "integer or bool", "x1 | x2", np.bitwise_or)
bitwise_xor = two("bitwise_xor", xor_value, "integer or bool", "x1 ^ x2", np.bitwise_xor)
bitwise_invert = one("bitwise_invert", invert_value, "integer or bool", "~x", np.invert)
bitwise_left_shift = two(
    "bitwise_left_shift", left_shift_value, "integer", "x1 << x2; 0 where x2 is not in [0, bits)", np.left_shift
)
bitwise_right_shift = two(
    "bitwise_right_shift",
    right_shift_value,
    "integer",
    "x1 >> x2, with the sign shifted in; a shift outside [0, bits) shifts everything out",
    np.right_shift,
)
logical_and = _logical("logical_and", and_value, "and", np.logical_and)
logical_or = _logical("logical_or", or_value, "or", np.logical_or)
logical_xor = _logical("logical_xor", xor_value, "xor", np.logical_xor)


@operator("logical_not", kernels=(not_value,), reference=np.logical_not, samples=singles)
def logical_not(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """not x, elementwise, where 0 is false and everything else (NaN too) is true.

    Parameters
    ----------
    x
        Operand of any shape and dtype.
    out
        Tensor of the result's shape and dtype bool to write into.

    Returns
    -------
    Tensor
        Of dtype bool.
    """
    check_tensor("logical_not", x)
    return pointwise("logical_not", not_value, (x,), (bool_,), bool_, out)
