"""softmax and log_softmax."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from nbxtensor.ops import softmax as op
from nbxtensor.tensor.tensor import Tensor
from numeric import ulp_error
from rows_helpers import bits, layouts

RNG = np.random.default_rng(0)
INF, NAN = np.inf, np.nan
FUNCTIONS = {"softmax": nbx.nn.softmax, "log_softmax": nbx.nn.log_softmax}
REFERENCES = {"softmax": op.reference_softmax, "log_softmax": op.reference_log_softmax}


def _log_error(got: np.ndarray[Any, Any], x: np.ndarray[Any, Any], axis: int) -> float:
    """Error of a log_softmax in units of ``2^-22 * max(1, |x - M|, |log sum|)``."""
    want = op.reference_log_softmax(x, axis)
    d = x.astype(np.float64) - x.astype(np.float64).max(axis=axis, keepdims=True)
    allowed = np.maximum(1.0, np.maximum(np.abs(d), np.abs(d - want)))
    return float(np.max(np.abs(got - want) / allowed) * 2.0**22)


@pytest.mark.parametrize("n", [1, 31, 1000, 2048, 5000, 50_257, 70_000])
def test_accuracy(n: int, device: str) -> None:
    rows = max(1, 20_000 // n)
    for scale, shift in ((1.0, 0.0), (8.0, 0.0), (30.0, 0.0), (8.0, 250.0), (8.0, -1e4), (20.0, 3e5)):
        x = (RNG.standard_normal((rows, n)) * scale + shift).astype(np.float32)
        t = nbx.asarray(x, device=device)
        assert ulp_error(nbx.nn.softmax(t).numpy(), op.reference_softmax(x), "float32") <= 8.0, (scale, shift)
        assert _log_error(nbx.nn.log_softmax(t).numpy(), x, -1) <= 1.0, (scale, shift)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_axis_and_layout_gives_the_same_bits(name: str, device: str) -> None:
    x = RNG.standard_normal((4, 5, 6)).astype(np.float32)
    for axis in (1, -1) if name == "softmax" else (0,):
        want = np.moveaxis(
            FUNCTIONS[name](nbx.asarray(np.moveaxis(x, axis, -1).copy(), device=device)).numpy(), -1, axis
        )
        for layout, t in layouts(x, device):
            got = FUNCTIONS[name](t, axis)
            assert got.is_contiguous
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=f"{axis} {layout}")


@pytest.mark.parametrize(
    "function", [nbx.nn.softmax, nbx.nn.log_softmax, nbx.nn.layer_norm, nbx.cumulative_sum, nbx.sort]
)
@pytest.mark.parametrize("width", [10, 100, 3000])
def test_rows_that_overlap_give_the_bits_of_their_copies(function: Any, width: int, device: str) -> None:
    """Sliding windows: rows are contiguous, and so are their starts."""
    data = nbx.asarray(RNG.standard_normal(width + 63).astype(np.float32), device=device)
    for step in (1, 2):
        windows = Tensor(data.buffer, (64 // step, width), (step, 1), 0, data.dtype, data.device)
        np.testing.assert_array_equal(bits(function(windows, axis=-1)), bits(function(windows.copy(), axis=-1)))


def _ordered(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """16-bit floats as integers, neighbours one apart."""
    whole = np.ascontiguousarray(x).view(np.int16).astype(np.int32)
    return np.where(whole < 0, -32768 - whole, whole)


@pytest.mark.parametrize(("dtype", "n"), [("bfloat16", 33), ("float16", 2500)])
def test_16_bit_results_are_within_1_ulp_and_nearly_all_nearest(dtype: str, n: int, device: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for scale, shift in ((4.0, 0.0), (1.0, 100.0), (20.0, -300.0)):
        x = (np.random.default_rng(n).standard_normal((66_000 // n, n)) * scale + shift).astype(kind)
        for name, function in FUNCTIONS.items():
            got = function(nbx.asarray(x, device=device))
            assert got.dtype.name == dtype
            off = np.abs(_ordered(got.numpy()) - _ordered(REFERENCES[name](x).astype(np.float32).astype(kind)))
            assert off.max() <= 1, (name, scale)
            assert (off != 0).mean() < 2e-3, (name, scale)


@pytest.mark.parametrize("width", [3, 3000])
def test_special_rows(width: int, device: str) -> None:
    for row, soft, log in op.SPECIAL:
        x = np.full((2, width), -INF, np.float32)
        x[:, :3] = row
        t = nbx.asarray(x, device=device)
        got, got_log = nbx.nn.softmax(t).numpy(), nbx.nn.log_softmax(t).numpy()
        np.testing.assert_allclose(got[:, :3], [soft] * 2, rtol=3e-7, atol=0, err_msg=str(row))
        np.testing.assert_allclose(got_log[:, :3], [log] * 2, rtol=3e-7, atol=0, err_msg=str(row))
        bad = any(np.isnan(soft))
        assert np.isnan(got[:, 3:]).all() if bad else (got[:, 3:] == 0).all()
        assert np.isnan(got_log[:, 3:]).all() if bad else (got_log[:, 3:] == -INF).all()


def test_log_softmax_of_a_clear_winner_is_not_0(device: str) -> None:
    got = nbx.nn.log_softmax(nbx.asarray(np.array([17.0, 0.0], np.float32), device=device)).numpy()
    np.testing.assert_allclose(got[0], -np.log1p(np.exp(-17.0)), rtol=4e-7)


@pytest.mark.parametrize("width", [3, 3000])
def test_safe(width: int, device: str) -> None:
    x = np.full((4, width), -INF, np.float32)
    x[1, 0] = 1.0
    x[2, 1] = NAN
    x[3, 2] = INF
    t = nbx.asarray(x, device=device)
    soft, log = nbx.nn.softmax(t, safe=True).numpy(), nbx.nn.log_softmax(t, safe=True).numpy()
    assert (soft[0] == 0).all()
    assert (log[0] == -INF).all()
    assert soft[1, 0] == 1
    assert (soft[1, 1:] == 0).all()
    assert np.isnan(soft[2:]).all()
    assert np.isnan(log[2:]).all()


def test_fully_masked_tiles_of_a_long_row(device: str) -> None:
    x = np.full((1, 200_000), -INF, np.float32)
    x[0, 150_000:150_010] = RNG.standard_normal(10)
    got = nbx.nn.softmax(nbx.asarray(x, device=device)).numpy()
    assert ulp_error(got, op.reference_softmax(x), "float32") <= 8.0


@pytest.mark.parametrize("n", [7, 3000])
def test_out(n: int, device: str) -> None:
    x = RNG.standard_normal((3, n)).astype(np.float32)
    want = nbx.nn.softmax(nbx.asarray(x, device=device)).numpy()
    target = nbx.asarray(np.full((n, 3), 7.0, np.float32), device=device).permute_dims(1, 0)
    assert nbx.nn.softmax(nbx.asarray(x, device=device), out=target) is target
    np.testing.assert_array_equal(bits(target), bits(want))
    t = nbx.asarray(x.copy(), device=device)
    nbx.nn.softmax(t, out=t)
    np.testing.assert_array_equal(bits(t), bits(want))
    log = nbx.nn.log_softmax(nbx.asarray(x, device=device)).numpy()
    t = nbx.asarray(x.copy(), device=device)
    nbx.nn.log_softmax(t, out=t)
    np.testing.assert_array_equal(bits(t), bits(log))
    buffer = nbx.asarray(np.zeros((4, n), np.float32), device=device)
    buffer[:3] = nbx.asarray(x, device=device)
    nbx.nn.softmax(buffer[:3], out=buffer[1:])
    np.testing.assert_array_equal(bits(buffer[1:]), bits(want))


def test_nothing_beyond_the_result_is_written(device: str) -> None:
    for shape, axis in (((3, 129), 1), ((129, 3), 0), ((5, 2049), 1)):
        buffer = nbx.asarray(np.full((shape[0] + 2, shape[1] + 2), 7.0, np.float32), device=device)
        nbx.nn.softmax(nbx.asarray(np.zeros(shape, np.float32), device=device), axis, out=buffer[1:-1, 1:-1])
        edges = buffer.numpy().copy()
        np.testing.assert_allclose(edges[1:-1, 1:-1], 1 / shape[axis], rtol=1e-6)
        edges[1:-1, 1:-1] = 7.0
        assert (edges == 7.0).all()


def test_empty_0d_and_single(device: str) -> None:
    for shape in ((10, 0), (4, 0, 5, 2), (4, 0, 0)):
        t = nbx.asarray(np.zeros(shape, np.float32), device=device)
        for axis in range(len(shape)):
            assert nbx.nn.softmax(t, axis).shape == shape
            assert nbx.nn.log_softmax(t, axis).shape == shape
    for value in (np.float32(2.0), np.array([0.7], np.float32)):
        t = nbx.asarray(value, device=device)
        soft, log = nbx.nn.softmax(t, 0), nbx.nn.log_softmax(t, -1)
        assert soft.shape == t.shape
        assert soft.item() == 1.0
        assert log.item() == 0.0


def test_errors(device: str) -> None:
    t = nbx.asarray(np.zeros((2, 3), np.float32), device=device)
    with pytest.raises(AxisError):
        nbx.nn.softmax(t, 2)
    with pytest.raises(AxisError):
        nbx.nn.softmax(nbx.asarray(np.float32(1), device=device), 1)
    with pytest.raises(DTypeError, match="float16"):
        nbx.nn.softmax(nbx.asarray([1, 2], device=device))
    with pytest.raises(ShapeError):
        nbx.nn.softmax(t, out=nbx.asarray(np.zeros((3, 2), np.float32), device=device))
    with pytest.raises(DTypeError):
        nbx.nn.softmax(t, out=nbx.asarray(np.zeros((2, 3), np.float64), device=device))
    with pytest.raises(ArgumentError):
        nbx.nn.softmax(t, out=nbx.asarray(np.zeros(3, np.float32), device=device).broadcast_to((2, 3)))
