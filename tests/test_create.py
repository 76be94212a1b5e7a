"""Tensors made from nothing, against NumPy."""

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, NbxError, ShapeError
from numeric import same_bits


def back(x: nbx.Tensor) -> np.ndarray:
    return np.asarray(x.to_device("cpu"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5), 4099])
def test_full(shape: tuple[int, ...] | int, dtype: str, device: str) -> None:
    kind = nbx.empty(0, dtype).dtype.numpy
    for value in (0, 1, 1.75):
        result = back(nbx.full(shape, value, dtype=dtype, device=device))
        assert same_bits(result, np.full(shape, value).astype(kind))
    assert same_bits(back(nbx.zeros(shape, dtype=dtype, device=device)), np.zeros(shape, kind))
    x = nbx.ones(shape, dtype=dtype, device=device)
    assert same_bits(back(x), np.ones(shape, kind))
    assert same_bits(back(nbx.full_like(x, 0)), np.zeros(shape, kind))
    assert nbx.empty_like(x).shape == nbx.zeros_like(x).shape == nbx.ones_like(x).shape == x.shape


def test_defaults(device: str) -> None:
    assert nbx.full((1,), True, device=device).dtype is nbx.bool
    assert nbx.full((1,), 2, device=device).dtype is nbx.int64
    assert nbx.full((1,), 2.0, device=device).dtype is nbx.float32
    assert nbx.zeros(1, device=device).dtype is nbx.float32


@pytest.mark.parametrize(
    "args", [(5,), (0,), (-3,), (2, 9), (2, 9, 3), (9, 2, -2), (0.0, 1.0, 0.1), (3, 0.5, -0.25), (5, 5), (0, 10_000, 3)]
)
def test_arange(args: tuple[float, ...], device: str) -> None:
    result, expected = back(nbx.arange(*args, device=device)), np.arange(*args)
    assert same_bits(result, expected.astype(np.float32) if expected.dtype.kind == "f" else expected)


def test_linspace_and_eye(device: str) -> None:
    for start, stop, num, endpoint in [
        (0, 1, 5, True),
        (0, 1, 7, False),
        (2, -3, 1001, True),
        (1, 1, 1, True),
        (0, 1, 0, True),
    ]:
        expected = np.linspace(start, stop, num, endpoint=endpoint).astype(np.float32)
        assert same_bits(back(nbx.linspace(start, stop, num, endpoint=endpoint, device=device)), expected)
    for rows, cols, k in [(3, 3, 0), (3, 5, 1), (5, 3, -2), (2, 2, 5), (0, 3, 0)]:
        assert same_bits(back(nbx.eye(rows, cols, k=k, device=device)), np.eye(rows, cols, k, np.float32))


def test_triangles(device: str) -> None:
    host = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7) + 1
    x = nbx.asarray(host, device=device)
    for k in (-6, -1, 0, 2, 9):
        assert same_bits(back(nbx.tril(x, k=k)), np.tril(host, k))
        assert same_bits(back(nbx.triu(x, k=k)), np.triu(host, k))


def test_errors(device: str) -> None:
    with pytest.raises(ArgumentError, match="step"):
        nbx.arange(0, 5, 0, device=device)
    with pytest.raises(ArgumentError, match="out of range"):
        nbx.arange(0, 300, dtype="uint8", device=device)
    with pytest.raises(ArgumentError, match="out of range"):
        nbx.full((2,), -1, dtype="uint8", device=device)
    with pytest.raises(NbxError, match="not a number"):
        nbx.full((2,), "x", device=device)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="negative"):
        nbx.zeros((2, -1), device=device)
    with pytest.raises(ShapeError, match="two axes"):
        nbx.tril(nbx.ones(3, device=device))
    with pytest.raises(ArgumentError, match="num"):
        nbx.linspace(0, 1, -1, device=device)
