"""max_pool and avg_pool: values, order of the sum, strides, special values, errors."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, DTypeError, NbxError, ShapeError
from nbxtensor.ops import pool as op
from numeric import same_bits

Array = np.ndarray[Any, np.dtype[Any]]
INF, NAN = np.inf, np.nan
CASES = [
    ((2, 3, 20), 3, {}),
    ((2, 3, 37), 4, {"stride": 1, "padding": 2}),
    ((1, 5, 19, 23), (3, 2), {"stride": (2, 1), "padding": ((1, 0), (0, 1))}),
    ((3, 4, 14, 14), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((1, 2, 7, 6, 9), 2, {}),
    ((2, 2, 5, 6, 7), (1, 3, 2), {"stride": (1, 2, 3), "padding": (0, 1, 1), "ceil_mode": True}),
    ((1, 2, 30, 31), (9, 8), {"stride": 4, "padding": 3}),
    ((1, 3, 5, 1), (5, 1), {}),
    ((1, 1, 1), 1, {}),
]


def tensor(a: Any, device: str) -> nbx.Tensor:
    return nbx.asarray(a, device=device)


def back(x: nbx.Tensor) -> Array:
    return np.asarray(x.to_device("cpu"))


def slow(x: Array, kernel: Any, stride: Any, before: Any, after: Any, dilation: Any, ceil: bool) -> list[Any]:
    """The elements of every window, in row-major order, window after window of the first image and channel."""
    rank = len(kernel)
    places = []
    for i in range(rank):
        size = x.shape[2 + i]
        places.append(0)
        start = -before[i]
        while True:  # windows are counted one by one
            end = start + dilation[i] * (kernel[i] - 1)
            more = ceil and start < size and end - stride[i] < size + after[i] - 1  # something is not seen yet
            if end >= size + after[i] and not more:
                break
            places[i] += 1
            start += stride[i]
    windows = []
    for p in np.ndindex(*places):
        seen = []
        for t in np.ndindex(*kernel):
            at = [p[i] * stride[i] - before[i] + t[i] * dilation[i] for i in range(rank)]
            if all(0 <= at[i] < x.shape[2 + i] for i in range(rank)):
                seen.append(x[(0, 0, *at)])
        windows.append(seen)
    return windows


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_references_are_the_formulas(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(12):
        ceil = bool(rng.integers(2))
        kernel, stride = (tuple(int(v) for v in rng.integers(1, 4, rank)) for _ in range(2))
        before, after = (tuple(int(rng.integers(0, k)) for k in kernel) for _ in range(2))
        x = rng.standard_normal((1, 1, *(int(v) for v in rng.integers(3, 7, rank))), np.float32)
        pads = tuple(zip(before, after, strict=True))
        windows = slow(x, kernel, stride, before, after, (1,) * rank, ceil)
        got = op.max_pool_reference(x, kernel, stride, pads, 1, ceil)
        np.testing.assert_array_equal(got.reshape(-1), [max(w) for w in windows])
        got = op.avg_pool_reference(x, kernel, stride, pads, ceil)
        np.testing.assert_allclose(got.reshape(-1), [np.mean(np.float64(w)) for w in windows], rtol=1e-12)


@pytest.mark.parametrize(("shape", "kernel", "options"), CASES)
def test_max_pool(shape: Any, kernel: Any, options: dict[str, Any], device: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    got = back(nbx.nn.max_pool(tensor(x, device), kernel, **options))
    assert same_bits(got, op.max_pool_reference(x, kernel, **options))


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("shape", "kernel", "options"), CASES)
def test_avg_pool(shape: Any, kernel: Any, options: dict[str, Any], counted: bool, device: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    got = back(nbx.nn.avg_pool(tensor(x, device), kernel, **options, count_include_pad=counted))
    want = op.avg_pool_reference(x, kernel, **options, count_include_pad=counted)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 80 * 2.0**-24 * np.abs(x).max()


def test_dilation(device: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 17, 19), np.float32)
    got = back(nbx.nn.max_pool(tensor(x, device), 3, 1, (2, 1), (3, 2)))
    assert same_bits(got, op.max_pool_reference(x, 3, 1, (2, 1), (3, 2)))
    got = back(nbx.nn.max_pool(tensor(np.ones((1, 1, 1), np.float32), device), 2, 1, 1, 2))
    assert same_bits(got, np.full((1, 1, 1), -INF, np.float32))


def test_random_geometry(device: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        x = rng.standard_normal(
            (int(rng.integers(1, 4)), int(rng.integers(1, 5)), *rng.integers(16, 32, 2)), np.float32
        )
        stride = ((1, 2), (2, 2))[rng.integers(2)]
        pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (2, 2)))
        ceil = bool(rng.integers(2))
        t = tensor(x, device)
        assert same_bits(
            back(nbx.nn.max_pool(t, 3, stride, pads, 1, ceil)), op.max_pool_reference(x, 3, stride, pads, 1, ceil)
        )
        got, want = back(nbx.nn.avg_pool(t, 3, stride, pads, ceil)), op.avg_pool_reference(x, 3, stride, pads, ceil)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 2e-6


@pytest.mark.parametrize("kernel", [(3, 3), (9, 9)])
def test_the_sum_runs_in_row_major_order(kernel: Any, device: str) -> None:
    x = (np.random.default_rng(3).standard_normal((1, 1, 12, 30)) * 1e3).astype(np.float32)
    got = back(nbx.nn.avg_pool(tensor(x, device), kernel, 1, 1))
    windows = slow(x, kernel, (1, 1), (1, 1), (1, 1), (1, 1), False)
    want: list[np.float32] = []
    for window in windows:
        total = np.float32(-0.0)
        for value in window:
            total = np.float32(total + value)
        want.append(np.float32(total / np.float32(len(window))))
    assert same_bits(got.reshape(-1), np.array(want))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_max_pool_of_integers(dtype: Any, device: str) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(4).integers(info.min, info.max, (2, 2, 30), dtype, endpoint=True)
    x[0, 0, :4] = info.min
    got = back(nbx.nn.max_pool(tensor(x, device), 3, 2, 1))
    assert same_bits(got, op.max_pool_reference(x, 3, 2, 1))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_is_rounded_once(dtype: Any, device: str) -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 9, 20)).astype(dtype)
    got = back(nbx.nn.max_pool(tensor(x, device), 3, 2, 1))
    assert same_bits(got, op.max_pool_reference(x.astype(np.float32), 3, 2, 1).astype(dtype))
    wide = back(nbx.nn.avg_pool(tensor(x.astype(np.float32), device), 3, 2, 1))
    assert same_bits(back(nbx.nn.avg_pool(tensor(x, device), 3, 2, 1)), wide.astype(dtype))


def test_float64(device: str) -> None:
    x = np.random.default_rng(6).standard_normal((2, 3, 9, 20))
    assert same_bits(back(nbx.nn.max_pool(tensor(x, device), 3, 2, 1)), op.max_pool_reference(x, 3, 2, 1))
    got = back(nbx.nn.avg_pool(tensor(x, device), 3, 2, 1))
    np.testing.assert_allclose(got, op.avg_pool_reference(x, 3, 2, 1), rtol=1e-14)


def test_special_values(device: str) -> None:
    x = np.array([[[1.0, NAN, 2.0, -0.0, 0.0, -0.0, -0.0, -INF, -INF, INF, INF]]], np.float32)
    t = tensor(x, device)
    want = np.array([[[NAN, NAN, 2.0, 0.0, 0.0, -0.0, -0.0, -INF, INF, INF]]], np.float32)
    assert same_bits(back(nbx.nn.max_pool(t, 2, 1)), want)
    want = np.array([[[NAN, NAN, 1.0, 0.0, 0.0, -0.0, -INF, -INF, NAN, INF]]], np.float32)
    assert same_bits(back(nbx.nn.avg_pool(t, 2, 1)), want)
    lone = tensor(np.array([[[-0.0, 1.0]]], np.float32), device)
    assert same_bits(back(nbx.nn.avg_pool(lone, 2, 1, 1)), np.array([[[-0.0, 0.5, 1.0]]], np.float32))


@pytest.mark.parametrize("function", [nbx.nn.max_pool, nbx.nn.avg_pool])
def test_strides_and_batch_do_not_change_a_bit(function: Any, device: str) -> None:
    x = np.random.default_rng(7).standard_normal((4, 6, 11, 23), np.float32)
    want = back(function(tensor(x, device), 3, 2, 1))
    last = nbx.permute_dims(tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1)), device), (0, 3, 1, 2))
    assert same_bits(back(function(last, 3, 2, 1)), want)
    wide = np.full((8, 6, 22, 46), NAN, np.float32)
    wide[::2, :, ::2, ::2] = x[..., ::-1]
    assert same_bits(back(function(tensor(wide, device)[::2, :, ::2, ::2][..., ::-1], 3, 2, 1)), want)
    assert same_bits(back(function(tensor(x[1:2], device), 3, 2, 1)), want[1:2])


def test_empty(device: str) -> None:
    for function in (nbx.nn.max_pool, nbx.nn.avg_pool):
        assert function(nbx.ones((0, 3, 9), device=device), 3).shape == (0, 3, 3)
        assert function(nbx.ones((2, 0, 9), device=device), 3).shape == (2, 0, 3)


def test_global_pools(device: str) -> None:
    x = np.random.default_rng(8).standard_normal((2, 3, 9, 20), np.float32)
    got = back(nbx.nn.global_max_pool(tensor(x, device)))
    assert same_bits(got, x.max(axis=(2, 3), keepdims=True))
    got = back(nbx.nn.global_avg_pool(tensor(x, device)))
    np.testing.assert_allclose(got, x.mean(axis=(2, 3), keepdims=True), atol=1e-6)
    with pytest.raises(ShapeError, match="global_max_pool"):
        nbx.nn.global_max_pool(nbx.ones((2, 3), device=device))


@pytest.mark.parametrize(
    ("shape", "args", "error"),
    [
        ((3, 9), (3,), ShapeError),
        ((1, 1, 3, 3, 3, 3), (3,), ShapeError),
        ((1, 1, 9), (10,), ShapeError),
        ((1, 1, 0), (2, 1, 0), ShapeError),
        ((1, 1, 9), (0,), ArgumentError),
        ((1, 1, 9), (2.5,), ArgumentError),
        ((1, 1, 9), ((2, 2),), ArgumentError),
        ((1, 1, 9), (2, 0), ArgumentError),
        ((1, 1, 9), (2, 1, -1), ArgumentError),
        ((1, 1, 9), (2, 1, 2), ArgumentError),
        ((1, 1, 9), (2, 1, ((0, 2),)), ArgumentError),
    ],
)
def test_bad_arguments(shape: Any, args: Any, error: type[NbxError], device: str) -> None:
    for name, function in (("max_pool", nbx.nn.max_pool), ("avg_pool", nbx.nn.avg_pool)):
        with pytest.raises(error, match=f"nbx.nn.{name}"):
            function(nbx.ones(shape, device=device), *args)


def test_bad_dtypes(device: str) -> None:
    with pytest.raises(DTypeError, match="nn.avg_pool"):
        nbx.nn.avg_pool(nbx.ones((1, 1, 9), dtype=nbx.int32, device=device), 3)
    with pytest.raises(DTypeError, match="nn.max_pool"):
        nbx.nn.max_pool(nbx.ones((1, 1, 9), dtype=nbx.bool, device=device), 3)
    with pytest.raises(ArgumentError, match="not a tensor"):
        nbx.nn.max_pool(np.ones((1, 1, 9)), 3)  # type: ignore[arg-type]
