"""Indexing by arrays: every form is brought down to one ``take`` of flat indices along one axis."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nbxtensor.base import dtypes, shapes
from nbxtensor.base.errors import IndexingError
from nbxtensor.tensor import host
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.dispatch import table

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor

_FUNCTION = "x[...]"


def as_tensor(array: Any, like: "Tensor") -> "Tensor":
    """A NumPy array as a tensor on the device of `like`; a tensor must be there already."""
    if not host.is_array(array):
        return array
    values: Any = np.ascontiguousarray(array)
    if not host.adoptable(values):
        values = values.astype(values.dtype.newbyteorder("="))
    dtype = dtypes.of_numpy(values.dtype)
    if dtype is None:
        dtype = dtypes.dtype(values.dtype, _FUNCTION)
    cpu = resolve_device("cpu")
    buffer, shape, strides, offset = host.adopt(values.view(dtype.bits_numpy))
    return host.to_device(like.__class__(buffer, shape, strides, offset, dtype, cpu), like.device)


def operand(value: Any, like: "Tensor", function: str) -> "Tensor":
    """The right-hand side of an assignment as a tensor on the device of `like`."""
    if isinstance(value, like.__class__):
        return host.to_device(value, like.device)
    array = host.array_of(value, function)
    if array.dtype == np.float64 and not host.is_array(value):
        array = array.astype(np.float32) if like.dtype is not dtypes.float64 else array
    return as_tensor(array, like)


def gather(view: "Tensor", arrays: dict[int, Any], in_front: bool) -> "Tensor":
    """The elements of `view` that index arrays and masks select, each along the axis it is keyed by."""
    axes = sorted(arrays)
    for axis in reversed(axes):  # from the last, so that merged axes do not move those still to come
        if _dtype(arrays[axis]).is_bool:
            view, arrays[axis] = _flatten_mask(view, axis, arrays[axis])
    shift = 0
    indices: list[Any] = []
    places: list[int] = []
    for axis in axes:
        index, merged = arrays[axis] if isinstance(arrays[axis], tuple) else (arrays[axis], 1)
        indices.append(index)
        places.append(axis - shift)
        shift += merged - 1
    first = 0 if in_front else places[0]
    if len(places) > 1 or in_front:
        rest = [a for a in range(len(view.shape)) if a not in places]
        view = view.permute_dims((*rest[:first], *places, *rest[first:]))
    sizes = view.shape[first : first + len(places)]
    index = _linear(view, indices, sizes)
    lead, tail = view.shape[:first], view.shape[first + len(places) :]
    flat = view.reshape((*lead, math.prod(sizes), *tail))
    result = table["take"](flat, index.reshape((-1,)), axis=first)
    return result.reshape((*lead, *index.shape, *tail))


def _dtype(array: Any) -> dtypes.DType:
    return dtypes.dtype(array.dtype, _FUNCTION)


def _flatten_mask(view: "Tensor", axis: int, mask: Any) -> tuple["Tensor", tuple[Any, int]]:
    """`view` with the axes of `mask` merged into one, and the indices along it where the mask is set."""
    values: np.ndarray[Any, Any] = mask if host.is_array(mask) else host.to_numpy(mask, _FUNCTION)
    count = values.ndim
    shape = view.shape
    merged = view.reshape((*shape[:axis], math.prod(shape[axis : axis + count]), *shape[axis + count :]))
    return merged, (np.flatnonzero(values), count)


def _linear(view: "Tensor", indices: list[Any], sizes: tuple[int, ...]) -> "Tensor":
    """One index into the merged axes, from one index array per axis."""
    checked = [_checked(index, n) for index, n in zip(indices, sizes, strict=True)]
    if all(host.is_array(index) for index in checked):
        shape = shapes.broadcast_shapes(*(index.shape for index in checked), function=_FUNCTION)
        total: Any = np.zeros(shape, np.int64)
        for index, n in zip(checked, sizes, strict=True):
            total = total * n + index
        return as_tensor(total, view)
    result: Any = None
    for index, n in zip(checked, sizes, strict=True):
        index = as_tensor(index, view)
        index = table["where"](table["less"](index, 0), table["add"](index, n), index)
        result = index if result is None else table["add"](table["multiply"](result, n), index)
    return result


def _checked(index: Any, n: int) -> Any:
    """`index` as int64, counted from the front and within bounds where the host can look at it."""
    if not host.is_array(index):
        if not index.device.host_accessible:
            return table["astype"](index, dtypes.int64) if index.dtype is not dtypes.int64 else index
        index = host.to_numpy(index, _FUNCTION)
    values: Any = index.astype(np.int64)
    if values.size:
        low, high = int(values.min()), int(values.max())
        if low < -n or high >= n:
            raise IndexingError(
                _FUNCTION,
                f"an index is out of bounds for an axis of size {n}",
                got=low if low < -n else high,
                allowed=f"{-n} to {n - 1}" if n else "nothing: the axis is empty",
            )
        if low < 0:
            values[values < 0] += n
    return values
