"""Views: other shapes and strides on the same buffer. Nothing here copies, but `reshape` where no view exists."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbxtensor.base import shapes
from nbxtensor.base.errors import ArgumentError, AxisError, ShapeError
from nbxtensor.base.text import counted
from nbxtensor.tensor.check import check_tensor, check_tensors
from nbxtensor.tensor.dispatch import table

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor


def reshape(x: "Tensor", shape: int | Sequence[int], *, copy: bool | None = None) -> "Tensor":
    """The elements in another shape, in row-major order.

    Parameters
    ----------
    x
        Any tensor.
    shape
        The new shape; one size may be -1 and follows from the others.
    copy
        None: a view where the layout allows one, else a copy. True: always a copy. False: never.

    Raises
    ------
    ShapeError
        If the shape holds another number of elements.
    ArgumentError
        If ``copy=False`` and no view exists.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.reshape(nbx.asarray([1, 2, 3, 4, 5, 6]), (2, -1))
    Tensor([[1, 2, 3],
            [4, 5, 6]], dtype=int64, device='cpu')
    """
    check_tensor(x, "nbx.reshape")
    sizes = shapes.as_ints(shape, "nbx.reshape")
    new_shape = shapes.infer_shape(math.prod(x.shape), sizes, "nbx.reshape")
    if copy:
        return reshape(table["copy"](x), new_shape)
    if x.is_contiguous:
        return x.as_view(new_shape, shapes.contiguous_strides(new_shape), x.offset)
    strides = shapes.reshape_strides(x.shape, x.strides, new_shape)
    if strides is not None:
        return x.as_view(new_shape, strides, x.offset)
    if copy is False:
        raise ArgumentError(
            "nbx.reshape",
            f"no view shows shape {x.shape} with strides {x.strides} as {new_shape}",
            got="copy=False",
            allowed="copy=None or copy=True",
        )
    return reshape(table["copy"](x), new_shape)


def permute_dims(x: "Tensor", axes: int | Sequence[int]) -> "Tensor":
    """A view with the axes in another order; `axes` names every axis once."""
    check_tensor(x, "nbx.permute_dims")
    order = shapes.normalize_axes(axes, len(x.shape), "nbx.permute_dims")
    if len(order) != len(x.shape):
        raise AxisError(
            "nbx.permute_dims", "every axis must be named once", got=axes, allowed=counted(x.ndim, "axis", "axes")
        )
    return x.as_view(tuple(x.shape[a] for a in order), tuple(x.strides[a] for a in order), x.offset)


def transpose(x: "Tensor") -> "Tensor":
    """A view of a matrix with its two axes exchanged."""
    if len(x.shape) != 2:
        raise ShapeError("T", "only for two axes", got=x.shape, mend="use mT for stacks of matrices, or permute_dims")
    return x.as_view(x.shape[::-1], x.strides[::-1], x.offset)


def matrix_transpose(x: "Tensor") -> "Tensor":
    """A view with the last two axes exchanged."""
    check_tensor(x, "nbx.matrix_transpose")
    if len(x.shape) < 2:
        raise ShapeError("nbx.matrix_transpose", "needs at least two axes", got=x.shape)
    shape, strides = x.shape, x.strides
    return x.as_view((*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2]), x.offset)


def moveaxis(x: "Tensor", source: int | Sequence[int], destination: int | Sequence[int]) -> "Tensor":
    """A view with the axes `source` moved to the places `destination`; the others keep their order."""
    check_tensor(x, "nbx.moveaxis")
    origin = shapes.normalize_axes(source, x.ndim, "nbx.moveaxis")
    goal = shapes.normalize_axes(destination, x.ndim, "nbx.moveaxis")
    if len(origin) != len(goal):
        raise AxisError("nbx.moveaxis", "as many places as axes are needed", got=f"{source} to {destination}")
    order = [axis for axis in range(x.ndim) if axis not in origin]
    for place, axis in sorted(zip(goal, origin, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


def broadcast_to(x: "Tensor", shape: int | Sequence[int]) -> "Tensor":
    """A view of a larger shape in which axes are repeated without being copied."""
    check_tensor(x, "nbx.broadcast_to")
    target = shapes.as_shape(shape, "nbx.broadcast_to")
    strides = shapes.broadcast_strides(x.shape, x.strides, target, "nbx.broadcast_to")
    return x.as_view(target, strides, x.offset)


def broadcast_arrays(*tensors: "Tensor") -> list["Tensor"]:
    """Views of all `tensors` in their common shape."""
    given = check_tensors(tensors, "nbx.broadcast_arrays")
    shape = shapes.broadcast_shapes(*(x.shape for x in given), function="nbx.broadcast_arrays")
    return [broadcast_to(x, shape) for x in tensors]


def expand_dims(x: "Tensor", axis: int | Sequence[int] = 0) -> "Tensor":
    """A view with axes of size 1 put in so that they stand at `axis` in the result."""
    check_tensor(x, "nbx.expand_dims")
    count = len(axis) if isinstance(axis, Sequence) else 1
    places = shapes.normalize_axes(axis, len(x.shape) + count, "nbx.expand_dims")
    shape, strides = list(x.shape), list(x.strides)
    for place in sorted(places):
        step = shape[place] * strides[place] if place < len(shape) else 1
        shape.insert(place, 1)
        strides.insert(place, step)
    return x.as_view(tuple(shape), tuple(strides), x.offset)


def squeeze(x: "Tensor", axis: int | Sequence[int] | None = None) -> "Tensor":
    """A view without the axes `axis`, which must be of size 1; None: without all axes of size 1."""
    check_tensor(x, "nbx.squeeze")
    if axis is None:
        gone = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        gone = shapes.normalize_axes(axis, len(x.shape), "nbx.squeeze")
        for a in gone:
            if x.shape[a] != 1:
                raise ShapeError("nbx.squeeze", f"axis {a} does not have size 1", got=x.shape)
    kept = [a for a in range(len(x.shape)) if a not in gone]
    return x.as_view(tuple(x.shape[a] for a in kept), tuple(x.strides[a] for a in kept), x.offset)


def flip(x: "Tensor", *, axis: int | Sequence[int] | None = None) -> "Tensor":
    """A view with the order along `axis` reversed; None: along every axis."""
    check_tensor(x, "nbx.flip")
    axes = shapes.normalize_axes(axis, len(x.shape), "nbx.flip")
    strides, offset = list(x.strides), x.offset
    for a in axes:
        offset += max(x.shape[a] - 1, 0) * strides[a]
        strides[a] = -strides[a]
    return x.as_view(x.shape, tuple(strides), offset)


def unstack(x: "Tensor", /, *, axis: int = 0) -> tuple["Tensor", ...]:
    """The views along `axis`, one per index."""
    check_tensor(x, "nbx.unstack")
    return tuple(moveaxis(x, axis, 0))
