"""NumPy stand-ins for operators that the tensor layer calls, for tests of that layer alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nbxtensor.base import dtypes
from nbxtensor.tensor.create import _from_numpy, asarray, resolve_device
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def _tensor(array: Any) -> Tensor:
    return _from_numpy(np.asarray(array), None, resolve_device("cpu"), None, "test")


def lift(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """An operator on CPU tensors from a NumPy function."""

    def operator(*args: Any, out: Tensor | None = None, **options: Any) -> Tensor:
        result = function(*map(_array, args), **options)
        if out is None:
            return _tensor(result)
        out.numpy()[...] = result
        return out

    return operator


def copy_into(target: Tensor, source: Any) -> None:
    target.numpy()[...] = _array(source)


_SAME_NAME = """
add subtract multiply divide floor_divide remainder pow matmul equal not_equal less less_equal greater greater_equal
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift negative positive abs bitwise_invert any where
take
"""
NUMPY_OPS: dict[str, Callable[..., Any]] = {name: lift(getattr(np, name)) for name in _SAME_NAME.split()} | {
    "copy": lift(lambda x: np.array(x, order="C")),
    "astype": lambda x, dtype: _tensor(x.numpy().astype(dtypes.dtype(dtype).numpy)),
    "copy_into": copy_into,
}


def install(patch: pytest.MonkeyPatch, device: str) -> None:
    """Put the stand-ins into the table, for the CPU only: NumPy cannot reach other memory."""
    if device == "cpu":
        for name, function in NUMPY_OPS.items():
            patch.setitem(table, name, function)


def tensors(key: Any, device: str) -> Any:
    """The key with its arrays as tensors."""
    parts = key if isinstance(key, tuple) else (key,)
    moved = tuple(asarray(p, device=device) if isinstance(p, np.ndarray) else p for p in parts)
    return moved if isinstance(key, tuple) else moved[0]
