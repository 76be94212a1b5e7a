"""Python's operators on tensors: each looks up one name of the operator table."""

from collections.abc import Callable
from types import FunctionType
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


def _named(method: FunctionType, name: str) -> Callable[[Any, Any], Any]:
    """`method` under the name that tracebacks and the error of a full memory show."""
    method.__name__ = method.__qualname__ = name
    method.__code__ = method.__code__.replace(co_name=name, co_qualname=name)
    return method


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(x: Any, y: Any, /) -> Any:
        if not isinstance(y, Operators) and type(y) is not float and type(y) is not int:
            y = _operand(name, y)
            if y is NotImplemented:
                return NotImplemented
        return table[name](x, y)

    return _named(method, name)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    def method(x: Any, y: Any, /) -> Any:
        scalar = _operand(name, y)
        return NotImplemented if scalar is NotImplemented else table[name](scalar, x)

    return _named(method, name)


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def method(x: Any, y: Any, /) -> Any:
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

    return _named(method, name)


class Operators:
    """Operators of `Tensor`. Operands: tensors on the same device and scalars, on either side."""

    __slots__ = ()
    __hash__ = object.__hash__  # by identity, although == compares elements

    __add__ = _binary("add")
    __radd__ = _reflected("add")
    __iadd__ = _in_place("add")
    __sub__ = _binary("subtract")
    __rsub__ = _reflected("subtract")
    __isub__ = _in_place("subtract")
    __mul__ = _binary("multiply")
    __rmul__ = _reflected("multiply")
    __imul__ = _in_place("multiply")
    __truediv__ = _binary("divide")
    __rtruediv__ = _reflected("divide")
    __itruediv__ = _in_place("divide")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __ifloordiv__ = _in_place("floor_divide")
    __mod__ = _binary("remainder")
    __rmod__ = _reflected("remainder")
    __imod__ = _in_place("remainder")

    def __divmod__(self, other: Any, /) -> tuple["Tensor", "Tensor"]:
        return self // other, self % other

    def __rdivmod__(self, other: Any, /) -> tuple["Tensor", "Tensor"]:
        return other // self, other % self

    __pow__ = _binary("pow")
    __rpow__ = _reflected("pow")
    __ipow__ = _in_place("pow")

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

    __and__ = _binary("bitwise_and")
    __rand__ = _reflected("bitwise_and")
    __iand__ = _in_place("bitwise_and")
    __or__ = _binary("bitwise_or")
    __ror__ = _reflected("bitwise_or")
    __ior__ = _in_place("bitwise_or")
    __xor__ = _binary("bitwise_xor")
    __rxor__ = _reflected("bitwise_xor")
    __ixor__ = _in_place("bitwise_xor")
    __lshift__ = _binary("bitwise_left_shift")
    __rlshift__ = _reflected("bitwise_left_shift")
    __ilshift__ = _in_place("bitwise_left_shift")
    __rshift__ = _binary("bitwise_right_shift")
    __rrshift__ = _reflected("bitwise_right_shift")
    __irshift__ = _in_place("bitwise_right_shift")
    __eq__ = _binary("equal")  # pyright: ignore[reportIncompatibleMethodOverride]
    __ne__ = _binary("not_equal")  # pyright: ignore[reportIncompatibleMethodOverride]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")

    def __neg__(self) -> "Tensor":
        return table["negative"](self)

    def __pos__(self) -> "Tensor":
        return table["positive"](self)

    def __abs__(self) -> "Tensor":
        return table["abs"](self)

    def __invert__(self) -> "Tensor":
        return table["bitwise_invert"](self)

    def __contains__(self, value: Any, /) -> bool:
        return bool(table["any"](self == value))
