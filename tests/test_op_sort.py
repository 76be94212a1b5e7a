"""sort, argsort and sort_with_indices: every dtype, direction, axis, layout and length; bad arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get
from sort_tools import DTYPES, check, numbers, same_bits

BOTH = ("float32", "bfloat16", "uint64")
DIRECTIONS = {d: (False, True) if d in BOTH else (i % 2 == 1,) for i, d in enumerate(DTYPES)}
LENGTHS = (1, 2, 3, 4, 5, 31, 32, 33, 64, 65, 128, 129, 1000, 1024, 1025)


@pytest.fixture(scope="module", autouse=True)
def compiled(device: str) -> None:
    """Compile the kernels of the dtype tests in parallel."""
    null = get(f"null:{get(device).target.arch}")
    null.clear()
    for dtype in DTYPES:
        for descending in DIRECTIONS[dtype]:
            nbx.sort_with_indices(nbx.empty((3, 40), dtype=dtype, device=null.name), -1, descending)
    compile_many([call.job for call in null.calls])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str, device: str) -> None:
    x = numbers(dtype, (3, 40))
    for descending in DIRECTIONS[dtype]:
        check(*nbx.sort_with_indices(nbx.asarray(x, device=device), -1, descending), x, -1, descending, None)


def test_the_reference_is_right() -> None:
    x = np.array([2.0, np.nan, -0.0, 0.0, -np.nan, np.inf, -np.inf, 2.0], np.float32)
    x.view(np.uint32)[4] = 0xFFC00001
    tensor = nbx.asarray(x)
    assert nbx.argsort(tensor).tolist() == [6, 2, 3, 0, 7, 5, 1, 4]
    assert nbx.argsort(tensor, descending=True).tolist() == [1, 4, 5, 0, 7, 2, 3, 6]


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(length: int, device: str) -> None:
    x = numbers("float32", (3, length), length)
    for descending in (False, True):
        check(*nbx.sort_with_indices(nbx.asarray(x, device=device), -1, descending), x, -1, descending, None)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_long_rows(dtype: str, device: str) -> None:
    x = numbers(dtype, (2, 20_001))
    check(*nbx.sort_with_indices(nbx.asarray(x, device=device), -1), x, -1, False, None)


@pytest.mark.parametrize("spread", [1, 200, 70_000, 1 << 25])
def test_constant_digits(spread: int, device: str) -> None:
    x = np.random.default_rng(spread).integers(0, spread, (2, 10_000), np.int32) + 5
    check(*nbx.sort_with_indices(nbx.asarray(x, device=device), -1), x, -1, False, None)


@pytest.mark.parametrize("axis", [0, 1, 2, -3])
def test_axes(axis: int, device: str) -> None:
    x = numbers("float32", (7, 20, 5))
    check(*nbx.sort_with_indices(nbx.asarray(x, device=device), axis), x, axis, False, None)


def test_values_and_indices_alone(device: str) -> None:
    x = numbers("float32", (4, 70))
    a = nbx.asarray(x, device=device)
    for descending in (False, True):
        values, indices = nbx.sort(a, descending=descending), nbx.argsort(a, -1, descending)
        check(values, indices, x, -1, descending, None)
        assert same_bits(nbx.sort(a, descending=descending, stable=False), np.asarray(nbx.to_numpy(values)))


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "transposed": x.T,
        "sliced": x[1::2, 3:40:3],
        "reversed": x[::-1, ::-1],
        "broadcast rows": np.broadcast_to(x[2], (5, x.shape[1])),
        "broadcast along the row": np.broadcast_to(x[:, :1], (x.shape[0], 9)),
    }


@pytest.mark.parametrize("name", ["transposed", "sliced", "reversed", "broadcast rows", "broadcast along the row"])
def test_views_are_not_copied(name: str, device: str) -> None:
    x = numbers("float32", (8, 50))
    a = nbx.asarray(x, device=device)
    seen = {
        "transposed": lambda: nbx.permute_dims(a, (1, 0)),
        "sliced": lambda: a[1::2, 3:40:3],
        "reversed": lambda: a[::-1, ::-1],
        "broadcast rows": lambda: nbx.broadcast_to(a[2], (5, 50)),
        "broadcast along the row": lambda: nbx.broadcast_to(a[:, :1], (8, 9)),
    }[name]()
    for axis in (0, 1):
        check(*nbx.sort_with_indices(seen, axis), np.ascontiguousarray(views(x)[name]), axis, False, None)
    null = get(f"null:{get(device).target.arch}")
    empty = nbx.permute_dims(nbx.empty((8, 50), dtype="float32", device=null.name), (1, 0))
    null.clear()
    nbx.sort(empty)
    assert all("sort" in call.job.fn.name for call in null.calls)


def test_out(device: str) -> None:
    a = nbx.asarray(numbers("float32", (6, 30)), device=device)
    values, indices = nbx.sort_with_indices(a)
    wide = nbx.zeros((6, 60), dtype="float32", device=device)
    given = wide[:, ::2]
    assert nbx.sort(a, out=given) is given
    assert same_bits(given, np.asarray(nbx.to_numpy(values)))
    assert not np.asarray(nbx.to_numpy(wide[:, 1::2])).any()
    places = nbx.empty((6, 30), dtype="int64", device=device)
    nbx.argsort(a, out=places)
    assert same_bits(places, np.asarray(nbx.to_numpy(indices)))
    assert nbx.sort(a, out=a) is a
    assert same_bits(a, np.asarray(nbx.to_numpy(values)))


def test_out_that_overlaps(device: str) -> None:
    x = numbers("float32", (40,))
    a = nbx.asarray(x.copy(), device=device)
    nbx.sort(a[:-1], out=a[1:])
    check(a[1:], nbx.argsort(nbx.asarray(x[:-1], device=device)), x[:-1], -1, False, None)


def test_public_bugs(device: str) -> None:
    def order(values: list[float], dtype: str = "float32", axis: int = -1) -> list[int]:
        return nbx.argsort(nbx.asarray(np.array(values, dtypes.dtype(dtype).numpy), device=device), axis).tolist()

    signed = np.arange(129, dtype=np.float32)
    signed.view(np.uint32)[5:127:22] = 0xFFC00000
    assert nbx.argsort(nbx.asarray(signed, device=device)).tolist()[-7:] == [128, 5, 27, 49, 71, 93, 115]
    assert order([0.0, -0.0]) == [0, 1]
    assert sorted(order([16, 17, 18, 19] * 6, "int64")) == list(range(24))
    assert order([1, np.nan, 0], "bfloat16") == [2, 0, 1]
    assert order([3, np.nan, 1, 2, np.nan, 0]) == [5, 2, 3, 0, 1, 4]
    column = np.array([[2], [np.nan], [1], [np.nan], [0]], np.float32)
    assert nbx.argsort(nbx.asarray(column, device=device), 0).tolist() == [[4], [2], [0], [1], [3]]
    assert order([3, 1, 2]) == [1, 2, 0]


def test_empty_tensors_launch_nothing(device: str) -> None:
    null = get(f"null:{get(device).target.arch}")
    null.clear()
    for shape, axis in (((0,), 0), ((3, 0), 1), ((0, 3), 1), ((4, 0, 5), 0)):
        values, indices = nbx.sort_with_indices(nbx.empty(shape, dtype="float16", device=null.name), axis)
        assert (values.shape, values.dtype) == (shape, nbx.float16)
        assert (indices.shape, indices.dtype) == (shape, nbx.int64)
        assert nbx.sort(nbx.empty(shape, dtype="bool", device=device), axis).shape == shape
    assert not null.calls


def test_bad_arguments(device: str) -> None:
    x = nbx.zeros((3, 4), dtype="float32", device=device)
    for axis in (2, -3, 100):
        with pytest.raises(AxisError, match="out of range"):
            nbx.sort(x, axis)
    for function in (nbx.sort, nbx.argsort, nbx.sort_with_indices):
        with pytest.raises(AxisError, match="0 dimensions"):
            function(nbx.asarray(1.0, device=device), 0)
        with pytest.raises(DTypeError, match="float8_e5m2"):
            function(nbx.zeros((3,), dtype="float8_e5m2", device=device))
        with pytest.raises(ArgumentError, match="not a tensor"):
            function([1, 2, 3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="wrong shape"):
        nbx.sort(x, out=nbx.zeros((4, 3), dtype="float32", device=device))
    with pytest.raises(DTypeError, match="wrong dtype"):
        nbx.argsort(x, out=nbx.zeros((3, 4), dtype="int32", device=device))
    with pytest.raises(ArgumentError, match="share memory"):
        nbx.sort(x, out=nbx.broadcast_to(nbx.zeros((4,), dtype="float32", device=device), (3, 4)))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.booleans())
def test_a_stable_permutation(values: list[int], descending: bool) -> None:
    indices = nbx.argsort(nbx.asarray(np.array(values, np.int32)), 0, descending).tolist()
    sign = -1 if descending else 1
    assert indices == sorted(range(len(values)), key=lambda i: sign * values[i])


@pytest.mark.gpu
def test_a_row_of_more_than_2_to_the_31(device: str) -> None:
    n = (1 << 31) + 5
    x = nbx.zeros((n,), dtype="uint8", device=device)
    for at in (0, 1 << 31, n - 1):
        x[at] = 3
    x[(1 << 31) - 1] = 7
    values = nbx.sort(x)
    assert values[-5:].tolist() == [0, 3, 3, 3, 7]
    assert int(nbx.sum(values[: n - 4])) == 0
