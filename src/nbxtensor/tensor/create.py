"""Tensors from other things: NumPy arrays, Python values, DLPack producers. `empty` is in `nbxtensor.tensor.tensor`."""

from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError
from nbxtensor.device.protocol import Device
from nbxtensor.tensor import host, interchange
from nbxtensor.tensor.check import check_tensor
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty, new

__all__ = ["asarray", "empty", "from_dlpack", "from_numpy", "new", "to_numpy"]


def to_numpy(x: Tensor) -> "np.ndarray[Any, Any]":
    """The elements as a NumPy array: without a copy where the host can read the memory, else copied."""
    return host.to_numpy(check_tensor(x, "nbx.to_numpy"))


def from_numpy(array: "np.ndarray[Any, Any]", device: str | Device = "cpu") -> Tensor:
    """A tensor on the memory of a NumPy array (the CPU), or a copy of it on another device.

    Strides, also negative ones, and the read-only flag are kept. Raises where the memory cannot be shared: other byte
    orders, items that are not aligned.
    """
    if not host.is_array(array):
        got = type(array).__name__
        raise ArgumentError("nbx.from_numpy", "not a NumPy array", got=got, allowed="ndarray", mend="use nbx.asarray")
    return _from_numpy(array, None, resolve_device(device), False, "nbx.from_numpy")


def _from_numpy(
    array: "np.ndarray[Any, Any]", dtype: DType | None, device: Device, copy: bool | None, function: str
) -> Tensor:
    """`array` as a tensor; `copy` speaks of host memory only."""
    source = dtypes.of_numpy(array.dtype) or dtypes.of_numpy(array.dtype.newbyteorder("="))
    if source is None:
        raise DTypeError(function, "no tensor holds NumPy's dtype", got=array.dtype, allowed=map(str, dtypes.ALL))
    target = dtype or source
    ready = target is source and host.adoptable(array)
    if copy is False and not ready:
        raise ArgumentError(
            function,
            f"the array becomes {target} by a copy only",
            got=f"{array.dtype} with strides {array.strides}",
            mend="use nbx.asarray(array) without copy=False",
        )
    if not ready:
        array = array.astype(target.numpy, order="C")
    elif copy and device.host_accessible:
        array = array.copy(order="C")
    bits = array if array.dtype == target.bits_numpy else array.view(target.bits_numpy)
    cpu = resolve_device("cpu")
    return host.to_device(Tensor(*host.adopt(bits), target, cpu), device)


def asarray(value: Any, dtype: Any = None, device: str | Device | None = None, copy: bool | None = None) -> Tensor:
    """A tensor with the values of `value`.

    Parameters
    ----------
    value
        A tensor, a NumPy array or scalar, a Python scalar, nested sequences of them, or an object with ``__dlpack__``,
        ``__array__`` or the buffer protocol.
    dtype
        Type of the elements; by default that of `value`. Python values give bool, int64 or float32.
    device
        A device or its name; by default that of `value` if it is a tensor or has ``__dlpack__``, else
        `default_device`.
    copy
        None: share memory if possible. True: always copy. False: share or raise.

    Raises
    ------
    DTypeError
        If no tensor holds the values' type (complex, strings, objects).
    ArgumentError
        If ``copy=False`` and a copy is needed.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.asarray([1, 2.5])
    Tensor([1. , 2.5], dtype=float32, device='cpu')
    """
    target = None if dtype is None else dtypes.dtype(dtype, "nbx.asarray")
    if not host.is_array(value) and not isinstance(value, Tensor) and hasattr(value, "__dlpack__"):
        value = from_dlpack(value)
    if isinstance(value, Tensor):
        return _from_tensor(value, target, value.device if device is None else resolve_device(device), copy)
    place = resolve_device(device)
    if host.is_array(value):
        if copy is False and not place.host_accessible:
            raise _needs_copy("NumPy array", place)
        return _from_numpy(value, target, place, copy, "nbx.asarray")
    if copy is False:
        raise _needs_copy(type(value).__name__, place)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__") or _has_buffer(value):
        return _from_numpy(host.array_of(value, "nbx.asarray"), target, place, copy, "nbx.asarray")
    array = host.array_of(value, "nbx.asarray", None if target is None else target.numpy)
    if target is None and array.dtype == np.float64:
        target = dtypes.default_float
    return _from_numpy(array, target, place, None, "nbx.asarray")


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _needs_copy(what: str, device: Device) -> ArgumentError:
    return ArgumentError(
        "nbx.asarray",
        f"a {what} becomes a tensor on {device.name} by a copy only",
        got="copy=False",
        allowed="copy=None or copy=True",
    )


def _from_tensor(x: Tensor, dtype: DType | None, device: Device, copy: bool | None) -> Tensor:
    converts = dtype is not None and dtype is not x.dtype
    if copy is False and (converts or device is not x.device):
        raise _needs_copy(f"{x.dtype} tensor on {x.device.name}", device)
    if device is not x.device:
        x, copy = host.to_device(x, device), False
    if converts:
        return table["astype"](x, dtype)
    return table["copy"](x) if copy else x


def from_dlpack(source: Any, /, *, device: str | Device | None = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's tensor, through DLPack.

    Parameters
    ----------
    source
        An object with ``__dlpack__`` and ``__dlpack_device__``.
    device
        Where the tensor shall be; by default where `source` is.
    copy
        None: share memory if possible. True: always copy. False: share or raise.

    Raises
    ------
    DTypeError, DeviceError
        If the dtype or the device is not known here.
    ArgumentError
        If `source` has no DLPack, or ``copy=False`` and a copy is needed.

    Examples
    --------
    >>> import numpy as np
    >>> import nbxtensor as nbx
    >>> nbx.from_dlpack(np.arange(3, dtype=np.int8))
    Tensor([0, 1, 2], dtype=int8, device='cpu')
    """
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise ArgumentError("nbx.from_dlpack", "the object has no __dlpack__", got=type(source).__name__)
    if isinstance(source, Tensor):
        x = source.as_view(source.shape, source.strides, source.offset)
    else:
        parts, dtype, where = interchange.import_dlpack(source, None if copy else copy)
        x = Tensor(*parts, dtype, where)
    return _from_tensor(x, None, x.device if device is None else resolve_device(device), copy)
