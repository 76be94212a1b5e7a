"""Questions about the memory behind tensors: may it be written, do two tensors share it."""

from typing import TYPE_CHECKING, Any

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
    if x.form.overlaps:
        raise ArgumentError(
            function,
            "elements of the tensor share memory, so it cannot be written",
            got=f"shape {x.shape}, strides {x.strides}",
            mend="write to x.copy()",
        )


def may_share_memory(a: "Tensor", b: "Tensor") -> bool:
    """Whether the ranges of memory of two tensors overlap."""
    p, q = a.form, b.form
    return p.device is q.device and a.ptr + p.low < b.ptr + q.high and b.ptr + q.low < a.ptr + p.high


def same_elements(a: "Tensor", b: "Tensor") -> bool:
    """Whether two tensors are one view: every index names the same memory in both."""
    return a.ptr == b.ptr and a.form is b.form


def apart(source: "Tensor", target: "Tensor") -> bool:
    """Whether `source` may be read while `target` is written in any order: no shared memory, or one view."""
    return same_elements(source, target) or not may_share_memory(source, target)


def separate(source: "Tensor", target: "Tensor") -> "Tensor":
    """`source`, copied first if writing to `target` in any order could change elements of it not yet read."""
    return source if apart(source, target) else table["copy"](source)
