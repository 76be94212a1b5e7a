"""Constants of a model file -> NumPy arrays; sizes are checked against the bytes there before anything is made."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ModelError
from nbxtensor.base.text import counted
from nbxtensor.onnx.graph import Array

ELEMENT_TYPES: dict[int, DType] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
}
OTHER_TYPES = {
    0: "undefined", 8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1",
}  # fmt: skip
EXTERNAL = 1


def element_type(code: int, where: str) -> DType:
    """The dtype that the file's type code names."""
    found = ELEMENT_TYPES.get(code)
    if found is None:
        raise ModelError(
            "nbx.onnx.load",
            f"{where} has an element type that is not supported",
            got=OTHER_TYPES.get(code, f"type code {code}"),
            allowed=(d.name for d in ELEMENT_TYPES.values()),
        )
    return found


def _external_bytes(entries: dict[str, str], folder: Path | None, where: str, expected: int) -> bytes:
    """The bytes of a constant kept in a file beside the model; never from outside the model's folder."""
    location = entries.get("location", "")
    if folder is None:
        raise ModelError("nbx.onnx.load", f"{where} is kept in another file, but the model was not read from a file")
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or not path.is_relative_to(root) or not path.is_file():
        raise ModelError(
            "nbx.onnx.load", f"{where} names a data file that is not in the model's folder", got=repr(location)
        )
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(expected)))
    except ValueError:
        raise ModelError("nbx.onnx.load", f"{where} has an offset or length that is not a number") from None
    if offset < 0 or length != expected or offset + length > path.stat().st_size:
        raise ModelError(
            "nbx.onnx.load",
            f"{where} needs {counted(expected, 'byte')} of {location}",
            got=f"offset {offset}, length {length}, file of {counted(path.stat().st_size, 'byte')}",
        )
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _typed_values(proto: Any, dtype: DType) -> Any:
    """The field that holds the values of `dtype` when they are not raw bytes."""
    if dtype is dtypes.float32:
        return proto.float_data
    if dtype is dtypes.float64:
        return proto.double_data
    if dtype is dtypes.int64:
        return proto.int64_data
    if dtype in (dtypes.uint32, dtypes.uint64):
        return proto.uint64_data
    return proto.int32_data


def _from_values(values: Any, dtype: DType, where: str) -> Array:
    if dtype.is_float and dtype.itemsize >= 4:
        return np.array(values, dtype=dtype.numpy)
    wide = np.array(values, dtype=np.uint64 if dtype in (dtypes.uint32, dtypes.uint64) else np.int64)
    bits = np.dtype(np.uint16) if dtype.is_float else dtype.numpy
    narrow = wide.astype(bits)
    if not np.array_equal(narrow.astype(wide.dtype), wide):
        raise ModelError("nbx.onnx.load", f"{where} holds values outside the range of {dtype.name}")
    return narrow.view(dtype.numpy) if dtype.is_float else narrow


def to_array(proto: Any, where: str, folder: Path | None) -> Array:
    """The array in a TensorProto; `where` names it in errors."""
    dtype = element_type(proto.data_type, where)
    shape = tuple(int(d) for d in proto.dims)
    if any(d < 0 for d in shape) or len(shape) > 64:
        raise ModelError("nbx.onnx.load", f"{where} has impossible dimensions", got=str(shape))
    if proto.HasField("segment"):
        raise ModelError("nbx.onnx.load", f"{where} is stored in segments, which is not supported")
    count = prod(shape)
    expected = count * dtype.itemsize
    if proto.data_location == EXTERNAL:
        entries = {e.key: e.value for e in proto.external_data}
        raw = _external_bytes(entries, folder, where, expected)
    elif proto.HasField("raw_data"):
        raw = proto.raw_data
    else:
        values = _typed_values(proto, dtype)
        if len(values) != count:
            raise ModelError(
                "nbx.onnx.load",
                f"{where} of shape {shape} needs {counted(count, 'value')}",
                got=counted(len(values), "value"),
            )
        return _from_values(values, dtype, where).reshape(shape)
    if len(raw) != expected:
        raise ModelError(
            "nbx.onnx.load",
            f"{where} of shape {shape} and {dtype.name} needs {counted(expected, 'byte')}",
            got=counted(len(raw), "byte"),
        )
    if dtype.is_bool:
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    return np.frombuffer(raw, dtype.numpy).reshape(shape)
