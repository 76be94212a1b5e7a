"""cumulative_sum and its family: values, orders, kernels, forms of arguments."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import AxisError, DTypeError, ShapeError
from nbxtensor.device import get
from nbxtensor.kernel.reduce import Reduction
from nbxtensor.kernel.rows import rows_of
from nbxtensor.kernel.scan import launches
from nbxtensor.kernel.scan_settings import Setting, candidates
from nbxtensor.ops.max import extremum
from nbxtensor.ops.prod import PRODUCT32
from nbxtensor.ops.sum import INTEGER_SUM, SUM32
from numeric import same_bits

LARGEST = extremum(nbx.float32, True)
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0), ((15,), 0), ((16,), 0), ((17,), 0), ((257,), 0), ((3, 255), 1), ((5, 256), 1), ((2, 4096), 1),
    ((3, 4097), 1), ((1000, 33), 0), ((7, 40, 5), 1), ((2, 3, 9000), -1), ((9000, 3), 0), ((70_003,), 0),
]  # fmt: skip
FEW_SHAPES: list[tuple[tuple[int, ...], int]] = [((17,), 0), ((3, 4097), 1), ((7, 40, 5), 1), ((70_003,), 0)]


def canonical(x: np.ndarray, function: Any = np.add) -> np.ndarray:
    """The prefixes of a row in the stated order, each worked out from the definition."""
    totals = [x]
    while len(totals[-1]) > 16:
        level = totals[-1]
        totals.append(np.array([function.accumulate(level[i : i + 16])[-1] for i in range(0, len(level), 16)], x.dtype))
    out = np.empty_like(x)
    base: Any = None  # what precedes each block of the present level
    for level in reversed(totals):
        chains = [function.accumulate(level[i : i + 16]) for i in range(0, len(level), 16)]
        flat = np.concatenate(chains)
        if base is None:
            after, before = flat, np.concatenate([[np.nan], flat[:-1]])
        else:
            starts = np.repeat(base, 16)[: len(level)]
            first = np.isnan(starts)
            after = np.where(first, flat, function(starts, flat))
            previous = np.concatenate([np.concatenate([[np.nan], c[:-1]]) for c in chains])
            before = np.where(np.isnan(previous), starts, np.where(first, previous, function(starts, previous)))
        base = before.astype(x.dtype)
        out = after.astype(x.dtype)
    return out


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [(*one, "float32") for one in SHAPES] + [(*one, dtype) for one in FEW_SHAPES for dtype in ("int8", "float16")],
)
def test_against_numpy(shape: tuple[int, ...], axis: int, dtype: str, device: str) -> None:
    rng = np.random.default_rng(7)
    if dtype == "int8":
        x = rng.integers(-128, 128, shape).astype(np.int8)
    else:
        x = (rng.standard_normal(shape) / 64).astype(dtype)
    wide = x.astype(np.float64) if dtype != "int8" else x
    found = nbx.cumulative_sum(nbx.asarray(x, device=device), axis=axis).numpy()
    want = np.cumsum(wide, axis=axis)
    if dtype == "int8":
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, want)
    else:
        steps = 80 * np.finfo(np.float32).eps * np.cumsum(np.abs(wide), axis=axis)
        half = np.finfo(dtype).eps / 2 * np.abs(want) if dtype == "float16" else 0
        assert (np.abs(found - want) <= steps + half + 1e-7).all()
    for name, function in (("cumulative_max", np.maximum), ("cumulative_min", np.minimum)):
        if (shape, axis) not in FEW_SHAPES:
            continue
        extreme = getattr(nbx, name)(nbx.asarray(x, device=device), axis=axis).numpy()
        assert same_bits(extreme, function.accumulate(x, axis=axis))


@pytest.mark.parametrize("n", [1, 16, 17, 300, 4096, 5000, 70_003])
@pytest.mark.parametrize("function", [np.add, np.multiply])
def test_the_order_is_the_stated_one(n: int, function: Any, device: str) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32) if function is np.add else rng.uniform(0.99, 1.01, n).astype("f4")
    tensor = nbx.asarray(x, device=device)
    ours = nbx.cumulative_sum(tensor) if function is np.add else nbx.cumulative_prod(tensor)
    assert same_bits(ours.numpy(), canonical(x, function))


SERIAL, SPLIT = Setting(1, 1), Setting(1, 1, split=True)
TILES = Setting(1, 1, 16, split=True)  # small, so that the same kernels are quick to compile for a CPU
APART = replace(TILES, fold=False)


def scanned(x: nbx.Tensor, reduction: Reduction, setting: Setting | None) -> np.ndarray:
    """The scan of the rows of x with a setting."""
    out = nbx.full(x.shape, 77, dtype=reduction.accumulator, device=x.device)
    rows = rows_of(x.shape, (1,), (x.strides, out.strides))
    how = launches("test", reduction, x.dtype, out.dtype, x.device, rows, setting)
    how.run(x, out, reduction.accumulator)
    return out.numpy()


@pytest.mark.parametrize(
    ("reduction", "n", "settings"),
    [
        (SUM32, 13, [Setting(2, 1), Setting(2, 1, 16), SPLIT]),
        (SUM32, 200, [Setting(2, 1, 256), Setting(2, 1, 16), TILES, APART]),
        (SUM32, 4099, [SPLIT, Setting(1, 1, 16), TILES, APART]),
        (SUM32, 70_001, [SERIAL, SPLIT, Setting(1, 1, 16), TILES]),
        *((reduction, 4099, [SPLIT, TILES, APART]) for reduction in (PRODUCT32, INTEGER_SUM, LARGEST)),
    ],
)
def test_all_kernels_agree(reduction: Reduction, n: int, settings: list[Setting], device: str) -> None:
    rng = np.random.default_rng(n)
    values = rng.uniform(0.99, 1.01, (3, n)).astype(np.float32)
    if reduction is INTEGER_SUM:
        values = rng.integers(-5, 5, (3, n)).astype(np.int64)
    x = nbx.asarray(values, device=device)
    want = scanned(x, reduction, None)
    rows = rows_of(x.shape, (1,), (x.strides, x.strides))
    for setting in (*settings, *candidates(rows, get(device).profile, reduction.accumulator.itemsize)[1:]):
        assert same_bits(scanned(x, reduction, setting), want), setting


@pytest.mark.parametrize("n", [(1 << 20) + 200_024, pytest.param((1 << 24) + 70_001, marks=pytest.mark.slow)])
def test_many_levels_in_one_program(n: int, device: str) -> None:
    x = np.random.default_rng(5).standard_normal((1, n)).astype(np.float32)
    tensor = nbx.asarray(x, device=device)
    want = canonical(x[0], np.add)
    assert same_bits(scanned(tensor, SUM32, SERIAL)[0], want)
    assert same_bits(nbx.cumulative_sum(tensor, axis=1).numpy()[0], want)


def test_views_give_the_bits_of_their_copies(device: str) -> None:
    x = nbx.asarray(np.random.default_rng(1).standard_normal((40, 36, 50)).astype(np.float32), device=device)
    for view in (x.permute_dims(2, 1, 0), x[::-1, ::2, 3:], x[:, :1, :].broadcast_to(40, 36, 50), x[1:, :, ::-3]):
        for axis in range(3):
            assert same_bits(
                nbx.cumulative_sum(view, axis=axis).numpy(), nbx.cumulative_sum(view.copy(), axis=axis).numpy()
            )


def test_include_initial_out_and_in_place(device: str) -> None:
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    x = nbx.asarray(values, device=device)
    for axis in (0, 1):
        first = np.zeros_like(values.take([0], axis))
        want = np.concatenate([first, values.cumsum(axis)], axis)
        np.testing.assert_array_equal(nbx.cumulative_sum(x, axis=axis, include_initial=True).numpy(), want)
        ones = nbx.cumulative_prod(x, axis=axis, include_initial=True).numpy()
        np.testing.assert_array_equal(ones, np.concatenate([first + 1, values.cumprod(axis)], axis))
    y = nbx.asarray(values.astype(np.float32), device=device)
    assert nbx.cumulative_sum(y, axis=1, out=y) is y
    np.testing.assert_array_equal(y.numpy(), values.cumsum(1))
    shared = nbx.asarray(np.ones(101, np.float32), device=device)
    nbx.cumulative_sum(shared[:-1], out=shared[1:])
    np.testing.assert_array_equal(shared.numpy(), [1, *range(1, 101)])
    columns = nbx.zeros((6, 8), device=device)
    nbx.cumulative_sum(nbx.ones((6, 4), device=device), axis=0, out=columns[:, ::2])
    np.testing.assert_array_equal(columns.numpy()[:, 2], np.arange(1, 7))
    np.testing.assert_array_equal(columns.numpy()[:, 1], 0)
    empty = nbx.cumulative_sum(nbx.zeros((0, 3), device=device), axis=0, include_initial=True)
    np.testing.assert_array_equal(empty.numpy(), np.zeros((1, 3)))
    assert nbx.cumulative_sum(nbx.zeros((3, 0), dtype="int8", device=device), axis=1).dtype is nbx.int64


def test_special_values(device: str) -> None:
    row = np.array([1, np.inf, 2, -np.inf, 3], np.float32)
    x = nbx.asarray(row, device=device)
    assert same_bits(nbx.cumulative_sum(x).numpy(), np.array([1, np.inf, np.inf, np.nan, np.nan], np.float32))
    zeros = nbx.asarray(np.array([-0.0, -0.0, 0.0, -0.0], np.float32), device=device)
    assert same_bits(nbx.cumulative_sum(zeros).numpy(), np.array([-0.0, -0.0, 0.0, 0.0], np.float32))
    assert same_bits(nbx.cumulative_max(zeros).numpy(), np.array([-0.0, -0.0, 0.0, 0.0], np.float32))
    assert same_bits(nbx.cumulative_min(zeros[::-1]).numpy(), np.array([-0.0] * 4, np.float32))
    holes = nbx.asarray(np.array([3, np.nan, 1, 9], np.float32), device=device)
    assert same_bits(nbx.cumulative_max(holes).numpy(), np.array([3, np.nan, np.nan, np.nan], np.float32))
    assert nbx.cumulative_sum(nbx.asarray(np.array([True, True]), device=device)).numpy().tolist() == [1, 2]
    big = nbx.asarray(np.array([2**63 - 1, 1], np.int64), device=device)
    assert nbx.cumulative_sum(big).numpy().tolist() == [2**63 - 1, -(2**63)]
    wide = nbx.cumulative_sum(nbx.asarray(np.array([200, 100], np.uint8), device=device), dtype=nbx.float64)
    assert wide.dtype is nbx.float64
    assert wide.numpy().tolist() == [200, 300]


def test_bad_arguments(device: str) -> None:
    x = nbx.zeros((2, 3), device=device)
    with pytest.raises(AxisError, match="give one"):
        nbx.cumulative_sum(x)
    with pytest.raises(AxisError):
        nbx.cumulative_max(x, axis=2)
    with pytest.raises(AxisError):
        nbx.cumulative_sum(nbx.zeros((), device=device), axis=0)
    with pytest.raises(ShapeError, match="wrong shape"):
        nbx.cumulative_sum(x, axis=0, out=nbx.zeros((3, 2), device=device))
    with pytest.raises(DTypeError, match="wrong dtype"):
        nbx.cumulative_sum(x, axis=0, out=nbx.zeros((2, 3), dtype="int32", device=device))
    with pytest.raises(DTypeError):
        nbx.cumulative_sum(x, axis=0, dtype=nbx.bool)
