"""take, take_along_axis, gather_nd, embedding, concat, stack, tile, repeat, pad."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError, IndexingError, ShapeError
from nbxtensor.kernel.gather import gather
from nbxtensor.ops import take as take_op
from rows_helpers import layouts

RNG = np.random.default_rng(0)
F = np.float32
NAN_BITS = np.array([0x7FC00001, 0xFFC00000, 0x80000000, 0x7F800001], np.uint32).view(F)


def same(got: nbx.Tensor, want: np.ndarray[Any, Any]) -> None:
    assert got.shape == want.shape
    assert got.dtype.name == want.dtype.name
    raw = f"u{want.dtype.itemsize}"
    np.testing.assert_array_equal(got.numpy().view(raw), np.ascontiguousarray(want).view(raw))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(axis: int, device: str) -> None:
    x = RNG.standard_normal((6, 5, 9)).astype(F)
    index = RNG.integers(-x.shape[axis], x.shape[axis], (3, 4))
    for _, t in layouts(x, device):
        same(nbx.take(t, nbx.asarray(index[0], device=device), axis=axis), x.take(index[0], axis=axis))
    t = nbx.asarray(x, device=device)
    same(nbx.take(t, nbx.asarray(index, device=device), axis=axis), x.take(index, axis=axis))
    turned = nbx.asarray(index.T.copy(), device=device).T
    same(nbx.take(t, turned, axis=axis), x.take(index, axis=axis))
    same(nbx.take(t, nbx.asarray(np.zeros(0, np.int64), device=device), axis=axis), x.take(np.zeros(0, int), axis=axis))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("index_dtype", ["int32", "uint8"])
def test_take_keeps_raw_bits(dtype: str, index_dtype: str, device: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = NAN_BITS if dtype == "float32" else RNG.integers(0, 2, 4).astype(kind)
    index = np.array([3, 0, 1, 2, 2], index_dtype)
    same(nbx.take(nbx.asarray(x, device=device), nbx.asarray(index, device=device)), x[index])


def test_take_along_axis(device: str) -> None:
    x = RNG.standard_normal((4, 5, 6)).astype(F)
    for axis in (0, 1, 2):
        shape = list(x.shape)
        shape[axis] = 3
        index = RNG.integers(-x.shape[axis], x.shape[axis], shape)
        for _, t in layouts(x, device):
            got = nbx.take_along_axis(t, nbx.asarray(index, device=device), axis=axis)
            same(got, np.take_along_axis(x, index, axis))
    one = RNG.integers(0, 5, (1, 2, 1))
    got = nbx.take_along_axis(nbx.asarray(x, device=device), nbx.asarray(one, device=device), axis=1)
    same(got, np.take_along_axis(x, one, 1))


@pytest.mark.parametrize(("index_shape", "batch_dims"), [((3, 2), 0), ((2, 2, 3), 0), ((7, 1), 0), ((4, 7, 1), 1)])
def test_gather_nd(index_shape: Any, batch_dims: int, device: str) -> None:
    x = RNG.standard_normal((4, 5, 6)).astype(F)
    index = RNG.integers(-4, 4, index_shape)
    got = nbx.nn.gather_nd(nbx.asarray(x, device=device), nbx.asarray(index, device=device), batch_dims)
    same(got, take_op.reference_gather_nd(x, index, batch_dims))


def test_embedding(device: str) -> None:
    w = RNG.standard_normal((50, 384)).astype(F)
    ids = RNG.integers(0, 50, (2, 7))
    same(nbx.nn.embedding(nbx.asarray(ids, device=device), nbx.asarray(w, device=device)), w[ids])
    same(nbx.nn.embedding(nbx.asarray(ids, device=device), nbx.asarray(w.T.copy(), device=device).T), w[ids])


def test_unchecked_indices_go_to_the_nearest_end(device: str) -> None:
    x = nbx.asarray(np.arange(5, dtype=F), device=device)
    index = nbx.asarray(np.array([4, 5, 2**62, -5, -6, -(2**62)]), device=device)
    out = nbx.empty(6, dtype="float32", device=device)
    gather("take", x, (0,), index, (1,), (0,), out)
    same(out, np.array([4, 4, 4, 0, 0, 0], F))


def test_indices_out_of_bounds() -> None:
    x = nbx.asarray(np.arange(5.0, dtype=F))
    for bad in (5, -6):
        with pytest.raises(IndexingError, match="-5 to 4"):
            nbx.take(x, nbx.asarray([0, bad]))
    with pytest.raises(IndexingError, match="empty"):
        nbx.take(nbx.asarray(np.zeros((0, 2), F)), nbx.asarray([0]), axis=0)
    with pytest.raises(IndexingError):
        nbx.nn.gather_nd(nbx.asarray(np.zeros((2, 3), F)), nbx.asarray([[0, 3]]))
    with pytest.raises(DTypeError):
        nbx.take(x, x)
    with pytest.raises(AxisError):
        nbx.take(x, nbx.asarray([0]), axis=1)
    with pytest.raises(ArgumentError):
        nbx.take(nbx.asarray(np.zeros((2, 2), F)), nbx.asarray([0]))
    with pytest.raises(ShapeError):
        nbx.take_along_axis(x, nbx.asarray([[0]]))


def test_concat_and_stack(device: str) -> None:
    parts = [RNG.standard_normal((3, n, 4)).astype(F) for n in (2, 0, 5)]
    parts[0].reshape(-1)[:4] = NAN_BITS
    tensors = [nbx.asarray(p, device=device) for p in parts]
    same(nbx.concat(tensors, axis=1), np.concatenate(parts, axis=1))
    same(nbx.concat([tensors[0].mT, tensors[2].mT], axis=-1), np.concatenate([parts[0], parts[2]], 1).swapaxes(1, 2))
    same(nbx.concat(tensors, axis=None), np.concatenate(parts, axis=None))
    mixed = nbx.concat([nbx.asarray([1, 2], device=device), nbx.asarray(np.array([0.5], F), device=device)])
    assert mixed.tolist() == [1.0, 2.0, 0.5]
    same(nbx.stack([tensors[0]] * 3, axis=-1), np.stack([parts[0]] * 3, axis=-1))
    with pytest.raises(ArgumentError):
        nbx.concat([])
    with pytest.raises(ShapeError):
        nbx.concat(tensors, axis=0)
    with pytest.raises(ShapeError):
        nbx.stack(tensors)


def test_tile_and_repeat(device: str) -> None:
    x = RNG.standard_normal((3, 5)).astype(F)
    t = nbx.asarray(x, device=device)
    for counts in ((2, 3), (4,), (2, 1, 3), (0, 2)):
        same(nbx.tile(t, counts), np.tile(x, counts))
    same(nbx.repeat(t, 3, axis=1), np.repeat(x, 3, axis=1))
    same(nbx.repeat(t, 2), np.repeat(x, 2))
    with pytest.raises(ArgumentError):
        nbx.tile(t, (-1,))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode: Any, device: str) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(F)
    for widths in (((1, 2), (0, 0), (3, 1)), ((0, 0), (2, 2), (0, 0)), ((5, 4), (9, 0), (0, 11)), ((0, 0),) * 3):
        for _, t in layouts(x, device):
            same(nbx.pad(t, widths, mode=mode), np.pad(x, widths, mode))


def test_pad_values(device: str) -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    t = nbx.asarray(x, device=device)
    same(nbx.pad(t, 1, 7), np.pad(x, 1, constant_values=7))
    same(nbx.pad(t, ((-1, 1), (1, -2)), 9), np.array([[9, 3], [9, 9]], np.int32))
    same(nbx.pad(nbx.asarray(np.ones((0, 2), F), device=device), 1, -np.inf), np.full((2, 4), -np.inf, F))
    with pytest.raises(ArgumentError, match="mode"):
        nbx.pad(t, 1, mode="mirror")  # type: ignore[arg-type]
    with pytest.raises(ShapeError):
        nbx.pad(t, -2)
    with pytest.raises(ArgumentError):
        nbx.pad(t, ((1, 1),))
