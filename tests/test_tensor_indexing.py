"""Indexing by arrays and masks, assignment: NumPy's results on every device."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from tensor_ops import install, tensors

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(autouse=True, scope="module")
def ops(device):
    with pytest.MonkeyPatch.context() as patch:
        install(patch, device)
        yield


def base(shape, dtype=np.int32):
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


A = base((3, 4, 5))
I1 = np.array([2, 0, 0, -1])
I2 = np.array([[1, -3], [0, 2]])
ARRAY_KEYS = [
    I1,
    I2,
    (slice(None), I1),
    (slice(None), slice(None, None, -2), I2),
    (..., I1),
    (1, I1),
    (I1, 1),
    (slice(None), 1, I1),
    (slice(None), I1, 1),
    (0, slice(None), I1),
    (I1, slice(1, 3), 0),
    (I1, None),
    (None, I1),
    (1, None, I1),
    (I1, I1),
    (I1, I2[:, :, None]),
    (slice(None), I1, I1),
    (I1, slice(None), I1),
    (I1[:1], ..., I1),
    (I1, I1, I1),
    np.array([], dtype=np.int64),
    (slice(0, 0), I1),
    A > 7,
    A[:, :, 0] % 2 == 0,
    (slice(None), A[0] > 9),
    (slice(None), A[0, :, 0] > 100),
    (..., A[0, 0] > 2),
    (A[:, 0, 0] > 1, 2),
    (A[:, 0, 0] > 1, slice(None), np.array([0, 3])),
    (np.array([0, 1]), A[0] > 18),
    (A[:, :, 0] % 2 == 0, np.array([4])),
    (A[:, :, 0] > 50, np.array([4, 0])),
    np.array([True, False, True]),
    np.array(2),
    I1.astype(np.uint8) % 3,
]


@pytest.mark.parametrize("key", ARRAY_KEYS, ids=str)
@pytest.mark.parametrize("form", ["array", "tensor", "list"])
def test_array_indexing(key, form, device):
    if form == "tensor":
        ours = tensors(key, device)
    elif form == "list":
        parts = key if isinstance(key, tuple) else (key,)
        ours = tuple(p.tolist() if isinstance(p, np.ndarray) else p for p in parts)
    else:
        ours = key
    x = nbx.asarray(A.copy(), device=device)
    got = x[ours]
    np.testing.assert_array_equal(np.asarray(got), A[key])
    assert got.shape == np.asarray(A[key]).shape
    assert got.dtype is nbx.int32


def test_index_arrays_of_another_byte_order():
    np.testing.assert_array_equal(np.asarray(nbx.asarray(A)[I1.astype(">i4")]), A[I1])


@relaxed
@given(st.data())
def test_array_indexing_at_random(data):
    a = base(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4)))
    axis = data.draw(st.integers(0, a.ndim - 1))
    inside = st.integers(-a.shape[axis], a.shape[axis] - 1)
    index = data.draw(hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3), elements=inside))
    others = [data.draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), 0, -1])) for _ in a.shape]
    key = (*others[:axis], index, *others[axis + 1 :])
    np.testing.assert_array_equal(np.asarray(nbx.asarray(a)[key]), a[key])


def test_indexing_errors():
    x = nbx.asarray(A)
    for key, text in [
        (3, r"out of bounds for axis 0 of size 3; got 3; allowed: -3 to 2"),
        ((0, -5), r"axis 1 of size 4; got -5"),
        ((0, 0, 0, 0), r"too many indices for shape \(3, 4, 5\); got 4"),
        ((..., 0, ...), "only one ellipsis"),
        (1.0, r"not an index; got 1\.0; allowed: integers, slices"),
        ("a", "not an index"),
        (slice(0, 1.5), "not a slice"),
        (slice(None, None, 0), "not a slice"),
        (True, "a single bool"),
        (np.bool_(True), "a single bool"),
        (nbx.asarray(True), "a single bool"),
        ([0.5], "integers or bools; got float64"),
        (np.array(["a"]), "integers or bools"),
        (nbx.asarray([1.5]), "integers or bools; got float32"),
        ([3], "out of bounds for an axis of size 3; got 3; allowed: -3 to 2"),
        (nbx.asarray([0, -4]), "size 3; got -4"),
        (np.array([True, False]), r"a mask has the shape of the axes it selects from; got \(2,\); allowed: \(3,\)"),
        ((slice(None), A[0].T > 1), "a mask has the shape"),
    ]:
        with pytest.raises(IndexingError, match=text):
            x[key]
    with pytest.raises(ShapeError, match="do not broadcast"):
        x[[0, 1], [0, 1, 2]]
    with pytest.raises(IndexingError, match="the axis is empty"):
        nbx.empty((0, 3))[0]
    with pytest.raises(IndexingError, match="too many"):
        nbx.asarray(1)[0]
    with pytest.raises(IndexError):
        x[3]


def test_index_objects():
    x = nbx.asarray(A)
    assert x[np.int8(1), nbx.asarray(2), np.array(3)].item() == A[1, 2, 3]
    assert x[nbx.asarray(1) :, : nbx.asarray(2)].shape == (2, 2, 5)
    assert x[()].shape == A.shape


basic = hnp.array_shapes(min_dims=0, max_dims=4, max_side=4).flatmap(
    lambda shape: st.tuples(st.just(shape), hnp.basic_indices(shape, allow_newaxis=True))
)


@relaxed
@given(pair=basic, data=st.data())
def test_setitem(pair, data, device):
    shape, key = pair
    a = base(shape)
    target = np.asarray(a[key]).shape
    axes = data.draw(st.lists(st.booleans(), min_size=len(target), max_size=len(target)))
    value_shape = tuple(1 if one else n for n, one in zip(target, axes, strict=True))
    value_shape = value_shape[data.draw(st.integers(0, len(value_shape))) :] if not all(target) else value_shape
    value = -base(value_shape)
    x = nbx.asarray(a.copy(), device=device)
    try:
        a[key] = value
    except ValueError:
        with pytest.raises(ShapeError):
            x[key] = nbx.asarray(value, device=device)
        return
    x[key] = nbx.asarray(value, device=device)
    np.testing.assert_array_equal(np.asarray(x), a)


def test_setitem_errors():
    x = nbx.asarray(A.copy())
    with pytest.raises(ShapeError, match=r"x\[\.\.\.\] = value: .*does not broadcast to \(4, 5\); got \(3,\)"):
        x[0] = [1, 2, 3]
    with pytest.raises(ArgumentError, match="out of range for int32; got 2147483648"):
        x[0] = 2**31
    with pytest.raises(ArgumentError, match="int32 cannot hold the value; got nan"):
        x[0] = float("nan")
    with pytest.raises(IndexingError, match=r"integer arrays is not supported.*nbx\.where"):
        x[[0, 1]] = 0
    with pytest.raises(ShapeError, match="only one value"):
        x[A > 3] = [1, 2]
    with pytest.raises(DTypeError, match="complex128"):
        x[0] = 1j
    with pytest.raises(IndexingError):
        x[7] = 0
    with pytest.raises(ArgumentError, match="elements of the tensor share memory"):
        nbx.broadcast_to(x[0], (3, 4, 5))[0:2] = 1
    frozen = A.copy()
    frozen.flags.writeable = False
    y = nbx.asarray(frozen)
    with pytest.raises(ArgumentError, match="read-only"):
        y[0] = 1
    np.testing.assert_array_equal(np.asarray(x), A)
