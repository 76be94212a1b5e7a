"""conv and the pools."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, DTypeError, ShapeError
from nbxtensor.ops import conv as conv_op
from nbxtensor.ops import pool as pool_op
from rows_helpers import bits
from test_op_matmul import chained

RNG = np.random.default_rng(0)
F = np.float32
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 6, 19), (4, 6, 3), {}),
    ((1, 3, 40), (8, 3, 5), {"stride": 3, "padding": 2, "dilation": 2}),
    ((1, 5, 30, 1), (7, 5, 5, 1), {}),
    ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": 1}),
    ((2, 4, 9, 8), (6, 4, 1, 1), {}),
    ((2, 6, 9, 8), (4, 3, 3, 2), {"stride": (2, 1), "dilation": (1, 2), "groups": 2}),
    ((1, 8, 7, 7), (8, 1, 3, 3), {"padding": 1, "groups": 8}),
    ((1, 130, 6, 5), (3, 130, 2, 3), {}),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"stride": (1, 2, 1)}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "options"), CASES)
def test_conv(x_shape: Any, w_shape: Any, options: dict[str, Any], device: str) -> None:
    x, w, b = (RNG.standard_normal(s).astype(F) for s in (x_shape, w_shape, w_shape[:1]))
    tx, tw, tb = (nbx.asarray(v, device=device) for v in (x, w, b))
    plain = nbx.nn.conv(tx, tw, **options).numpy()
    want = conv_op.reference(x, w, **options)
    assert plain.shape == want.shape
    np.testing.assert_allclose(plain, want, rtol=0, atol=3e-5)
    got = nbx.nn.conv(tx, tw, tb, **options)
    np.testing.assert_array_equal(bits(got), bits(plain + b.reshape(-1, *[1] * (x.ndim - 2))))


def test_conv_is_the_chain_over_channel_and_kernel(device: str) -> None:
    x, w = RNG.standard_normal((1, 70, 12, 9)).astype(F), RNG.standard_normal((5, 70, 3, 3)).astype(F)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(70 * 9, -1)
    want = chained(w.reshape(5, -1), np.ascontiguousarray(columns)).reshape(1, 5, 10, 7)
    got = nbx.nn.conv(nbx.asarray(x, device=device), nbx.asarray(w, device=device))
    np.testing.assert_array_equal(bits(got), bits(want))


def test_conv_layouts_and_batch(device: str) -> None:
    x, w = RNG.standard_normal((3, 4, 8, 9)).astype(F), RNG.standard_normal((6, 4, 3, 3)).astype(F)
    tx, tw = nbx.asarray(x, device=device), nbx.asarray(w, device=device)
    want = nbx.nn.conv(tx, tw).numpy()
    last = nbx.asarray(x.transpose(0, 2, 3, 1).copy(), device=device).permute_dims(0, 3, 1, 2)
    np.testing.assert_array_equal(bits(nbx.nn.conv(last, tw)), bits(want))
    turned = nbx.asarray(w.transpose(3, 2, 1, 0).copy(), device=device).permute_dims(3, 2, 1, 0)
    np.testing.assert_array_equal(bits(nbx.nn.conv(tx, turned)), bits(want))
    np.testing.assert_array_equal(bits(nbx.nn.conv(tx[1:2], tw)), bits(want[1:2]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conv_16_bit(dtype: str, device: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, w = (RNG.standard_normal(s).astype(kind) for s in ((1, 3, 30), (4, 3, 3)))
    narrow = nbx.nn.conv(nbx.asarray(x, device=device), nbx.asarray(w, device=device))
    wide = nbx.nn.conv(nbx.asarray(x.astype(F), device=device), nbx.asarray(w.astype(F), device=device))
    np.testing.assert_array_equal(bits(narrow), bits(wide.numpy().astype(kind)))


def test_conv_empty_and_errors(device: str) -> None:
    def conv(x: Any, w: Any, *args: Any, **options: Any) -> nbx.Tensor:
        return nbx.nn.conv(*(nbx.asarray(np.ones(s, F), device=device) for s in (x, w)), *args, **options)

    assert conv((0, 3, 8), (4, 3, 3)).shape == (0, 4, 6)
    assert (conv((1, 0, 8), (4, 0, 3)).numpy() == 0).all()
    with pytest.raises(ShapeError, match="larger"):
        conv((1, 3, 2), (4, 3, 3))
    with pytest.raises(ShapeError, match="do not fit"):
        conv((1, 3, 8), (4, 2, 3))
    with pytest.raises(ShapeError, match="ranks"):
        conv((3, 8), (4, 3, 3))
    with pytest.raises(ArgumentError, match="stride"):
        conv((1, 3, 8), (4, 3, 3), stride=0)
    with pytest.raises(DTypeError):
        nbx.nn.conv(nbx.asarray(np.ones((1, 1, 3))), nbx.asarray(np.ones((1, 1, 3))))


POOLS: list[tuple[Any, Any, Any, Any]] = [
    ((2, 3, 19), 3, None, 0),
    ((2, 3, 9, 12), (3, 2), (2, 1), 1),
    ((1, 2, 8, 64), 2, 2, 0),
    ((1, 2, 5, 6, 7), 2, 1, 0),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), POOLS)
def test_pools(shape: Any, kernel: Any, stride: Any, padding: Any, device: str) -> None:
    x = RNG.standard_normal(shape).astype(F)
    t = nbx.asarray(x, device=device)
    got = nbx.nn.max_pool(t, kernel, stride, padding)
    np.testing.assert_array_equal(bits(got), bits(pool_op.reference_max_pool(x, kernel, stride, padding)))
    for included in (True, False) if padding else (True,):
        got = nbx.nn.avg_pool(t, kernel, stride, padding, count_include_pad=included).numpy()
        want = pool_op.reference_avg_pool(x, kernel, stride, padding, count_include_pad=included)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    turned = nbx.asarray(np.swapaxes(x, 0, -1).copy(), device=device)
    order = (x.ndim - 1, *range(1, x.ndim - 1), 0)
    again = nbx.nn.max_pool(turned.permute_dims(order), kernel, stride, padding)
    np.testing.assert_array_equal(bits(again), bits(nbx.nn.max_pool(t, kernel, stride, padding)))


def test_pool_values_and_dtypes(device: str) -> None:
    x = np.array([[[1.0, np.nan, 2.0, -0.0, 0.0, -np.inf]]], F)
    got = nbx.nn.max_pool(nbx.asarray(x, device=device), 2).numpy()
    np.testing.assert_array_equal(bits(got), bits(np.array([[[np.nan, 2.0, 0.0]]], F)))
    for kind in (np.int8, np.uint8, np.int64, np.uint64, np.float64, np.float16):
        y = RNG.integers(0, 100, (1, 2, 9)).astype(kind)
        got = nbx.nn.max_pool(nbx.asarray(y, device=device), 3)
        np.testing.assert_array_equal(got.numpy(), y.reshape(1, 2, 3, 3).max(-1))
    z = RNG.standard_normal((2, 3, 4, 5)).astype(F)
    t = nbx.asarray(z, device=device)
    np.testing.assert_array_equal(nbx.nn.global_max_pool(t).numpy(), z.max((2, 3), keepdims=True))
    np.testing.assert_allclose(nbx.nn.global_avg_pool(t).numpy(), z.mean((2, 3), keepdims=True), atol=1e-6)
    with pytest.raises(ArgumentError, match="padding"):
        nbx.nn.max_pool(t, 2, padding=-1)
    with pytest.raises(DTypeError):
        nbx.nn.avg_pool(nbx.asarray(np.ones((1, 1, 4), np.int32), device=device), 2)


def test_padding_on_one_side(device: str) -> None:
    x, w = RNG.standard_normal((1, 3, 8, 9)).astype(F), RNG.standard_normal((4, 3, 3, 2)).astype(F)
    tx, tw = nbx.asarray(x, device=device), nbx.asarray(w, device=device)
    sides = ((1, 0), (0, 2))
    padded = nbx.asarray(np.pad(x, ((0, 0), (0, 0), *sides)), device=device)
    np.testing.assert_array_equal(bits(nbx.nn.conv(tx, tw, padding=sides)), bits(nbx.nn.conv(padded, tw)))
    got = nbx.nn.max_pool(tx, 2, 2, sides)
    np.testing.assert_array_equal(bits(got), bits(pool_op.reference_max_pool(x, 2, 2, sides)))
    got = nbx.nn.avg_pool(tx, 2, 2, sides, count_include_pad=False).numpy()
    np.testing.assert_allclose(got, pool_op.reference_avg_pool(x, 2, 2, sides, count_include_pad=False), atol=1e-6)
