"""DLPack both ways, ``__cuda_array_interface__`` and the standard's namespace.

Capsules are made and consumed by NumPy, whatever the device: NumPy is handed an array that stands on the tensor's
address (never read), and the two fields of the capsule it cannot know, the device and the dtypes it lacks, are set
afterwards. So the deleter is NumPy's compiled one: it may be called from any thread, with or without the GIL, also
while the interpreter shuts down, and a capsule that nobody takes frees itself.
"""

import ctypes
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError
from nbxtensor.base.text import counted
from nbxtensor.device import registry as devices
from nbxtensor.device.protocol import Device
from nbxtensor.tensor import host
from nbxtensor.tensor.dispatch import table

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor

API_VERSIONS = ("2024.12", "2023.12", "2022.12", "2021.12")
MAX_VERSION = (1, 1)
CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST = 1, 2, 3, 10, 11
_DEVICE_TYPES = {"cpu": CPU, "cuda": CUDA, "hip": ROCM}
_DEVICE_KINDS = {CPU: "cpu", CUDA_HOST: "cpu", ROCM_HOST: "cpu", CUDA: "cuda", ROCM: "hip"}
_CODES: dict[DType, int] = {
    dtypes.bool_: 6,
    dtypes.bfloat16: 4,
    dtypes.float8_e4m3fn: 10,
    dtypes.float8_e5m2: 12,
} | {d: {"i": 0, "u": 1, "f": 2}[d.kind] for d in dtypes.ARITHMETIC if d not in (dtypes.bool_, dtypes.bfloat16)}
_DTYPES = {(code, d.bits): d for d, code in _CODES.items()}
_UNSIGNED = 1
_READ_ONLY, _COPIED = 1, 2
_LEGACY_STREAM = 1


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def _open(capsule: Any) -> tuple[_DLTensor, _Versioned | None]:
    """The tensor in an unused capsule; it belongs to the capsule."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned") or 0)
        return managed.tensor, managed
    if _is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(_get_pointer(capsule, b"dltensor") or 0), None
    raise ArgumentError("nbx.from_dlpack", "not an unused DLPack capsule", got=repr(capsule))


def dlpack_device(x: "Tensor") -> tuple[int, int]:
    """DLPack's device type and index."""
    kind, _, index = x.device.name.partition(":")
    if kind not in _DEVICE_TYPES:
        raise DeviceError("__dlpack_device__", "no tensors are exchanged with this device", got=x.device.name)
    return _DEVICE_TYPES[kind], int(index or 0)


def to_dlpack(
    x: "Tensor",
    *,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule for `x`: versioned if the consumer knows DLPack 1, without a copy unless asked or needed."""
    here = dlpack_device(x)
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted != here:
        if copy is False:
            raise BufferError(f"__dlpack__: from {here} to device {wanted} takes a copy; got copy=False")
        if wanted != (CPU, 0):
            raise BufferError(f"__dlpack__: cannot export to device {wanted}; allowed: {here}, {(CPU, 0)}")
        x = host.to_device(x, devices.get("cpu"))
        copied = True
    else:
        copied = bool(copy)
        x = table["copy"](x) if copied else x
        _hand_over(x.device, here[0], stream)
    versioned = max_version is not None and max_version[0] >= 1
    array = host.expose(x)
    capsule = array.__dlpack__(max_version=MAX_VERSION if versioned else None)
    tensor, managed = _open(capsule)
    tensor.device_type, tensor.device_id = wanted
    tensor.code = _CODES[x.dtype]
    if managed is not None and copied:
        managed.flags |= _COPIED
    return capsule


def _hand_over(device: Device, kind: int, stream: int | None) -> None:
    """Make what was launched so far visible to work on the consumer's `stream`."""
    if kind == CPU:
        if stream is not None:
            raise ArgumentError("__dlpack__", "the CPU has no streams", got=stream, allowed="stream=None")
    elif kind == CUDA and stream is not None and (stream == 0 or stream < -1):
        raise ArgumentError("__dlpack__", "not a stream", got=stream, allowed="None, -1, 1, 2 or a handle")
    elif stream != -1:
        hand_over: Any = getattr(device, "hand_over", None)
        if hand_over is None:
            device.synchronize()
        else:
            hand_over(_LEGACY_STREAM if stream is None else stream)


def _stream(device: Device) -> int:
    """Handle of the stream that our work goes to; the legacy default stream where a device knows no other."""
    return getattr(device, "current_stream", _LEGACY_STREAM)


class _Producer:
    """An opened capsule, for NumPy to take."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def _request(source: Any, copy: bool | None) -> Any:
    options: dict[str, Any] = {} if copy is None else {"copy": copy}
    kind, index = source.__dlpack_device__()
    if kind == CUDA:
        options["stream"] = _stream(devices.get(f"cuda:{int(index)}"))
    try:
        return source.__dlpack__(max_version=MAX_VERSION, **options)
    except TypeError:  # a producer from before DLPack 1 knows neither max_version nor copy
        options.pop("copy", None)
        return source.__dlpack__(**options)


def import_dlpack(source: Any, copy: bool | None) -> tuple[host.Layout, DType, Device]:
    """Buffer and layout of a tensor on the memory of `source`, its dtype and its device."""
    capsule = _request(source, copy)
    tensor, managed = _open(capsule)
    if managed is not None and managed.major > MAX_VERSION[0]:
        raise BufferError(f"nbx.from_dlpack: DLPack version {managed.major}.{managed.minor} is too new; allowed: 1")
    kind, index = _DEVICE_KINDS.get(tensor.device_type), tensor.device_id
    if kind is None:
        raise DeviceError("nbx.from_dlpack", "unknown device type", got=tensor.device_type, allowed=_DEVICE_TYPES)
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    dtype = _DTYPES.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        raise DTypeError(
            "nbx.from_dlpack",
            "unknown dtype",
            got=f"code {code}, {counted(bits, 'bit')}, {counted(lanes, 'lane')}",
            allowed=map(str, _CODES),
        )
    where = devices.get("cpu" if kind == "cpu" else f"{kind}:{index}")
    before = tensor.device_type, tensor.device_id, code
    tensor.device_type, tensor.device_id = CPU, 0
    if dtype.bits_numpy != np.dtype(bool) and dtype.bits_numpy.kind == "u":
        tensor.code = _UNSIGNED
    try:
        array = np.from_dlpack(_Producer(capsule))
    finally:  # the owner's deleter must find what it made
        tensor.device_type, tensor.device_id, tensor.code = before
    readonly = managed is not None and bool(managed.flags & _READ_ONLY)  # a capsule of the old kind cannot say
    return host.adopt(array, readonly), dtype, where


def cuda_array_interface(x: "Tensor") -> dict[str, Any]:
    """Version 3 of the interface. AttributeError where it does not apply, so that ``hasattr`` tells."""
    if not x.device.name.startswith("cuda"):
        raise AttributeError(f"a tensor on {x.device.name} has no __cuda_array_interface__")
    if x.dtype.bits_numpy.kind == "u" and x.dtype.kind != "u":
        raise AttributeError(f"__cuda_array_interface__ has no name for {x.dtype}; exchange it through DLPack")
    itemsize = x.dtype.itemsize
    return {
        "version": 3,
        "shape": x.shape,
        "typestr": x.dtype.numpy.str,
        "data": (x.ptr if x.size else 0, x.readonly),
        "strides": None if x.is_contiguous else tuple(s * itemsize for s in x.strides),
        "stream": _stream(x.device),
    }


def namespace(api_version: str | None) -> ModuleType:
    """The package, as the Array API standard's namespace."""
    if api_version is not None and api_version not in API_VERSIONS:
        raise ArgumentError("__array_namespace__", "unknown version", got=repr(api_version), allowed=API_VERSIONS)
    return sys.modules["nbxtensor"]
