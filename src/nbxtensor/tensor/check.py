"""Is an argument what it should be? Raises the error that says what it is."""

import operator
from typing import TYPE_CHECKING, Any

from nbxtensor.base.errors import ArgumentError, DeviceError
from nbxtensor.device.protocol import Device
from nbxtensor.tensor.operators import Operators

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor


def check_tensor(value: Any, function: str, what: str = "") -> "Tensor":
    """`value`, which must be a tensor; `what` names the argument."""
    if not isinstance(value, Operators):
        raise ArgumentError(
            function,
            f"{what} is not a tensor" if what else "not a tensor",
            got=type(value).__name__,
            allowed="Tensor",
            mend="convert with nbx.asarray",
        )
    return value  # pyright: ignore[reportReturnType]


def check_device(tensor: "Tensor", device: Device, function: str) -> None:
    """Raise unless `tensor` is on `device`, where the other operands are."""
    if tensor.device is not device:
        raise DeviceError(
            function,
            "operands are on different devices",
            got=f"{device.name} and {tensor.device.name}",
            mend="move one of them with to_device",
        )


def check_tensors(values: Any, function: str) -> "list[Tensor]":
    """`values`, which must be a sequence of tensors, as a list."""
    if isinstance(values, Operators) or not hasattr(values, "__iter__"):
        raise ArgumentError(function, "not a sequence of tensors", got=type(values).__name__, allowed="list of tensors")
    return [check_tensor(value, function) for value in values]


def check_count(value: Any, function: str, what: str) -> int:
    """`value`, which must be an int that is not negative."""
    try:
        count = operator.index(value)
    except TypeError:
        raise ArgumentError(function, f"{what} is not an int", got=repr(value), allowed="an int from 0") from None
    if count < 0:
        raise ArgumentError(function, f"{what} is negative", got=count, allowed="an int from 0")
    return count
