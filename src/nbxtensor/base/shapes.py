"""Shape and stride rules as pure functions. Strides count elements, never bytes; shapes are tuples of ints."""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

from nbxtensor.base.errors import AxisError, ShapeError
from nbxtensor.base.text import counted

Ints: TypeAlias = tuple[int, ...]

MAX_NDIM = 64
"""Largest number of axes a tensor may have (NumPy's limit)."""
MAX_SIZE = 2**63 - 1


def as_ints(value: Any, function: str) -> Ints:
    """`value` (an int or a sequence of ints) as a tuple of ints of any sign."""
    try:
        return (operator.index(value),)
    except TypeError:
        pass
    try:
        return tuple(map(operator.index, value))
    except TypeError:
        raise ShapeError(function, "a shape is an int or a sequence of ints", got=repr(value)) from None


def as_shape(value: Any, function: str) -> Ints:
    """`value` (an int or a sequence of ints) as a checked shape."""
    sizes = as_ints(value, function)
    if any(n < 0 for n in sizes):
        raise ShapeError(function, "a size is negative", got=sizes)
    if len(sizes) > MAX_NDIM:
        raise ShapeError(function, "too many axes", got=len(sizes), allowed=f"at most {MAX_NDIM}")
    if math.prod(n for n in sizes if n) > MAX_SIZE:
        raise ShapeError(function, "the shape has too many elements", got=sizes, allowed="fewer than 2^63")
    return sizes


def contiguous_strides(shape: Sequence[int]) -> Ints:
    """Row-major strides of `shape`."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements in row-major order lie one after the other; strides of axes of size 1 do not count."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n != 1:
            if stride != step:
                return 0 in shape
            step *= n
    return True


def extent(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Lowest offset and one past the highest offset that a view touches, relative to its first element."""
    if 0 in shape:
        return 0, 0
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1


def may_overlap_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of a view might share memory (never False when they do)."""
    if 0 in shape:
        return False
    reach = 0
    for stride, n in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def broadcast_shapes(*shapes: Sequence[int], function: str = "broadcast_shapes") -> Ints:
    """The common shape of `shapes` by the standard's broadcasting rule.

    Raises
    ------
    ShapeError
        If two sizes of one axis differ and neither is 1.
    """
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return tuple(shapes[0])
    ndim = max((len(shape) for shape in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for axis, n in enumerate(shape, ndim - len(shape)):
            if n != 1 and n != result[axis]:
                if result[axis] != 1:
                    raise ShapeError(
                        function,
                        "shapes do not broadcast",
                        got=" and ".join(str(tuple(s)) for s in shapes),
                        allowed="sizes that are equal or 1 on each axis, counted from the last",
                    )
                result[axis] = n
    return tuple(result)


def broadcast_strides(
    shape: Sequence[int], strides: Sequence[int], target: Sequence[int], function: str = "broadcast_to"
) -> Ints:
    """Strides of a view of `shape` broadcast to `target`: 0 on every axis that is repeated."""
    lead = len(target) - len(shape)
    fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, target[lead:], strict=True))
    if not fits:
        raise ShapeError(function, f"the shape does not broadcast to {tuple(target)}", got=tuple(shape))
    kept = (0 if n == 1 and m != 1 else s for n, s, m in zip(shape, strides, target[lead:], strict=True))
    return (0,) * lead + tuple(kept)


def infer_shape(size: int, shape: Sequence[int], function: str = "reshape") -> Ints:
    """`shape` with its one -1, if any, replaced so that it holds `size` elements."""
    unknown = [axis for axis, n in enumerate(shape) if n == -1]
    known = math.prod(n for n in shape if n != -1)
    if len(unknown) > 1 or any(n < -1 for n in shape):
        raise ShapeError(function, "bad sizes", got=tuple(shape), allowed="sizes from 0, and at most one -1")
    if len(unknown) == 1 and known and size % known == 0:
        shape = [size // known if n == -1 else n for n in shape]
    elif unknown or known != size:
        raise ShapeError(function, f"cannot hold {counted(size, 'element')}", got=tuple(shape))
    return tuple(shape)


def reshape_strides(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> Ints | None:
    """Strides that show the same elements in `new_shape`, or None where only a copy can (ATen's view rule).

    Axes of the old shape that lie one after the other in memory form a block; the new sizes must divide block by block.
    """
    if 0 in shape:
        return contiguous_strides(new_shape)
    result = [1] * len(new_shape)
    axis = len(new_shape) - 1
    block = 1
    base = strides[-1] if shape else 1
    for old in reversed(range(len(shape))):
        block *= shape[old]
        if old and (shape[old - 1] == 1 or strides[old - 1] == block * base):
            continue
        filled = 1
        while axis >= 0 and (filled < block or new_shape[axis] == 1):
            result[axis] = filled * base
            filled *= new_shape[axis]
            axis -= 1
        if filled != block:
            return None
        if old:
            base = strides[old - 1]
            block = 1
    while axis >= 0:  # only reached for shape (): the new sizes are all 1
        result[axis] = 1
        axis -= 1
    return tuple(result)


def normalize_axis(axis: Any, ndim: int, function: str) -> int:
    """`axis` counted from the front; negative axes count from the back."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise AxisError(function, "an axis is an int", got=repr(axis)) from None
    if not -ndim <= index < ndim:
        allowed = f"{-ndim} to {ndim - 1}" if ndim else "no axis: the tensor has 0 dimensions"
        raise AxisError(function, "the axis is out of range", got=index, allowed=allowed)
    return index + ndim if index < 0 else index


def normalize_axes(axes: Any, ndim: int, function: str) -> Ints:
    """`axes` (None for all, an int, or a sequence of ints) counted from the front, in the order given."""
    if axes is None:
        return tuple(range(ndim))
    try:
        given = (operator.index(axes),)
    except TypeError:
        try:
            given = tuple(cast("Iterable[Any]", axes))
        except TypeError:
            raise AxisError(function, "an axis is an int", got=repr(axes)) from None
    result = tuple(normalize_axis(axis, ndim, function) for axis in given)
    if len(set(result)) != len(result):
        raise AxisError(function, "an axis is given twice", got=axes)
    return result


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> Ints:
    """`shape` after a reduction over `axes` (counted from the front)."""
    if keepdims:
        return tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def merge_dims(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[Ints, tuple[Ints, ...]]:
    """The fewest axes that visit the same elements in the same order, for several operands at once.

    Axes of size 1 go; neighbours that are one axis for every operand become one.

    Parameters
    ----------
    shape
        The common (broadcast) shape.
    strides
        Strides of each operand for that shape.

    Returns
    -------
    tuple
        The merged shape, at least one axis, and the strides of each operand. No elements: ``(0,)`` and strides 1.
    """
    if 0 in shape:
        return (0,), ((1,),) * len(strides)
    sizes: list[int] = []
    columns: list[list[int]] = []  # per kept axis: the stride of each operand
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        column = [s[axis] for s in strides]
        if sizes and all(outer == inner * n for outer, inner in zip(columns[-1], column, strict=True)):
            sizes[-1] *= n
            columns[-1] = column
        else:
            sizes.append(n)
            columns.append(column)
    if not sizes:
        return (1,), ((1,),) * len(strides)
    return tuple(sizes), tuple(tuple(column[i] for column in columns) for i in range(len(strides)))


def slice_axis(n: int, stride: int, key: slice) -> tuple[int, int, int]:
    """Offset, size and stride of ``axis[key]`` for an axis of size `n`, as Python slices a sequence."""
    start, stop, step = key.indices(n)
    size = len(range(start, stop, step))
    return (start * stride if size else 0), size, stride * step
