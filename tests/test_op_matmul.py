"""matmul and linear."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import DTypeError, ShapeError
from nbxtensor.ops import matmul as op
from rows_helpers import bits

RNG = np.random.default_rng(0)
F = np.float32


def _fma(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], c: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """a * b + c in float32, rounded once: the product is exact in float64, the sum is corrected to odd before."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    raw = total.view(np.int64)
    odd = (error != 0) & (raw & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(odd, (raw + toward).view(np.float64), total).astype(F)


def chained(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The product of two matrices in the stated order."""
    total = np.zeros((a.shape[0], b.shape[1]), F)
    for start in range(0, a.shape[1], 512):
        acc = np.zeros_like(total)
        for k in range(start, min(start + 512, a.shape[1])):
            acc = _fma(a[:, k : k + 1], b[k : k + 1], acc)
        total = total + acc
    return total


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 5, 7), (16, 64, 32), (65, 513, 33), (1, 600, 100), (64, 1024, 64), (130, 40, 9), (5, 511, 200)],
)
def test_bits_follow_the_stated_order(m: int, k: int, n: int, device: str) -> None:
    a, b = RNG.standard_normal((m, k)).astype(F), RNG.standard_normal((k, n)).astype(F)
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device))
    np.testing.assert_array_equal(bits(got), bits(chained(a, b)))


def test_tiles_and_batches_change_no_bit(device: str) -> None:
    a, b = RNG.standard_normal((70, 700)).astype(F), RNG.standard_normal((700, 50)).astype(F)
    ta, tb = nbx.asarray(a, device=device), nbx.asarray(b, device=device)
    want = nbx.matmul(ta, tb).numpy()
    for tile in (op.Tile(16, 16, 16, 4), op.Tile(32, 64, 64, 4), op.Tile(16, 16, 4, 4, outer=True)):
        np.testing.assert_array_equal(bits(op.product(ta, tb, tile)), bits(want))
    np.testing.assert_array_equal(bits(nbx.matmul(ta[3:4], tb)), bits(want[3:4]))
    np.testing.assert_array_equal(bits(nbx.matmul(ta[3], tb)), bits(want[3]))
    np.testing.assert_array_equal(bits(nbx.matmul(ta, tb[:, 7])), bits(want[:, 7]))
    stacked = nbx.asarray(np.stack([a * 2, a]), device=device)
    np.testing.assert_array_equal(bits(nbx.matmul(stacked, tb)[1]), bits(want))


def test_layouts_and_broadcasting(device: str) -> None:
    a, b = RNG.standard_normal((2, 3, 9, 20)).astype(F), RNG.standard_normal((3, 20, 11)).astype(F)
    ta, tb = nbx.asarray(a, device=device), nbx.asarray(b, device=device)
    want = nbx.matmul(ta, tb).numpy()
    np.testing.assert_allclose(want, a.astype(np.float64) @ b, atol=1e-5)
    turned = nbx.asarray(np.swapaxes(a, -1, -2).copy(), device=device).mT
    np.testing.assert_array_equal(bits(nbx.matmul(turned, tb)), bits(want))
    turned = nbx.asarray(np.swapaxes(b, -1, -2).copy(), device=device).mT
    np.testing.assert_array_equal(bits(nbx.matmul(ta, turned)), bits(want))
    backward = nbx.asarray(a[..., ::-1].copy(), device=device)[..., ::-1]
    np.testing.assert_array_equal(bits(nbx.matmul(backward, tb)), bits(want))
    moved = nbx.asarray(a.transpose(0, 2, 1, 3).copy(), device=device).permute_dims(0, 2, 1, 3)
    np.testing.assert_array_equal(bits(nbx.matmul(moved, tb)), bits(want))
    one = nbx.asarray(b[0], device=device).broadcast_to((2, 3, 20, 11))
    np.testing.assert_array_equal(bits(nbx.matmul(ta, one)), bits(nbx.matmul(ta, tb[0])))


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((3, 5), (5,)), ((5,), (2, 5, 4)), ((2, 1, 3, 5), (4, 5, 2))])
def test_shapes(shapes: Any, device: str) -> None:
    a, b = (RNG.integers(-5, 5, s).astype(F) for s in shapes)
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device)).numpy()
    want = np.matmul(a, b)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


def test_empty(device: str) -> None:
    for a, b in (((0, 3), (3, 4)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((0,), (0,))):
        got = nbx.matmul(*(nbx.asarray(np.ones(s, F), device=device) for s in (a, b))).numpy()
        np.testing.assert_array_equal(got, np.zeros(np.matmul(np.ones(a), np.ones(b)).shape))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_integers_are_exact_and_wrap(dtype: str, device: str) -> None:
    info = np.iinfo(dtype)
    a, b = (RNG.integers(info.min, info.max, s, dtype, endpoint=True) for s in ((9, 33), (33, 5)))
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device))
    assert got.dtype.name == dtype
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.numpy(), np.matmul(a, b))


def test_float64(device: str) -> None:
    a, b = RNG.standard_normal((9, 700)), RNG.standard_normal((700, 5))
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device)).numpy()
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, (a.astype(np.longdouble) @ b).astype(np.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_float32_rounded_once(dtype: str, device: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a, b = (RNG.standard_normal(s).astype(kind) for s in ((9, 530), (530, 12)))
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device))
    assert got.dtype.name == dtype
    np.testing.assert_array_equal(bits(got), bits(chained(a.astype(F), b.astype(F)).astype(kind)))


def test_special_values(device: str) -> None:
    a = np.zeros((3, 40), F)
    a[0, 3], a[1, 5], a[2, 39] = np.nan, np.inf, 1.0
    b = np.ones((40, 20), F)
    b[5, 1] = 0.0
    got = nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device)).numpy()
    assert np.isnan(got[0]).all()
    assert np.isnan(got[1, 1])
    assert (np.delete(got[1], 1) == np.inf).all()
    assert (got[2] == 1).all()


def test_mixed_dtypes_promote(device: str) -> None:
    a, b = np.ones((2, 3), np.float16), np.ones((3, 2), F)
    assert nbx.matmul(nbx.asarray(a, device=device), nbx.asarray(b, device=device)).dtype is nbx.float32


def test_errors() -> None:
    t = nbx.asarray(np.zeros((2, 3), F))
    with pytest.raises(ShapeError, match="inner sizes"):
        nbx.matmul(t, t)
    with pytest.raises(ShapeError, match="0-d"):
        nbx.matmul(t, nbx.asarray(F(1)))
    with pytest.raises(ShapeError, match="broadcast"):
        nbx.matmul(nbx.asarray(np.zeros((2, 2, 3), F)), nbx.asarray(np.zeros((3, 3, 2), F)))
    with pytest.raises(DTypeError):
        nbx.matmul(nbx.asarray(np.ones((2, 2), bool)), nbx.asarray(np.ones((2, 2), bool)))


def test_linear(device: str) -> None:
    x, w, b = (RNG.standard_normal(s).astype(F) for s in ((2, 5, 40), (7, 40), (7,)))
    tx, tw, tb = (nbx.asarray(v, device=device) for v in (x, w, b))
    want = chained(x.reshape(10, 40), w.T).reshape(2, 5, 7)
    np.testing.assert_array_equal(bits(nbx.nn.linear(tx, tw)), bits(want))
    np.testing.assert_array_equal(bits(nbx.nn.linear(tx, tw, tb)), bits(want + b))
    with pytest.raises(ShapeError):
        nbx.nn.linear(tx, tw, tx)
