"""sum, prod, mean, max, min, any, all, argmax, argmin."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError
from numeric import ulp_error
from rows_helpers import bits, canonical_sum, layouts

RNG = np.random.default_rng(0)
LENGTHS = (1, 3, 4, 31, 128, 1000, 2047, 2048, 2049, 6144, 65_536, 65_537, 140_000)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _numpy(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _rows_last(x: np.ndarray[Any, Any], axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    kept = [d for d in range(x.ndim) if d not in axes]
    moved = x.transpose((*kept, *axes))
    return np.ascontiguousarray(moved).reshape((*moved.shape[: len(kept)], -1))


@pytest.mark.parametrize("n", LENGTHS)
def test_sum_has_the_canonical_bits(n: int, device: str) -> None:
    x = RNG.standard_normal((3, n)).astype(np.float32) * 100
    want = canonical_sum(x)
    np.testing.assert_array_equal(bits(nbx.sum(nbx.asarray(x, device=device), axis=-1)), bits(want))
    columns = nbx.asarray(x.T.copy(), device=device)
    np.testing.assert_array_equal(bits(nbx.sum(columns, axis=0)), bits(want))
    alone = nbx.asarray(x[1], device=device)
    np.testing.assert_array_equal(bits(nbx.sum(alone)), bits(want[1]))


def test_every_axis_and_layout_gives_the_same_bits(device: str) -> None:
    x = RNG.standard_normal((5, 6, 7)).astype(np.float32)
    for count in range(4):
        for axes in itertools.combinations(range(3), count):
            want = canonical_sum(_rows_last(x, axes)) if axes else x
            for name, tensor in layouts(x, device):
                got = nbx.sum(tensor, axis=axes)
                assert got.shape == want.shape, (axes, name)
                np.testing.assert_array_equal(bits(got), bits(want), err_msg=f"{axes} {name}")


def test_many_rows_and_columns(device: str) -> None:
    x = RNG.standard_normal((1025, 33)).astype(np.float32)
    for axis in (0, 1):
        want = canonical_sum(_rows_last(x, (axis,)))
        for name, tensor in layouts(x, device):
            np.testing.assert_array_equal(bits(nbx.sum(tensor, axis=axis)), bits(want), err_msg=f"{axis} {name}")
    broadcast = nbx.asarray(x[0], device=device).broadcast_to((4, 33))
    np.testing.assert_array_equal(bits(nbx.sum(broadcast, axis=0)), bits(x[0] + x[0] + (x[0] + x[0])))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_sums_and_means(dtype: str, device: str) -> None:
    x = (RNG.standard_normal((4, 3000)) * 3).astype(_numpy(dtype))
    t = nbx.asarray(x, device=device)
    accumulate = np.float64 if dtype == "float64" else np.float32
    total = canonical_sum(x.astype(accumulate))
    np.testing.assert_array_equal(bits(nbx.sum(t, axis=1)), bits(total.astype(x.dtype)))
    np.testing.assert_array_equal(bits(nbx.mean(t, axis=1)), bits((total / accumulate(3000)).astype(x.dtype)))
    assert nbx.mean(t, axis=1, keepdims=True).shape == (4, 1)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
@pytest.mark.parametrize("axis", [None, 0])
def test_integer_sums_promote_and_are_exact(dtype: str, axis: Any, device: str) -> None:
    info = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min // 2, np.iinfo(dtype).max)
    x = RNG.integers(info[0], info[1], (70, 41), "int8" if dtype == "bool" else dtype).astype(dtype)
    t = nbx.asarray(x, device=device)
    with np.errstate(over="ignore"):
        want = x.sum(axis=axis, dtype=np.uint64 if dtype.startswith("u") else np.int64)
        product = x.prod(axis=axis, dtype=want.dtype)
    got = nbx.sum(t, axis=axis)
    assert got.dtype.name == want.dtype.name
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(nbx.prod(t, axis=axis).numpy(), product)


def test_dtype_of_a_sum(device: str) -> None:
    t = nbx.asarray(np.array([100, 100, 100], np.int8), device=device)
    assert nbx.sum(t, dtype=nbx.int8).item() == 44
    assert nbx.sum(t, dtype=nbx.float32).item() == 300.0
    assert nbx.sum(nbx.asarray(np.ones(3, np.float32), device=device), dtype=nbx.float64).dtype is nbx.float64


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_products(dtype: str, device: str) -> None:
    x = RNG.uniform(0.9, 1.1, (3, 500)).astype(dtype)
    t = nbx.asarray(x, device=device)
    for axis in (0, 1):
        want = x.astype(np.longdouble).prod(axis=axis).astype(np.float64)
        assert ulp_error(nbx.prod(t, axis=axis).numpy(), want, dtype) <= (1 if dtype == "float16" else 60)


def _sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype in FLOATS:
        return (RNG.standard_normal(shape) * 100).astype(_numpy(dtype))
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_max_and_min_of_every_dtype(dtype: str, device: str) -> None:
    x = _sample(dtype, (6, 50, 7))
    t = nbx.asarray(x, device=device)
    for ours, theirs in ((nbx.max, np.max), (nbx.min, np.min)):
        got = ours(t, axis=1)
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(bits(got), bits(theirs(x, axis=1)))


def test_max_of_every_layout(device: str) -> None:
    x = _sample("float32", (6, 50, 7))
    for name, t in layouts(x, device):
        for axis in (0, 2, (0, 2), None):
            np.testing.assert_array_equal(bits(nbx.max(t, axis=axis)), bits(x.max(axis=axis)), err_msg=f"{name} {axis}")


@pytest.mark.parametrize(("dtype", "n"), [(d, 3) for d in FLOATS] + [("float32", n) for n in (130, 2050, 70_000)])
def test_max_and_min_of_special_values(dtype: str, n: int, device: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.zeros((8, n), _numpy(dtype))
    x[0, 1] = -0.0
    x[1] = -0.0
    x[1, 2] = 0.0
    x[2, 1] = np.copysign(nan, -1.0)
    x[3] = nan
    x[4] = -inf
    x[5, 2] = inf
    x[6] = -0.0
    x[7, 0] = nan
    x[7, 1] = inf
    t = nbx.asarray(x, device=device)
    kind = x.dtype.type
    largest = np.array([0.0, 0.0, nan, nan, -inf, inf, -0.0, nan]).astype(kind)
    smallest = np.array([-0.0, -0.0, nan, nan, -inf, 0.0, -0.0, nan]).astype(kind)
    np.testing.assert_array_equal(bits(nbx.max(t, axis=1)), bits(largest))
    np.testing.assert_array_equal(bits(nbx.min(t, axis=1)), bits(smallest))


@pytest.mark.parametrize("n", [1, 3, 100, 1025, 2049, 66_000])
def test_any_and_all(n: int, device: str) -> None:
    x = np.zeros((4, n), bool)
    x[1, -1] = True
    x[2] = True
    x[3] = True
    x[3, n // 2] = False
    t = nbx.asarray(x, device=device)
    np.testing.assert_array_equal(nbx.any(t, axis=1).numpy(), x.any(axis=1))
    np.testing.assert_array_equal(nbx.all(t, axis=1).numpy(), x.all(axis=1))
    np.testing.assert_array_equal(nbx.any(t, axis=0).numpy(), x.any(axis=0))
    assert nbx.all(t).item() is False
    floats = nbx.asarray(np.array([0.0, -0.0, np.nan], np.float32), device=device)
    assert nbx.any(floats[:2]).item() is False
    assert nbx.any(floats).item() is True
    assert nbx.any(nbx.asarray(np.array([1e-45], np.float32), device=device)).item() is True


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_argmax_of_every_dtype(dtype: str, device: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 9, (3, 70)).astype(_numpy(dtype))
    t = nbx.asarray(x, device=device)
    np.testing.assert_array_equal(nbx.argmax(t, axis=1).numpy(), x.argmax(axis=1))
    np.testing.assert_array_equal(nbx.argmin(t, axis=1).numpy(), x.argmin(axis=1))


@pytest.mark.parametrize("n", [1, 1024, 4100, 66_000])
def test_argmax_and_argmin(n: int, device: str) -> None:
    x = RNG.integers(0, 9, (3, n)).astype(np.float32)
    for name, t in layouts(x, device):
        np.testing.assert_array_equal(nbx.argmax(t, axis=1).numpy(), x.argmax(axis=1), err_msg=name)
    t = nbx.asarray(x, device=device)
    np.testing.assert_array_equal(nbx.argmin(t, axis=0).numpy(), x.argmin(axis=0))
    assert nbx.argmax(t).item() == x.argmax()
    assert nbx.argmin(t, axis=1, keepdims=True).shape == (3, 1)


def test_argmax_of_special_values(device: str) -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[0.0, -0.0, 0.0], [-0.0, 0.0, -1.0], [1.0, nan, nan], [inf, nan, -inf], [-inf] * 3], np.float32)
    t = nbx.asarray(x, device=device)
    np.testing.assert_array_equal(nbx.argmax(t, axis=1).numpy(), [0, 0, 1, 1, 0])
    np.testing.assert_array_equal(nbx.argmin(t, axis=1).numpy(), [0, 2, 1, 1, 0])
    lowest = nbx.asarray(np.full((2, 1500), np.iinfo(np.int64).min), device=device)
    np.testing.assert_array_equal(nbx.argmax(lowest, axis=1).numpy(), [0, 0])


def test_empty_and_0d(device: str) -> None:
    empty = nbx.asarray(np.zeros((3, 0, 2), np.float32), device=device)
    np.testing.assert_array_equal(bits(nbx.sum(empty, axis=1)), bits(np.zeros((3, 2), np.float32)))
    np.testing.assert_array_equal(nbx.prod(empty, axis=1).numpy(), np.ones((3, 2)))
    assert np.isnan(nbx.mean(empty, axis=1).numpy()).all()
    assert nbx.sum(empty, axis=0).shape == (0, 2)
    assert nbx.any(empty).item() is False
    assert nbx.all(empty).item() is True
    for function in (nbx.max, nbx.min, nbx.argmax, nbx.argmin):
        with pytest.raises(ArgumentError, match="no element"):
            function(empty, axis=1)
    assert nbx.max(empty, axis=0).shape == (0, 2)
    scalar = nbx.asarray(np.float32(-2.5), device=device)
    for function in (nbx.sum, nbx.prod, nbx.mean, nbx.max, nbx.min):
        assert function(scalar).item() == -2.5
        assert function(scalar).shape == ()
    assert nbx.argmax(scalar).item() == 0


def test_errors() -> None:
    t = nbx.asarray(np.zeros((2, 3), np.float32))
    with pytest.raises(AxisError, match="out of range"):
        nbx.sum(t, axis=2)
    with pytest.raises(AxisError, match="twice"):
        nbx.sum(t, axis=(0, -2))
    with pytest.raises(DTypeError, match="mean is taken of floats"):
        nbx.mean(nbx.asarray([1, 2]))
    with pytest.raises(DTypeError):
        nbx.sum(t, dtype="bool")
    with pytest.raises(AxisError):
        nbx.argmax(t, axis=5)
