"""Axes as nodes give them."""

from collections.abc import Sequence

from nbxtensor.base.errors import ModelError


def normalized_axis(axis: int, ndim: int, *, inclusive: bool = False) -> int:
    """`axis` counted from the front; with `inclusive`, one past the last axis is allowed."""
    if not -ndim <= axis < ndim + inclusive:
        raise ModelError("onnx", f"axis {axis} is out of range for rank {ndim}")
    return axis % ndim if axis < 0 else axis


def normalized_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """All of `axes` counted from the front, in the order given, each once."""
    found = tuple(normalized_axis(axis, ndim) for axis in axes)
    if len(set(found)) != len(found):
        raise ModelError("onnx", f"an axis is given twice: {tuple(axes)}")
    return found
