"""Operators, assignment and copies of tensors with the real operators behind them, against NumPy."""

import copy
import operator

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, ShapeError
from tensor_ops import tensors

A = np.arange(1, 61, dtype=np.int32).reshape(3, 4, 5)


def test_scalars_on_either_side(device):
    a = np.array([1.0, 2.0, 4.0], np.float32)
    x = nbx.asarray(a, device=device)
    for f in (
        lambda v: 2 - v,
        lambda v: 2 / v,
        lambda v: operator.lt(3, v),
        lambda v: operator.ge(2, v),
        lambda v: 7 // v,
        lambda v: 7 % v,
        lambda v: 2**v,
        lambda v: v**2,
        lambda v: v - 2,
        lambda v: 2 * v + 1.5,
        lambda v: True + v,
    ):
        got = f(x)
        assert got.dtype.numpy == f(a).dtype
        np.testing.assert_array_equal(np.asarray(got), f(a))


def test_in_place_values(device):
    x = nbx.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    view = x[:, ::2]
    view += 10
    x *= nbx.asarray(np.array([1, 2, 1], np.int32), device=device)
    np.testing.assert_array_equal(np.asarray(x), [[10, 2, 12], [13, 8, 15]])


def test_in_place_operands_that_share_memory(device):
    a = np.arange(8, dtype=np.int32)
    x = nbx.asarray(a.copy(), device=device)
    x[1:] += x[:-1]
    np.testing.assert_array_equal(np.asarray(x), np.concatenate([a[:1], a[1:] + a[:-1]]))
    x = nbx.asarray(a.copy(), device=device)
    x += x[::-1]
    np.testing.assert_array_equal(np.asarray(x), a + a[::-1])
    x = nbx.asarray(a.reshape(2, 4).copy(), device=device)
    x -= x[0]
    np.testing.assert_array_equal(np.asarray(x), a.reshape(2, 4) - a[:4])
    x += x
    np.testing.assert_array_equal(np.asarray(x), 2 * (a.reshape(2, 4) - a[:4]))


def test_copy_copies(device):
    x = nbx.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    for y in (copy.copy(x.T), copy.deepcopy(x.T), x.T.copy(), copy.deepcopy([x.T])[0]):
        y[0, 0] = 9
        assert y.shape == (3, 2)
        assert y.is_contiguous
    assert x[0, 0].item() == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "value", [True, 3, 2.75, np.float32(1.5), [1, 0, 1], [0.5, 1.5, 2.5], np.array([1, 2, 3], np.uint8)]
)
def test_setitem_converts(dtype, value, device):
    d = getattr(nbx, dtype)
    x = nbx.asarray(np.zeros((2, 3), d.numpy), device=device)
    a = np.zeros((2, 3), d.numpy)
    x[1] = value
    a[1] = value
    np.testing.assert_array_equal(np.asarray(x).astype(np.float64), a.astype(np.float64))


def test_setitem_surplus_axes():
    x = nbx.asarray(np.zeros((2, 3), np.float32))
    x[...] = nbx.asarray(np.ones((1, 1, 2, 3), np.float32))
    assert x.tolist() == [[1.0] * 3] * 2
    with pytest.raises(ShapeError, match=r"does not broadcast to \(3,\); got \(2, 3\)"):
        x[0] = nbx.asarray(np.ones((2, 3), np.float32))


def test_setitem_where_source_and_target_overlap(device):
    a = np.arange(8, dtype=np.int32)
    for target, source in [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:], np.s_[::-1]),
        (np.s_[::2], np.s_[4:]),
        (np.s_[:], np.s_[:]),
    ]:
        x = nbx.asarray(a.copy(), device=device)
        expected = a.copy()
        expected[target] = a[source]
        x[target] = x[source]
        np.testing.assert_array_equal(np.asarray(x), expected)
    x = nbx.asarray(np.arange(9, dtype=np.int32).reshape(3, 3), device=device)
    x[...] = x.T
    np.testing.assert_array_equal(np.asarray(x), np.arange(9, dtype=np.int32).reshape(3, 3).T)


def test_augmented_assignment_to_items(device):
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    x = nbx.asarray(a.copy(), device=device)
    x[1:, ::2] += 100
    a[1:, ::2] += 100
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize("value", [0, 2.9, True, np.int64(5), "tensor"])
def test_setitem_through_a_mask(value, device):
    for key in (A > 7, (slice(None), A[0] > 9), (1, A[0, :, 0] > 3), (..., A[0, 0] > 2), A[:, :, 0] > 20):
        a = A.copy()
        x = nbx.asarray(A.copy(), device=device)
        x[tensors(key, device)] = nbx.asarray([7.5], device=device) if isinstance(value, str) else value
        a[key] = 7.5 if isinstance(value, str) else value
        np.testing.assert_array_equal(np.asarray(x), a)
        assert x.dtype is nbx.int32


def test_copy_argument():
    a = np.zeros(3, np.float32)
    assert not np.shares_memory(nbx.asarray(a, copy=True).numpy(), a)
    assert np.shares_memory(nbx.asarray(a, copy=False).numpy(), a)
    assert not np.shares_memory(nbx.asarray(a, dtype="float64").numpy(), a)
    x = nbx.asarray(a)
    assert nbx.asarray(x) is x
    assert nbx.asarray(x, copy=False) is x
    assert not np.shares_memory(nbx.asarray(x, copy=True).numpy(), a)
    assert nbx.asarray(x, dtype="int8").dtype is nbx.int8
    for value, options in [
        (a, {"dtype": "int8"}),
        (x, {"dtype": "int8"}),
        ([1], {}),
        (2.5, {}),
        (x, {"device": "null"}),
    ]:
        with pytest.raises(ArgumentError, match="by a copy only"):
            nbx.asarray(value, copy=False, **options)
    with pytest.raises(ArgumentError, match="by a copy only"):
        nbx.asarray(a, copy=False, device="null")


def test_asarray_of_tensors_in_a_list():
    x = nbx.asarray([1.0, 2.0])
    assert nbx.asarray([x, x + 1]).tolist() == [[1.0, 2.0], [2.0, 3.0]]
