"""Every way to sort gives the same answer: the kernels for GPUs run on the device under test, with small tiles."""

from functools import partial

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import CompileError
from nbxtensor.base.knobs import num_threads
from nbxtensor.device import get
from nbxtensor.ops.sort.cpu import select_rows, sort_rows
from nbxtensor.ops.sort.cpu_parts import sort_in_parts
from nbxtensor.ops.sort.launches import sort_tiles
from nbxtensor.ops.sort.layout import layout_of
from nbxtensor.ops.sort.radix import radix_plans, radix_sort
from nbxtensor.ops.sort.selection import select
from nbxtensor.ops.sort.settings import Radix, Selection
from sort_tools import by_hand, check, numbers


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "descending"),
    [
        ("float32", (5, 16), -1, False),
        ("float32", (5, 13), -1, True),
        ("float32", (13, 5), 0, False),
        ("bfloat16", (4, 17), -1, True),
        ("float64", (4, 17), -1, False),
        ("bool", (3, 8), -1, True),
        ("uint64", (3, 1), -1, False),
    ],
)
def test_rows_in_registers(dtype: str, shape: tuple[int, ...], axis: int, descending: bool, device: str) -> None:
    by_hand(lambda d, layout: sort_tiles("sort", d, layout), numbers(dtype, shape), axis, descending, device)


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "descending", "setting"),
    [
        ("float32", (3, 100), -1, False, Radix(4, 1, 2, 4)),
        ("int32", (50, 3), 0, True, Radix(4, 1, 256, 4)),
        ("uint64", (2, 40), -1, False, Radix(4, 1, 2, 4)),
        ("float16", (2, 70), -1, True, Radix(4, 1, 3, 4)),
        ("int8", (2, 64), -1, False, Radix(4, 1, 256, 4)),
    ],
)
def test_radix(dtype: str, shape: tuple[int, ...], axis: int, descending: bool, setting: Radix, device: str) -> None:
    if get(device).profile.warp_size > 1:
        setting = Radix(max(7, setting.log), 4, setting.chunk)
    by_hand(lambda d, layout: radix_sort("sort", d, layout, setting), numbers(dtype, shape), axis, descending, device)


def test_radix_skips_constant_digits(device: str) -> None:
    """Rows that need different passes lie in different states; one that needs none is still in the operand."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 2, 60) << shift for shift in (0, 8, 16, 24)]
    rows += [np.zeros(60, np.int64), rng.integers(0, 1 << 30, 60), rng.integers(0, 2, 60) * 0x10100]
    x = np.stack(rows).astype(np.int32)
    setting = Radix(4 if get(device).profile.warp_size == 1 else 7, 1, 256, 4)
    by_hand(lambda d, layout: radix_sort("sort", d, layout, setting), x, -1, False, device)


def test_a_constant_digit_moves_nothing(device: str) -> None:
    x = nbx.asarray(np.arange(60, dtype=np.int32)[::-1].copy(), device=device)
    values, indices = nbx.empty((60,), dtype="int32", device=device), nbx.empty((60,), dtype="int64", device=device)
    strides = ((1,), (1,), (1,))
    layout = layout_of((60,), 0, 60, strides, x.dtype, False, (True, True))
    setting = Radix(4 if get(device).profile.warp_size == 1 else 7, 1, 256, 4)
    passes = radix_plans("sort", x.device, layout, setting)
    places = nbx.full((120,), -1, dtype="int64", device=device)
    starts, totals, bases = (nbx.empty((4 * 256,), dtype="int32", device=device) for _ in range(3))
    done = nbx.zeros((20,), dtype="int32", device=device)
    for p, (counts, histogram, scatter) in enumerate(passes):
        before, after = done.ptr + 16 * p, done.ptr + 16 * (p + 1)
        counts.run(x.ptr, places.ptr, starts.ptr, before)
        histogram.run(starts.ptr, totals.ptr, bases.ptr, before, after)
        scatter.run(x.ptr, places.ptr, starts.ptr, bases.ptr, before, after, values.ptr, indices.ptr)
    assert done[4:13:4].tolist() == [1, 1, 1]
    assert nbx.all(places[60:] == -1)
    assert values.tolist() == list(range(60))
    assert indices.tolist() == list(range(60))[::-1]


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "limit", "piece"),
    [
        ("float32", (3, 100), -1, 3, 4),
        ("float32", (3, 64), -1, 5, 6),
        ("float64", (3, 60), -1, 3, 4),
        ("float16", (60, 3), 0, 1, 4),
    ],
)
def test_selection_by_pieces(
    dtype: str, shape: tuple[int, ...], axis: int, limit: int, piece: int, device: str
) -> None:
    path = lambda d, layout: select("topk", d, layout, Selection(0, 0, piece))  # noqa: E731
    by_hand(path, numbers(dtype, shape), axis, True, device, limit)


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "limit", "size"),
    [
        ("float32", (3, 100), -1, 2, 4),
        ("float32", (2, 1500), -1, 3, 32),
        ("int64", (2, 700), -1, 5, 32),
        ("bfloat16", (200, 3), 0, 2, 8),
    ],
)
def test_selection_by_groups(dtype: str, shape: tuple[int, ...], axis: int, limit: int, size: int, device: str) -> None:
    setting = Selection(size, 1, 6, min(size, 8))
    path = lambda d, layout: select("topk", d, layout, setting)  # noqa: E731
    by_hand(path, numbers(dtype, shape), axis, dtype != "float32", device, limit)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_group_stands_for_its_first_element(dtype: str, device: str) -> None:
    x = np.zeros((1, 4096), dtype)
    columns = 4 * get(device).profile.warp_size
    x[0, [0, 1, 2, 24 * columns]] = 1
    by_hand(lambda d, layout: select("topk", d, layout, Selection(32, 1, 6)), x, -1, True, device, 1)


@pytest.fixture
def one_thread(device: str) -> str:
    """The device under test, if a program is one thread there."""
    if get(device).profile.warp_size > 1:
        pytest.skip("these kernels are for devices where a program is one thread")
    return device


@pytest.mark.parametrize(("bits", "dtype"), [(8, "float32"), (11, "float32"), (11, "float64"), (8, "float16")])
def test_rows_one_after_the_other(dtype: str, bits: int, one_thread: str) -> None:
    x = numbers(dtype, (3, 500))
    digits = (bits, -(-8 * x.dtype.itemsize // bits))
    by_hand(lambda d, layout: sort_rows("sort", d, layout, digits), x, -1, True, one_thread)


@pytest.mark.parametrize(
    ("insert", "dtype"), [(False, "float32"), (True, "float32"), (False, "float64"), (True, "float16")]
)
def test_selection_one_after_the_other(dtype: str, insert: bool, one_thread: str) -> None:
    x = numbers(dtype, (3, 500))
    for limit in (1, 7):
        path = lambda d, layout: select_rows("topk", d, layout, 3, 16, insert)  # noqa: E731
        by_hand(path, x, -1, False, one_thread, limit)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 8), ("int64", 11)])
def test_one_row_in_parts(dtype: str, bits: int, one_thread: str) -> None:
    x = numbers(dtype, (1, 1000))
    digits = (bits, -(-8 * x.dtype.itemsize // bits))
    for parts in (1, 3):
        by_hand(lambda d, layout, parts=parts: sort_in_parts("sort", d, layout, digits, parts), x, -1, True, one_thread)
    few = np.random.default_rng(0).integers(0, 2, (1, 1000)).astype(x.dtype)  # most digits are the same everywhere
    for same in (few, few * 0):
        by_hand(lambda d, layout: sort_in_parts("sort", d, layout, digits, 2), same, -1, True, one_thread)


def test_a_long_row_on_several_threads(device: str) -> None:
    x = numbers("float32", (150_000,))
    for threads in (1, 2):
        with num_threads.override(str(threads)):
            check(*nbx.sort_with_indices(nbx.asarray(x, device=device)[threads:]), x[threads:], -1, False, None)


def test_a_gpu_never_gets_the_kernels_of_one_thread() -> None:
    null = get("null:sm_90")
    strides = ((1,), (1,), (1,))
    layout = layout_of((500,), 0, 5, strides, nbx.float32, False, (True, True))
    parts = partial(sort_in_parts, digits=(8, 4), parts=2)
    for path in (sort_rows, select_rows, parts):
        with pytest.raises(CompileError, match="a program is one thread"):
            path("sort", null, layout)


@pytest.mark.parametrize(
    ("shape", "dtype", "kernels"),
    [
        ((1000, 1024), "float32", ["tile_sort_kernel"]),
        ((10, 4096), "float32", ["tile_sort_kernel"]),
        ((10, 8192), "bfloat16", ["tile_sort_kernel"]),
        ((10, 8192), "float32", ["radix_sort"] * 12),
        ((10, 8192), "float64", ["radix_sort"] * 24),
        ((2, 9000), "float32", ["radix_sort"] * 12),
        ((1, 1 << 20), "bfloat16", ["radix_sort"] * 8),
        ((1, 1 << 20), "int8", ["radix_sort"] * 4),
    ],
)
def test_which_kernels_a_gpu_runs(shape: tuple[int, ...], dtype: str, kernels: list[str]) -> None:
    null = get("null:sm_90")
    null.clear()
    nbx.sort_with_indices(nbx.empty(shape, dtype=dtype, device=null.name))
    names = [call.job.fn.name for call in null.calls]
    assert len(names) == len(kernels)
    assert all(name.startswith(kernel) for name, kernel in zip(names, kernels, strict=True))


def test_rows_beyond_32_bits_are_walked_with_wide_indices() -> None:
    null = get("null:sm_90")
    null.clear()
    nbx.sort_with_indices(nbx.empty(((1 << 32) + 1,), "float32", null.name))
    assert {dict(call.job.constants)["PACK"] for call in null.calls if "PACK" in dict(call.job.constants)} == {0}
    scatter = next(call for call in null.calls if "scatter" in call.job.fn.name)
    assert dict(scatter.job.signature)["bases"] == "*i64"
