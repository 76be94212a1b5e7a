"""Convolution and pooling: against float64, the same bits as the product of matrices, any batch, bad geometry."""

from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.ops import conv as conv_module
from nbxtensor.ops.conv import reference
from nbxtensor.ops.pool import reference_max, reference_mean
from nbxtensor.program.digest import digest

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)


def f(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("x", "w", "geometry"),
    [
        (f(2, 3, 20), f(4, 3, 5), {}),
        (f(1, 4, 9, 8), f(6, 2, 3, 2), {"groups": 2, "stride": 2, "padding": 1}),
        (f(2, 4, 9, 9), f(4, 1, 3, 3), {"groups": 4, "dilation": 2, "padding": 2}),
        (f(1, 2, 5, 6, 4), f(3, 2, 2, 3, 2), {"padding": 1}),
        (f(1, 600, 7), f(2, 600, 3), {}),
        (f(2, 5, 6, 6), f(3, 5, 1, 1), {}),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_conv(x: Array, w: Array, geometry: Any, with_bias: bool, device: str) -> None:
    bias = f(w.shape[0]) if with_bias else None
    tensors = [None if a is None else nbx.from_numpy(a, device) for a in (x, w, bias)]
    got = nbx.to_numpy(nbx.nn.conv(*tensors, **geometry))  # pyright: ignore[reportArgumentType]
    expected = reference(x, w, bias, **geometry)
    assert got.dtype == np.float32
    assert got.shape == expected.shape
    terms = w[0].size
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * terms**0.5 * float(np.abs(expected).max()))


def test_conv_has_the_bits_of_the_product(device: str) -> None:
    x, w = f(1, 7, 30), f(4, 7, 5)
    seen = np.lib.stride_tricks.sliding_window_view(x[0], 5, axis=1)
    columns = np.ascontiguousarray(seen.transpose(0, 2, 1).reshape(35, 26))
    product = nbx.matmul(nbx.from_numpy(w.reshape(4, 35), device), nbx.from_numpy(columns, device))
    got = nbx.nn.conv(nbx.from_numpy(x, device), nbx.from_numpy(w, device))
    assert digest(nbx.to_numpy(got)[0]) == digest(nbx.to_numpy(product))


def test_the_batch_and_how_it_is_cut_change_no_bit(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = f(5, 3, 8, 8), f(4, 3, 3, 3)
    tensors = nbx.from_numpy(x, device), nbx.from_numpy(w, device)
    whole = nbx.to_numpy(nbx.nn.conv(*tensors))
    for limit in (1, 9000):
        monkeypatch.setattr(conv_module, "MATRIX_BYTES", limit)
        assert digest(nbx.to_numpy(nbx.nn.conv(*tensors))) == digest(whole)
    alone = nbx.nn.conv(nbx.from_numpy(x[3:4].copy(), device), tensors[1])
    assert digest(nbx.to_numpy(alone)) == digest(whole[3:4].copy())


def test_asymmetric_padding_and_strided_input(device: str) -> None:
    x, w = f(1, 2, 6, 5), f(3, 2, 3, 2)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))
    expected = reference(padded, w)
    given = nbx.from_numpy(np.asfortranarray(x), device)
    got = nbx.nn.conv(given, nbx.from_numpy(w, device), padding=((0, 1), (2, 0)))
    np.testing.assert_allclose(nbx.to_numpy(got), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((2, 3, 20), (3,), (2,)), ((1, 2, 7, 9), (3, 2), None), ((1, 2, 5, 6, 7), (2, 3, 2), (1, 2, 3))],
)
def test_pools(shape: tuple[int, ...], kernel: Any, stride: Any, device: str) -> None:
    x = f(*shape)
    tensor = nbx.from_numpy(x, device)
    largest = nbx.to_numpy(nbx.nn.max_pool(tensor, kernel, stride))
    np.testing.assert_array_equal(largest, reference_max(x, kernel, stride))
    mean = nbx.to_numpy(nbx.nn.avg_pool(tensor, kernel, stride))
    np.testing.assert_allclose(mean, reference_mean(x, kernel, stride), rtol=0, atol=1e-6)


def test_padding_is_never_the_largest_and_nan_passes(device: str) -> None:
    x = np.array([[[-5.0, -7.0, np.nan, -1.0, -2.0]]], np.float32)
    got = nbx.to_numpy(nbx.nn.max_pool(nbx.from_numpy(x, device), 2, 1, padding=1))
    np.testing.assert_array_equal(got, np.array([[[-5.0, -5.0, np.nan, np.nan, -1.0, -2.0]]], np.float32))
    integers = np.array([[[-5, -7, 3]]], np.int8)
    got = nbx.to_numpy(nbx.nn.max_pool(nbx.from_numpy(integers, device), 2, 1, padding=(1,)))
    np.testing.assert_array_equal(got, np.array([[[-5, -5, 3, 3]]], np.int8))


def test_empty_batch(device: str) -> None:
    x, w = (nbx.from_numpy(a, device) for a in (f(0, 3, 8), f(4, 3, 3)))
    assert nbx.nn.conv(x, w).shape == (0, 4, 6)
    assert nbx.nn.max_pool(x, 2).shape == (0, 3, 4)


def test_bad_geometry() -> None:
    x, w, bias = (nbx.from_numpy(a) for a in (f(1, 4, 8), f(6, 4, 3), f(5)))
    with pytest.raises(ShapeError, match="do not fit in 3 groups"):
        nbx.nn.conv(x, w, groups=3)
    with pytest.raises(ShapeError, match="bias"):
        nbx.nn.conv(x, w, bias)
    with pytest.raises(ShapeError, match="kernel is larger"):
        nbx.nn.conv(x, w, dilation=4)
    with pytest.raises(ArgumentError, match="stride needs 1 positive"):
        nbx.nn.conv(x, w, stride=0)
    with pytest.raises(ArgumentError, match="padding needs 1"):
        nbx.nn.conv(x, w, padding=(1, 1))
    with pytest.raises(ShapeError, match="3 to 5 axes"):
        nbx.nn.max_pool(nbx.from_numpy(f(3, 4)), 2)
    with pytest.raises(ArgumentError, match="not a tensor"):
        nbx.nn.conv(f(1, 4, 8), w)  # pyright: ignore[reportArgumentType]
