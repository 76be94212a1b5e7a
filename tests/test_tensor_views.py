"""Views against NumPy: the same elements, in the same memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, ShapeError
from tensor_ops import install


@pytest.fixture(autouse=True, scope="module")
def ops(device):
    with pytest.MonkeyPatch.context() as patch:
        install(patch, device)
        yield


def base(shape, dtype=np.int32):
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def assert_view(x: nbx.Tensor, expected: np.ndarray, memory: np.ndarray) -> None:
    got = np.asarray(x)
    assert x.shape == got.shape == expected.shape
    assert x.dtype.numpy == got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    if got.size:
        assert np.shares_memory(got, memory)
        same = [g == e for g, e, n in zip(got.strides, expected.strides, got.shape, strict=True) if n > 1]
        assert all(same)
        assert got.__array_interface__["data"][0] == expected.__array_interface__["data"][0]


arrays = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4).map(base)
keys = arrays.flatmap(lambda a: st.tuples(st.just(a), hnp.basic_indices(a.shape, allow_newaxis=True, max_dims=8)))


@given(keys)
def test_basic_indexing(pair):
    a, key = pair
    expected = a[key]
    x = nbx.asarray(a)[key]
    if isinstance(expected, np.ndarray):
        assert_view(x, expected, a)
    else:
        assert x.shape == ()
        assert x.item() == expected
    assert np.shares_memory(np.asarray(x), a) or not x.size


@given(keys, st.data())
def test_indexing_a_view(pair, data):
    a, key = pair
    first = a[key]
    if not isinstance(first, np.ndarray):
        return
    order = data.draw(st.permutations(range(first.ndim)))
    second = data.draw(hnp.basic_indices(tuple(first.shape[i] for i in order), allow_newaxis=True))
    x = nbx.asarray(a)[key].permute_dims(order)[second]
    expected = first.transpose(order)[second]
    np.testing.assert_array_equal(np.asarray(x), expected)
    assert np.shares_memory(np.asarray(x), a) or not x.size


@given(arrays, st.data())
def test_permute_dims(a, data):
    order = data.draw(st.permutations(range(a.ndim)))
    signed = [i - a.ndim if data.draw(st.booleans()) else i for i in order]
    assert_view(nbx.permute_dims(nbx.asarray(a), signed), a.transpose(order), a)
    assert_view(nbx.asarray(a).permute_dims(*signed), a.transpose(order), a)


def test_transposes():
    a = base((2, 3, 4))
    x = nbx.asarray(a)
    assert_view(x.mT, a.mT, a)
    assert_view(nbx.matrix_transpose(x), a.mT, a)
    assert_view(x[0].T, a[0].T, a)
    for bad in (x, x[0, 0]):
        with pytest.raises(ShapeError, match="only for two axes"):
            bad.T  # noqa: B018
    with pytest.raises(ShapeError, match="at least two"):
        x[0, 0].mT  # noqa: B018


@given(keys, st.data())
def test_reshape(pair, data):
    a, key = pair
    b = np.asarray(a[key])
    divisors = [d for d in range(1, b.size + 1) if b.size and b.size % d == 0] or [0]
    d = data.draw(st.sampled_from(divisors))
    shape = data.draw(st.sampled_from([(b.size,), (-1,), (d, b.size // d if d else 3), (1, b.size, 1)]))
    x = nbx.asarray(a)[key].reshape(shape)
    expected = b.reshape(shape)
    np.testing.assert_array_equal(np.asarray(x), expected)
    assert x.shape == expected.shape
    if isinstance(a[key], np.ndarray) and b.size:
        shared = np.shares_memory(np.asarray(x), a)
        assert shared == np.shares_memory(expected, a)
        if not shared:
            with pytest.raises(ArgumentError, match="copy=False"):
                nbx.reshape(nbx.asarray(a)[key], shape, copy=False)
        copied = nbx.reshape(nbx.asarray(a)[key], shape, copy=True)
        assert not np.shares_memory(np.asarray(copied), a)
        np.testing.assert_array_equal(np.asarray(copied), expected)


def test_reshape_forms():
    x = nbx.asarray(base((2, 3)))
    assert x.reshape(3, 2).shape == x.reshape((3, 2)).shape == x.reshape([-1, 2]).shape == (3, 2)
    assert x.reshape(-1).shape == x.flatten().shape == x.T.flatten().shape == (6,)
    assert x[:1, :1].reshape(()).shape == ()
    assert x[:1, :1].reshape().shape == ()
    assert x.T.flatten().tolist() == [1, 4, 2, 5, 3, 6]
    with pytest.raises(ShapeError, match=r"nbx\.reshape: cannot hold 6 elements; got \(4,\)"):
        x.reshape(4)
    with pytest.raises(ShapeError):
        x.reshape(2.0)


@given(st.data())
def test_broadcast(data):
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3))
    a, b = (base(s) for s in shapes.input_shapes)
    x, y = nbx.broadcast_arrays(nbx.asarray(a), nbx.asarray(b))
    for t, e, m in zip((x, y), np.broadcast_arrays(a, b), (a, b), strict=True):
        assert_view(t, e, m)
    assert_view(nbx.broadcast_to(nbx.asarray(a), shapes.result_shape), np.broadcast_to(a, shapes.result_shape), a)


def test_broadcast_errors():
    with pytest.raises(ShapeError, match=r"nbx\.broadcast_to: the shape does not broadcast to \(2,\); got \(3,\)"):
        nbx.broadcast_to(nbx.empty(3), (2,))
    with pytest.raises(ShapeError, match=r"nbx\.broadcast_arrays"):
        nbx.broadcast_arrays(nbx.empty(3), nbx.empty(2))


@given(arrays, st.data())
def test_expand_dims_and_squeeze(a, data):
    x = nbx.asarray(a)
    axis = data.draw(st.integers(-a.ndim - 1, a.ndim))
    wide = nbx.expand_dims(x, axis=axis)
    assert_view(wide, np.expand_dims(a, axis), a)
    assert_view(wide.squeeze(axis), a, a)
    assert_view(nbx.squeeze(wide), np.squeeze(a), a)
    several = (0, -1)
    assert_view(nbx.expand_dims(x, several), np.expand_dims(a, several), a)
    assert_view(nbx.squeeze(nbx.expand_dims(x, several), several), a, a)


@given(arrays, st.data())
def test_flip_moveaxis_unstack(a, data):
    x = nbx.asarray(a)
    assert_view(nbx.flip(x), np.flip(a) if a.ndim else a, a)
    if a.ndim:
        axis = data.draw(st.integers(-a.ndim, a.ndim - 1))
        place = data.draw(st.integers(-a.ndim, a.ndim - 1))
        assert_view(nbx.flip(x, axis=axis), np.flip(a, axis), a)
        assert_view(nbx.moveaxis(x, axis, place), np.moveaxis(a, axis, place), a)
        for t, e in zip(nbx.unstack(x, axis=axis), np.moveaxis(a, axis, 0), strict=True):
            np.testing.assert_array_equal(np.asarray(t), e)


def test_axis_errors():
    x = nbx.empty((2, 3))
    with pytest.raises(AxisError, match=r"nbx\.squeeze: the axis is out of range; got 2; allowed: -2 to 1"):
        x.squeeze(2)
    with pytest.raises(ShapeError, match="axis 0 does not have size 1"):
        x.squeeze(0)
    with pytest.raises(AxisError, match="twice"):
        x.expand_dims((0, 0))
    with pytest.raises(AxisError, match="every axis"):
        x.permute_dims(0)
    with pytest.raises(AxisError, match="twice"):
        x.permute_dims(0, -2)
    with pytest.raises(AxisError, match="as many places"):
        nbx.moveaxis(x, (0, 1), 0)


def test_views_keep_the_buffer_alive():
    import gc
    import weakref

    class Owner(np.ndarray):
        pass

    a = np.arange(100_000).view(Owner)
    alive = weakref.ref(a)
    view = nbx.asarray(a)[1:, None].T[0, ::2]
    array = np.asarray(view)
    del a, view
    gc.collect()
    assert alive() is not None
    assert array[3] == 7
    del array
    gc.collect()
    assert alive() is None


def test_writes_are_seen_by_all_views():
    a = base((3, 4))
    x = nbx.asarray(a)
    np.asarray(x.T)[1, 2] = -5
    assert a[2, 1] == -5
    assert x[2, 1].item() == -5
