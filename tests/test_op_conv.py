<<<<<<< HEAD
"""Convolution and pooling: against float64, the same bits as the product of matrices, any batch, bad geometry."""

from typing import Any

=======
"""conv and the pools."""

from typing import Any

import ml_dtypes
>>>>>>> 7002ae9 (conv, pools, linear, embedding; tests of norms, matmul, convolution, indexing)
import numpy as np
import pytest

import nbxtensor as nbx
<<<<<<< HEAD
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
=======
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
    with pytest.raises(ShapeError, match="half"):
        nbx.nn.max_pool(t, 2, padding=2)
    with pytest.raises(DTypeError):
        nbx.nn.avg_pool(nbx.asarray(np.ones((1, 1, 4), np.int32), device=device), 2)
>>>>>>> 7002ae9 (conv, pools, linear, embedding; tests of norms, matmul, convolution, indexing)
