"""topk: every dtype, both directions, ties, axes, k of every size; bad arguments."""

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError
from nbxtensor.device import get
from sort_tools import check, numbers


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [("float32", True), ("float32", False), ("bfloat16", False), ("float64", True), ("uint8", True), ("int64", False)],
)
def test_dtypes_and_directions(dtype: str, largest: bool, device: str) -> None:
    x = numbers(dtype, (3, 1000))
    check(*nbx.topk(nbx.asarray(x, device=device), 9, -1, largest), x, -1, largest, 9)


@pytest.mark.parametrize("k", [1, 2, 24, 25, 60, 124, 125, 126, 999, 1000])
def test_k(k: int, device: str) -> None:
    x = numbers("float32", (3, 1000), k)
    check(*nbx.topk(nbx.asarray(x, device=device), k), x, -1, True, k)


@pytest.mark.parametrize("k", [3, 50, 300])
def test_rows_that_grow_better(k: int, device: str) -> None:
    """Every element is a candidate when the row is in the wrong order."""
    x = np.stack([np.arange(5000), np.arange(5000)[::-1], np.arange(5000) // 7]).astype(np.float32)
    for largest in (False, True):
        check(*nbx.topk(nbx.asarray(x, device=device), k, -1, largest), x, -1, largest, k)


@pytest.mark.parametrize("k", [5, 30])
def test_axes_and_strides(k: int, device: str) -> None:
    x = numbers("float32", (40, 6, 300))
    a = nbx.asarray(x, device=device)
    check(*nbx.topk(a, k, 0), x, 0, True, k)
    check(*nbx.topk(nbx.permute_dims(a, (2, 1, 0)), k, 0), x.transpose(2, 1, 0), 0, True, k)
    check(*nbx.topk(a[:, ::2, ::-1], k), np.ascontiguousarray(x[:, ::2, ::-1]), -1, True, k)


def test_ties_and_nan(device: str) -> None:
    x = nbx.asarray(np.array([1, 2, 5, 4, 5], np.float32), device=device)
    assert [a.tolist() for a in nbx.topk(x, 2)] == [[5, 5], [2, 4]]
    x = nbx.asarray(np.array([0.0, np.nan, -0.0, np.inf, np.nan], np.float32), device=device)
    assert nbx.topk(x, 3)[1].tolist() == [1, 4, 3]
    assert nbx.topk(x, 3, largest=False)[1].tolist() == [0, 2, 3]


def test_nothing_asked_for(device: str) -> None:
    null = get(f"null:{get(device).target.arch}")
    null.clear()
    for shape, k in (((3, 4), 0), ((0, 4), 2), ((3, 0), 0)):
        values, indices = nbx.topk(nbx.empty(shape, dtype="float32", device=null.name), k)
        assert values.shape == indices.shape == (shape[0], k)
    assert not null.calls


def test_bad_arguments(device: str) -> None:
    x = nbx.zeros((3, 4), dtype="float32", device=device)
    with pytest.raises(ArgumentError, match="k is too large"):
        nbx.topk(x, 5)
    with pytest.raises(ArgumentError, match="negative"):
        nbx.topk(x, -1)
    for k in (1.5, None, "2"):
        with pytest.raises(ArgumentError, match="not an int"):
            nbx.topk(x, k)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AxisError):
        nbx.topk(x, 1, 2)
    with pytest.raises(AxisError):
        nbx.topk(nbx.asarray(1.0, device=device), 1)
    with pytest.raises(DTypeError):
        nbx.topk(nbx.zeros((3,), dtype="float8_e5m2", device=device), 1)
