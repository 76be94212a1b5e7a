"""What the tests of the sort family share: inputs with ties and special values, the reference, paths by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.device.protocol import Device
from nbxtensor.ops.sort.functions import reference_sort_with_indices
from nbxtensor.ops.sort.layout import Layout, Run, layout_of

DTYPES = tuple(d.name for d in dtypes.ARITHMETIC)
Array = np.ndarray[Any, Any]


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Few distinct values, so that ties are common; floats with both zeros, infinities and NaN of several payloads."""
    rng = np.random.default_rng(seed)
    kind = dtypes.dtype(dtype)
    if kind.is_bool:
        return rng.random(shape) > 0.5
    if kind.is_integer:
        assert kind.minimum is not None
        assert kind.maximum is not None
        few = rng.integers(kind.minimum, kind.maximum, 40, kind.numpy, endpoint=True)
        return rng.choice(np.concatenate([few, np.array([kind.minimum, kind.maximum, 0], kind.numpy)]), shape)
    bits = np.dtype(f"u{kind.itemsize}")
    x = np.round(rng.standard_normal(shape) * 5).astype(kind.numpy)
    x[rng.random(shape) < 0.1] = -0.0
    x[rng.random(shape) < 0.05] = np.inf
    x[rng.random(shape) < 0.05] = -np.inf
    nan = int(np.array(np.inf, kind.numpy).view(bits)) | 1
    payloads = np.array([nan, nan | 1 << (kind.bits - 1), nan + 1], bits)
    where = rng.random(shape) < 0.1
    x.view(bits)[where] = rng.choice(payloads, int(where.sum()))
    return x


def same_bits(result: nbx.Tensor, expected: Array) -> bool:
    """Whether dtype, shape and bits are equal."""
    got = np.asarray(nbx.to_numpy(result))
    expected = np.ascontiguousarray(expected)
    return got.dtype == expected.dtype and got.shape == expected.shape and got.tobytes() == expected.tobytes()


def check(values: nbx.Tensor, indices: nbx.Tensor, x: Array, axis: int, descending: bool, limit: int | None) -> None:
    """Raise unless values and indices are those of the reference."""
    expected, order = reference_sort_with_indices(x, axis, descending)
    if limit is not None:
        expected, order = (np.take(a, range(limit), axis=axis) for a in (expected, order))
    assert same_bits(indices, order)
    assert same_bits(values, expected)


def by_hand(
    path: Callable[[Device, Layout], Run], x: Array, axis: int, descending: bool, device: str, limit: int | None = None
) -> None:
    """Sort with the launches that `path` makes and check the results."""
    a = nbx.asarray(x, device=device)
    axis %= x.ndim
    shape = (*x.shape[:axis], x.shape[axis] if limit is None else limit, *x.shape[axis + 1 :])
    values, indices = nbx.empty(shape, a.dtype, device), nbx.empty(shape, nbx.int64, device)
    strides = (a.strides, values.strides, indices.strides)
    layout = layout_of(x.shape, axis, shape[axis], strides, a.dtype, descending, (True, True))
    path(a.device, layout)(a.ptr, values.ptr, indices.ptr)
    check(values, indices, x, axis, descending, limit)
