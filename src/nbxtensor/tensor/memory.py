"""Questions about the memory behind tensors: may it be written, do two tensors share it."""

from typing import TYPE_CHECKING, Any

from nbxtensor.base import shapes
from nbxtensor.base.errors import ArgumentError
from nbxtensor.tensor.dispatch import table

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor


class ForeignBuffer:
    """Memory that someone else allocated; `owner` keeps it alive.

    Attributes
    ----------
    owner
        The object (a NumPy array) whose life ends with the last tensor on this buffer.
    readonly
        Whether the memory must not be written.
    """

    __slots__ = ("nbytes", "owner", "ptr", "readonly")

    def __init__(self, owner: Any, ptr: int, nbytes: int, readonly: bool) -> None:
        self.owner = owner
        self.ptr = ptr
        self.nbytes = nbytes
        self.readonly = readonly


def check_writable(x: "Tensor", function: str) -> None:
    """Raise unless the elements of `x` may be written and lie apart from each other."""
    if x.readonly:
        raise ArgumentError(function, "the tensor is read-only", got=f"shape {x.shape}", mend="write to x.copy()")
    if not x.is_contiguous and shapes.may_overlap_itself(x.shape, x.strides):
        raise ArgumentError(
            function,
            "elements of the tensor share memory, so it cannot be written",
            got=f"shape {x.shape}, strides {x.strides}",
            mend="write to x.copy()",
        )


def span(x: "Tensor") -> tuple[int, int]:
    """First byte and one past the last byte that the elements of `x` lie in."""
    first = x.ptr
    if x.is_contiguous:
        return first, first + x.nbytes
    low, high = shapes.extent(x.shape, x.strides)
    return first + low * x.dtype.itemsize, first + high * x.dtype.itemsize


def may_share_memory(a: "Tensor", b: "Tensor") -> bool:
    """Whether the ranges of memory of two tensors overlap."""
    if a.device is not b.device:
        return False
    if a.buffer is not b.buffer and type(a.buffer) is not ForeignBuffer and type(b.buffer) is not ForeignBuffer:
        return False  # two allocations of ours
    a_low, a_high = span(a)
    b_low, b_high = span(b)
    return a_low < b_high and b_low < a_high


def same_elements(a: "Tensor", b: "Tensor") -> bool:
    """Whether two tensors are one view: every index names the same memory in both."""
    return a.shape == b.shape and a.strides == b.strides and a.dtype is b.dtype and a.ptr == b.ptr


def separate(source: "Tensor", target: "Tensor") -> "Tensor":
    """`source`, copied first if writing to `target` in any order could change elements of it not yet read."""
    if same_elements(source, target) or not may_share_memory(source, target):
        return source
    return table["copy"](source)
