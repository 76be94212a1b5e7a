"""``x[key]`` and ``x[key] = value``.

Integers, slices, ``...`` and None give views. Integer arrays and boolean masks give copies, with NumPy's rule for where
the indexed axes end up: in place if the arrays and integers stand side by side in the key, else in front.
"""

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from nbxtensor.base import dtypes, shapes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import IndexingError, ShapeError
from nbxtensor.base.promotion import cast_scalar, python_scalar
from nbxtensor.tensor import gather, host
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.memory import check_writable, same_elements, separate
from nbxtensor.tensor.operators import Operators

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor

_ALLOWED = "integers, slices, ..., None, integer arrays, boolean masks"


class Selection(NamedTuple):
    """A key taken apart.

    Attributes
    ----------
    view
        The tensor after the basic part of the key, with every axis that an array indexes still whole.
    arrays
        Axis of `view` -> index array or mask (a tensor, or a NumPy array where the key had one or a list); a mask of n
        axes stands at the first of them.
    in_front
        Whether the indexed axes go to the front of the result.
    """

    view: "Tensor"
    arrays: dict[int, Any]
    in_front: bool


def getitem(x: "Tensor", key: Any) -> "Tensor":
    """``x[key]``."""
    if type(key) is int and x.shape:
        return _row(x, key)
    if type(key) is slice and x.shape:
        return _slice(x, key)
    selection = select(x, key)
    return gather.gather(*selection) if selection.arrays else selection.view


def _row(x: "Tensor", index: int) -> "Tensor":
    return x.as_view(x.shape[1:], x.strides[1:], x.offset + _wrap(index, x.shape[0], 0) * x.strides[0])


def _slice(x: "Tensor", key: slice) -> "Tensor":
    try:
        start, size, stride = shapes.slice_axis(x.shape[0], x.strides[0], key)
    except (TypeError, ValueError) as error:
        raise IndexingError("x[...]", f"not a slice: {error}", got=key) from None
    return x.as_view((size, *x.shape[1:]), (stride, *x.strides[1:]), x.offset + start)


def _wrap(index: int, n: int, axis: int) -> int:
    if not -n <= index < n:
        raise IndexingError(
            "x[...]",
            f"the index is out of bounds for axis {axis} of size {n}",
            got=index,
            allowed=f"{-n} to {n - 1}" if n else "nothing: the axis is empty",
        )
    return index + n if index < 0 else index


def _array(part: Any) -> Any:
    """`part` as an index array if it is one: a tensor or a NumPy array of ints or bools with at least one axis."""
    given: Any = part
    if host.is_list(part):
        found: Any = host.array_of(given, "x[...]")
        found = found if found.size else found.astype(np.int64)
    elif host.is_array(part):
        found = given.astype(given.dtype.newbyteorder("="), copy=False)
    elif isinstance(part, Operators):
        found = given
    else:
        return None
    dtype: DType | None = dtypes.of_numpy(found.dtype) if host.is_array(found) else found.dtype
    if dtype is None or dtype.is_float:
        raise IndexingError("x[...]", "an index array has integers or bools", got=str(found.dtype), allowed=_ALLOWED)
    if not found.shape and not dtype.is_bool:
        return None  # used as an integer
    return found


def select(x: "Tensor", key: Any) -> Selection:
    """Apply the basic part of `key` and find its arrays."""
    parts: tuple[Any, ...] = cast("Any", key) if isinstance(key, tuple) else (key,)
    found = [None if part is None or part is Ellipsis or type(part) is slice else _array(part) for part in parts]
    used = sum(
        0 if part is None or part is Ellipsis else array.ndim if array is not None and _is_mask(array) else 1
        for part, array in zip(parts, found, strict=True)
    )
    ellipses = sum(part is Ellipsis for part in parts)
    if ellipses > 1:
        raise IndexingError("x[...]", "only one ellipsis is possible", got=f"{ellipses} of them")
    if used > len(x.shape):
        raise IndexingError("x[...]", f"too many indices for shape {x.shape}", got=used)
    shape: list[int] = []
    strides: list[int] = []
    offset = x.offset
    axis = 0
    arrays: dict[int, Any] = {}
    advanced: list[int] = []  # positions in the key of arrays and integers
    for position, (part, array) in enumerate(zip(parts, found, strict=True)):
        if part is None:
            shape.append(1)
            strides.append(1)
        elif part is Ellipsis:
            stop = axis + len(x.shape) - used
            shape += x.shape[axis:stop]
            strides += x.strides[axis:stop]
            axis = stop
        elif array is not None:
            count = array.ndim if _is_mask(array) else 1
            if _is_mask(array) and tuple(array.shape) != x.shape[axis : axis + count]:
                raise IndexingError(
                    "x[...]",
                    "a mask has the shape of the axes it selects from",
                    got=tuple(array.shape),
                    allowed=str(x.shape[axis : axis + count]),
                )
            if not count:
                raise IndexingError("x[...]", "a single bool is not an index", got=str(part), allowed=_ALLOWED)
            arrays[len(shape)] = array
            advanced.append(position)
            shape += x.shape[axis : axis + count]
            strides += x.strides[axis : axis + count]
            axis += count
        elif type(part) is slice:
            try:
                start, size, stride = shapes.slice_axis(x.shape[axis], x.strides[axis], part)
            except (TypeError, ValueError) as error:
                raise IndexingError("x[...]", f"not a slice: {error}", got=part) from None
            offset += start
            shape.append(size)
            strides.append(stride)
            axis += 1
        else:
            offset += _wrap(_integer(part), x.shape[axis], axis) * x.strides[axis]
            advanced.append(position)
            axis += 1
    view = x.as_view((*shape, *x.shape[axis:]), (*strides, *x.strides[axis:]), offset)
    return Selection(view, arrays, bool(arrays) and advanced[-1] - advanced[0] >= len(advanced))


def _is_mask(array: Any) -> bool:
    return dtypes.dtype(array.dtype).is_bool


def _integer(part: Any) -> int:
    if type(part) is bool or type(part) is np.bool_:
        raise IndexingError("x[...]", "a single bool is not an index", got=str(part), allowed=_ALLOWED)
    try:
        return operator.index(part)
    except TypeError:
        raise IndexingError("x[...]", "not an index", got=repr(part), allowed=_ALLOWED) from None


def setitem(x: "Tensor", key: Any, value: Any) -> None:
    """``x[key] = value``: `value` is broadcast and converted to the dtype of `x`."""
    function = "x[...] = value"
    view, arrays, _ = select(x, key)
    check_writable(x, function)
    scalar = python_scalar(value)
    source: Any = cast_scalar(scalar, x.dtype, function) if scalar is not None else gather.operand(value, x, function)
    if arrays:
        source = _masked(view, arrays, source, function)
    elif scalar is None:
        source = _fit(source, view.shape, function)
        if same_elements(source, view):
            return
        source = separate(source, view)
    if math.prod(view.shape):
        table["copy_into"](view, source)


def _fit(source: "Tensor", shape: tuple[int, ...], function: str) -> "Tensor":
    """`source` broadcast to `shape`; surplus leading axes of size 1 go, as in NumPy."""
    extra = len(source.shape) - len(shape)
    if extra > 0 and all(n == 1 for n in source.shape[:extra]):
        source = source.as_view(source.shape[extra:], source.strides[extra:], source.offset)
    strides = shapes.broadcast_strides(source.shape, source.strides, shape, function)
    return source.as_view(shape, strides, source.offset)


def _masked(view: "Tensor", arrays: dict[int, Any], source: Any, function: str) -> "Tensor":
    """What `view` holds after ``source`` was assigned where one mask is set."""
    (axis, array), *more = arrays.items()
    if more or not _is_mask(array):
        raise IndexingError(
            function,
            "assigning through integer arrays is not supported",
            allowed="integers, slices, ..., None, one boolean mask",
            mend="assign slice by slice, or make a mask and use nbx.where(mask, values, x)",
        )
    mask = gather.as_tensor(array, view)
    single: bool = not hasattr(source, "shape") or math.prod(source.shape) == 1
    if not single:
        raise ShapeError(
            function,
            "only one value can be assigned where a mask is set",
            got=source.shape,
            mend="use nbx.where(mask, values, x) with values of the shape of x",
        )
    if hasattr(source, "shape"):
        source = source.reshape(())
        source = source if source.dtype is view.dtype else table["astype"](source, view.dtype)
    lead, tail = view.shape[:axis], view.shape[axis + len(mask.shape) :]
    mask = mask.reshape((1,) * len(lead) + mask.shape + (1,) * len(tail))
    return table["where"](mask, source, view)
