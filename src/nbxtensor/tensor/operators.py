"""Python's operators on tensors: each looks up one name of the operator table."""

from typing import TYPE_CHECKING, Any

import numpy as np

from nbxtensor.base import shapes
from nbxtensor.base.errors import ArgumentError, DTypeError, ShapeError
from nbxtensor.base.promotion import promote, promote_scalar, python_scalar
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.memory import check_writable, separate

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor


def _operand(name: str, value: Any) -> Any:
    """`value` as the table takes it: a tensor or a plain Python scalar; NotImplemented for foreign types."""
    if isinstance(value, Operators):
        return value
    scalar = python_scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, np.ndarray):
        raise ArgumentError(
            f"nbx.{name}",
            "a NumPy array is not a tensor",
            got="numpy.ndarray",
            allowed="tensors and Python scalars",
            mend="convert it with nbx.asarray(array, device=x.device)",
        )
    return NotImplemented


def _binary(name: str, x: Any, y: Any) -> Any:
    if type(y) is not float and type(y) is not int:
        y = _operand(name, y)
        if y is NotImplemented:
            return NotImplemented
    return table[name](x, y)


def _reflected(name: str, x: Any, y: Any) -> Any:
    scalar = _operand(name, y)
    return NotImplemented if scalar is NotImplemented else table[name](scalar, x)


def _in_place(name: str, x: Any, y: Any) -> Any:
    y = _operand(name, y)
    if y is NotImplemented:
        return NotImplemented
    function = f"nbx.{name}"
    check_writable(x, function)
    if isinstance(y, Operators):
        other: Any = y
        dtype = promote(x.dtype, other.dtype, function)
        shape = shapes.broadcast_shapes(x.shape, other.shape, function=function)
        if shape != x.shape:
            raise ShapeError(function, f"the result of shape {shape} does not fit in place", got=x.shape)
        y = separate(other, x)
    else:
        dtype = promote_scalar(x.dtype, y, function)
    if name == "divide" and not dtype.is_float:
        dtype = promote_scalar(dtype, 1.0, function)
    if dtype is not x.dtype:
        raise DTypeError(
            function,
            f"the result in {dtype.name} does not fit in place",
            got=x.dtype.name,
            mend="write x = x op y, or convert the operand with astype",
        )
    table[name](x, y, out=x)
    return x


class Operators:
    """Operators of `Tensor`. Operands: tensors on the same device and scalars, on either side."""

    __slots__ = ()
    __hash__ = object.__hash__  # by identity, although == compares elements

    def __add__(self, other: Any, /) -> "Tensor":
        return _binary("add", self, other)

    def __radd__(self, other: Any, /) -> "Tensor":
        return _reflected("add", self, other)

    def __iadd__(self, other: Any, /) -> "Tensor":
        return _in_place("add", self, other)

    def __sub__(self, other: Any, /) -> "Tensor":
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any, /) -> "Tensor":
        return _reflected("subtract", self, other)

    def __isub__(self, other: Any, /) -> "Tensor":
        return _in_place("subtract", self, other)

    def __mul__(self, other: Any, /) -> "Tensor":
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any, /) -> "Tensor":
        return _reflected("multiply", self, other)

    def __imul__(self, other: Any, /) -> "Tensor":
        return _in_place("multiply", self, other)

    def __truediv__(self, other: Any, /) -> "Tensor":
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any, /) -> "Tensor":
        return _reflected("divide", self, other)

    def __itruediv__(self, other: Any, /) -> "Tensor":
        return _in_place("divide", self, other)

    def __floordiv__(self, other: Any, /) -> "Tensor":
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any, /) -> "Tensor":
        return _reflected("floor_divide", self, other)

    def __ifloordiv__(self, other: Any, /) -> "Tensor":
        return _in_place("floor_divide", self, other)

    def __mod__(self, other: Any, /) -> "Tensor":
        return _binary("remainder", self, other)

    def __rmod__(self, other: Any, /) -> "Tensor":
        return _reflected("remainder", self, other)

    def __imod__(self, other: Any, /) -> "Tensor":
        return _in_place("remainder", self, other)

    def __divmod__(self, other: Any, /) -> tuple["Tensor", "Tensor"]:
        return _binary("floor_divide", self, other), _binary("remainder", self, other)

    def __rdivmod__(self, other: Any, /) -> tuple["Tensor", "Tensor"]:
        return _reflected("floor_divide", self, other), _reflected("remainder", self, other)

    def __pow__(self, other: Any, /) -> "Tensor":
        return _binary("pow", self, other)

    def __rpow__(self, other: Any, /) -> "Tensor":
        return _reflected("pow", self, other)

    def __ipow__(self, other: Any, /) -> "Tensor":
        return _in_place("pow", self, other)

    def __matmul__(self, other: Any, /) -> "Tensor":
        return table["matmul"](self, other) if isinstance(other, Operators) else self._no_matmul(other)

    def __rmatmul__(self, other: Any, /) -> "Tensor":
        return self._no_matmul(other)

    def __imatmul__(self, other: Any, /) -> "Tensor":
        x: Any = self
        if not isinstance(other, Operators):
            return self._no_matmul(other)
        check_writable(x, "nbx.matmul")
        result = table["matmul"](x, other)
        if result.shape != x.shape:
            raise ShapeError("nbx.matmul", f"the result of shape {result.shape} does not fit in place", got=x.shape)
        if result.dtype is not x.dtype:
            raise DTypeError("nbx.matmul", f"the result in {result.dtype} does not fit in place", got=x.dtype.name)
        table["copy_into"](x, result)
        return x

    @staticmethod
    def _no_matmul(other: Any) -> Any:
        if isinstance(other, np.ndarray):
            _operand("matmul", other)
        return NotImplemented

    def __and__(self, other: Any, /) -> "Tensor":
        return _binary("bitwise_and", self, other)

    def __rand__(self, other: Any, /) -> "Tensor":
        return _reflected("bitwise_and", self, other)

    def __iand__(self, other: Any, /) -> "Tensor":
        return _in_place("bitwise_and", self, other)

    def __or__(self, other: Any, /) -> "Tensor":
        return _binary("bitwise_or", self, other)

    def __ror__(self, other: Any, /) -> "Tensor":
        return _reflected("bitwise_or", self, other)

    def __ior__(self, other: Any, /) -> "Tensor":
        return _in_place("bitwise_or", self, other)

    def __xor__(self, other: Any, /) -> "Tensor":
        return _binary("bitwise_xor", self, other)

    def __rxor__(self, other: Any, /) -> "Tensor":
        return _reflected("bitwise_xor", self, other)

    def __ixor__(self, other: Any, /) -> "Tensor":
        return _in_place("bitwise_xor", self, other)

    def __lshift__(self, other: Any, /) -> "Tensor":
        return _binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any, /) -> "Tensor":
        return _reflected("bitwise_left_shift", self, other)

    def __ilshift__(self, other: Any, /) -> "Tensor":
        return _in_place("bitwise_left_shift", self, other)

    def __rshift__(self, other: Any, /) -> "Tensor":
        return _binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any, /) -> "Tensor":
        return _reflected("bitwise_right_shift", self, other)

    def __irshift__(self, other: Any, /) -> "Tensor":
        return _in_place("bitwise_right_shift", self, other)

    def __eq__(self, other: Any, /) -> "Tensor":  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("equal", self, other)

    def __ne__(self, other: Any, /) -> "Tensor":  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any, /) -> "Tensor":
        return _binary("less", self, other)

    def __le__(self, other: Any, /) -> "Tensor":
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any, /) -> "Tensor":
        return _binary("greater", self, other)

    def __ge__(self, other: Any, /) -> "Tensor":
        return _binary("greater_equal", self, other)

    def __neg__(self) -> "Tensor":
        return table["negative"](self)

    def __pos__(self) -> "Tensor":
        return table["positive"](self)

    def __abs__(self) -> "Tensor":
        return table["abs"](self)

    def __invert__(self) -> "Tensor":
        return table["bitwise_invert"](self)

    def __contains__(self, value: Any, /) -> bool:
        return bool(table["any"](_binary("equal", self, value)))
