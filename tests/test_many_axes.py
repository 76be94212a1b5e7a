"""Operators on tensors with many axes that cannot be merged: reversed axes of size 2 and 3."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx

F = np.float32
Array = np.ndarray[Any, Any]
Case = Callable[[Any, Any, Any], Any]

# Each takes the module (nbxtensor or NumPy) and two arrays of that module: one strided, one contiguous.
EXACT: dict[str, Case] = {
    "copy": lambda m, x, y: x.copy(),
    "add": lambda m, x, y: x + y,
    "where": lambda m, x, y: m.where(y > 0, x, y),
    "astype": lambda m, x, y: x.astype(m.float16),
    "reshape": lambda m, x, y: x.reshape(-1),
    "max": lambda m, x, y: m.max(x),
    "min of an axis": lambda m, x, y: m.min(x, axis=2),
    "any of axes": lambda m, x, y: m.any(x > 1, axis=(1, 3, 5)),
    "argmax": lambda m, x, y: m.argmax(x),
    "concat": lambda m, x, y: m.concat([x, y], axis=4),
}


def inputs(ndim: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(ndim)
    shape = (3, *(2,) * (ndim - 2), 3)
    return rng.standard_normal(shape).astype(F).transpose(), rng.standard_normal(shape).astype(F)


def tensors(ndim: int, device: str) -> tuple[nbx.Tensor, nbx.Tensor]:
    x, y = inputs(ndim)
    return nbx.asarray(x.transpose(), device=device).permute_dims(range(ndim)[::-1]), nbx.asarray(y, device=device)


@pytest.mark.parametrize("ndim", [9, 17])
@pytest.mark.parametrize("name", EXACT)
def test_elements_are_numpys(name: str, ndim: int, device: str) -> None:
    got = EXACT[name](nbx, *tensors(ndim, device))
    np.testing.assert_array_equal(got.numpy(), EXACT[name](np, *inputs(ndim)))


@pytest.mark.parametrize("ndim", [9, 17])
def test_assignment(ndim: int, device: str) -> None:
    a, b = inputs(ndim)
    x, y = tensors(ndim, device)
    x[...] = y
    a[...] = b
    x[1] += 1
    a[1] += 1
    np.testing.assert_array_equal(x.numpy(), a)


def test_gathers(device: str) -> None:
    a, b = inputs(11)
    x, _ = tensors(11, device)
    rows = np.array([1, 0, -1])
    got = nbx.take(x, nbx.asarray(rows, device=device), axis=4)
    np.testing.assert_array_equal(got.numpy(), a.take(rows, axis=4))
    chosen = (b > 0).astype(np.int64)
    got = nbx.take_along_axis(x, nbx.asarray(chosen, device=device), axis=4)
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(a, chosen, 4))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: nbx.sum(x),
        lambda x: nbx.sum(x, axis=(0, 4, 7)),
        lambda x: nbx.nn.softmax(x, axis=5),
        lambda x: nbx.nn.layer_norm(x, axis=(-2, -1)),
        lambda x: nbx.matmul(x, x.copy().permute_dims((*range(11), 12, 11))),
    ],
    ids=["sum", "sum of axes", "softmax", "layer_norm", "matmul"],
)
def test_the_layout_changes_no_bit(compute: Callable[[nbx.Tensor], nbx.Tensor], device: str) -> None:
    a, _ = inputs(13)
    x, _ = tensors(13, device)
    got = compute(x).numpy()
    np.testing.assert_array_equal(got, compute(nbx.asarray(np.ascontiguousarray(a), device=device)).numpy())


def test_twenty_axes(device: str) -> None:
    x = nbx.arange(2**20, device=device).reshape((2,) * 20)
    turned = x.permute_dims(range(20)[::-1])
    np.testing.assert_array_equal((turned + 1).numpy(), x.numpy().transpose() + 1)
