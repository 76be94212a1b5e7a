"""Between tensors and host memory: NumPy arrays, Python scalars, copies from device to device."""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nbxtensor.base import shapes
from nbxtensor.base.errors import ArgumentError, DeviceError, ShapeError
from nbxtensor.device.protocol import Device
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.memory import ForeignBuffer

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
Layout: TypeAlias = tuple[ForeignBuffer, tuple[int, ...], tuple[int, ...], int]


def is_array(value: Any) -> bool:
    """Whether `value` is a NumPy array."""
    return isinstance(value, np.ndarray)


def is_list(value: Any) -> bool:
    """Whether `value` is a list."""
    return isinstance(value, list)


def array_of(values: Any, function: str, dtype: "np.dtype[Any] | None" = None) -> Array:
    """NumPy's array of nested sequences, scalars, or an object that NumPy knows how to read."""
    try:
        return np.asarray(values, dtype)
    except (ValueError, OverflowError, TypeError) as error:
        raise ArgumentError(function, "the values do not form an array", got=str(error)) from None


class _Exposed:
    """Hands an address to NumPy; the array made from it keeps the tensor's buffer alive through this object."""

    __slots__ = ("__array_interface__", "_buffer")

    def __init__(self, x: "Tensor") -> None:
        itemsize = x.dtype.itemsize
        self._buffer = x.buffer
        self.__array_interface__ = {
            "version": 3,
            "typestr": x.dtype.bits_numpy.str,
            "shape": x.shape,
            "strides": tuple(s * itemsize for s in x.strides),
            "data": (x.ptr, x.readonly),
        }


def expose(x: "Tensor") -> Array:
    """The tensor's memory as an array of its bits (`DType.bits_numpy`), without touching the memory.

    Also made for memory that the host cannot read; then the array must not be read either.
    """
    return np.asarray(_Exposed(x))


def adopt(array: Array, readonly: bool | None = None) -> Layout:
    """Buffer, shape, strides and offset of a tensor on the memory of `array`, whose items must be aligned.

    By default the tensor is read-only where the array is.
    """
    itemsize = array.itemsize
    readonly = not array.flags.writeable if readonly is None else readonly
    first = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        buffer = ForeignBuffer(array, first, array.nbytes, readonly)
        return buffer, array.shape, shapes.contiguous_strides(array.shape), 0
    strides = tuple(s // itemsize for s in array.strides)
    low, high = shapes.extent(array.shape, strides)
    buffer = ForeignBuffer(array, first + low * itemsize, (high - low) * itemsize, readonly)
    return buffer, array.shape, strides, -low


def adoptable(array: Array) -> bool:
    """Whether kernels can work on the memory of `array` as it is: aligned, steps of whole items, native byte order."""
    flags = array.flags
    if not (flags.aligned and array.dtype.isnative):
        return False
    return flags.c_contiguous or all(s % array.itemsize == 0 for s in array.strides)


def raw(array: Array) -> memoryview:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _no_values(x: "Tensor", function: str) -> DeviceError:
    return DeviceError(
        function,
        f"tensors on device {x.device.name} hold no values",
        mend="run the same work on a device that computes to see its numbers",
    )


def to_bits(x: "Tensor", function: str) -> Array:
    """The elements' bits as an array: the tensor's own memory where the host can read it, else a copy."""
    if x.device.host_accessible:
        x.device.synchronize()
        return expose(x)
    if not x.device.computes:
        raise _no_values(x, function)
    bits = np.empty(x.shape, x.dtype.bits_numpy)
    if bits.size:
        source = x if x.is_contiguous else table["copy"](x)
        x.device.copy_to_host(raw(bits), source.ptr)
    return bits


def to_numpy(x: "Tensor", function: str = "numpy") -> Array:
    """The elements as a NumPy array: without a copy where the host can read the memory, else copied."""
    bits = to_bits(x, function)
    return bits if bits.dtype == x.dtype.numpy else bits.view(x.dtype.numpy)


def as_array(x: "Tensor", dtype: Any, copy: bool | None) -> Array:
    """NumPy's ``__array__``: ``copy=False`` raises ValueError where a copy is needed, as NumPy asks for."""
    target = None if dtype is None else np.dtype(dtype)
    if copy is False:
        if not x.device.host_accessible:
            raise ValueError(f"a tensor on {x.device.name} becomes a NumPy array by a copy only; got copy=False")
        if target is not None and target != x.dtype.numpy:
            raise ValueError(f"{x.dtype} becomes {target} by a copy only; got copy=False")
    array = to_numpy(x, "numpy.asarray")
    if target is not None and target != array.dtype:
        return array.astype(target)
    return array.copy() if copy and x.device.host_accessible else array


def item(x: "Tensor", function: str) -> bool | int | float:
    """The one element of `x` as a Python scalar."""
    if math.prod(x.shape) != 1:
        raise ShapeError(function, "only a tensor with one element is a scalar", got=x.shape, mend="index it first")
    return to_numpy(x, function).item()


def to_device(x: "Tensor", device: Device) -> "Tensor":
    """`x` itself if it is on `device`, else a contiguous copy there, complete on return."""
    if x.device is device:
        return x
    nbytes = x.nbytes
    strides = shapes.contiguous_strides(x.shape)
    moved = x.__class__(device.allocate(nbytes), x.shape, strides, 0, x.dtype, device)
    if not device.computes or not nbytes:
        return moved
    if x.device.host_accessible:
        device.copy_from_host(moved.ptr, raw(np.ascontiguousarray(to_bits(x, "to_device"))))
        return moved
    source = x if x.is_contiguous else table["copy"](x)
    if device.host_accessible:
        source.device.copy_to_host(raw(expose(moved)), source.ptr)
    else:
        device.copy_from_host(moved.ptr, raw(to_bits(source, "to_device")))
    return moved


def state(x: "Tensor") -> Array | None:
    """What pickle keeps of the values: a contiguous copy of the bits, or None where there are none."""
    return np.array(to_bits(x, "pickle"), order="C") if x.device.computes else None
