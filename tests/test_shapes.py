import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from nbxtensor.base import shapes
from nbxtensor.base.errors import AxisError, ShapeError

small_shapes = st.lists(st.integers(0, 4), max_size=5).map(tuple)
mixed_shapes = st.lists(st.integers(1, 3), max_size=5).map(tuple)


def view(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The offsets that a view touches, by NumPy."""
    low, high = shapes.extent(shape, strides)
    flat = np.arange(low, max(high, low + 1))
    return as_strided(flat[-low:], shape, tuple(8 * s for s in strides))


@st.composite
def layouts(draw: st.DrawFn, min_size: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides that views can have: permuted, stepped, reversed, broadcast."""
    array = np.zeros(draw(st.lists(st.integers(min_size, 4), max_size=4)), np.int8)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    steps = st.sampled_from([1, 1, 1, 2, -1, -2])
    array = array[tuple(slice(None, None, draw(steps)) for _ in array.shape)]
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
    repeat = [draw(st.integers(1, 3)) if n == 1 else n for n in array.shape]
    array = np.broadcast_to(array, (*lead, *repeat))
    return array.shape, array.strides


@given(small_shapes)
def test_contiguous(shape):
    strides = shapes.contiguous_strides(shape)
    assert shapes.is_contiguous(shape, strides)
    if 0 not in shape:
        assert strides == np.zeros(shape, np.int8).strides
        assert list(view(shape, strides).ravel()) == list(range(math.prod(shape)))


@given(layouts())
def test_is_contiguous_agrees_with_numpy(layout):
    shape, strides = layout
    array = as_strided(np.zeros(4**6, np.int8), shape, strides)
    assert shapes.is_contiguous(shape, strides) == array.flags.c_contiguous


@given(layouts())
def test_extent_and_overlap(layout):
    shape, strides = layout
    low, high = shapes.extent(shape, strides)
    offsets = view(shape, strides).ravel()
    if offsets.size:
        assert (offsets.min(), offsets.max() + 1) == (low, high)
        assert shapes.may_overlap_itself(shape, strides) == (len(set(offsets)) < offsets.size)
    else:
        assert (low, high) == (0, 0)
        assert not shapes.may_overlap_itself(shape, strides)


def test_windows_overlap():
    assert shapes.may_overlap_itself((3, 2), (1, 1))
    assert not shapes.may_overlap_itself((3, 2), (2, 1))
    assert not shapes.may_overlap_itself((2, 3), (1, -2))


@given(st.lists(small_shapes, max_size=4))
def test_broadcast_shapes(given_shapes):
    try:
        expected = np.broadcast_shapes(*given_shapes)
    except ValueError:
        with pytest.raises(ShapeError, match=r"nbx\.add: shapes do not broadcast"):
            shapes.broadcast_shapes(*given_shapes, function="nbx.add")
    else:
        assert shapes.broadcast_shapes(*given_shapes) == expected


@given(small_shapes, small_shapes)
def test_broadcast_strides(shape, target):
    array = np.zeros(shape, np.int8)
    strides = shapes.contiguous_strides(shape)
    try:
        expected = np.broadcast_to(array, target)
    except ValueError:
        with pytest.raises(ShapeError, match="does not broadcast"):
            shapes.broadcast_strides(shape, strides, target)
        return
    got = shapes.broadcast_strides(shape, strides, target)
    if 0 not in target:
        assert all(g == e or n == 1 for g, e, n in zip(got, expected.strides, target, strict=True))


def factorizations(size: int, ndim: int):
    if ndim == 0:
        if size == 1:
            yield ()
        return
    for n in range(1, size + 1):
        if size % n == 0:
            for rest in factorizations(size // n, ndim - 1):
                yield (n, *rest)


@given(layouts(min_size=1), st.data())
def test_reshape_strides(layout, data):
    shape, strides = layout
    size = math.prod(shape)
    targets = list(itertools.chain.from_iterable(factorizations(size, k) for k in range(4)))
    target = data.draw(st.sampled_from(targets))
    expected = view(shape, strides).reshape(target)
    got = shapes.reshape_strides(shape, strides, target)
    if got is None:
        # NumPy agrees that no strides exist, or (size-1 axes, broadcast axes) shows the same elements by copying.
        with pytest.raises(ValueError):
            view(shape, strides).reshape(target, copy=False)
    else:
        assert np.array_equal(view(target, got), expected)


def test_reshape_strides_by_hand():
    assert shapes.reshape_strides((2, 3, 4), (12, 4, 1), (6, 4)) == (4, 1)
    assert shapes.reshape_strides((2, 3, 4), (12, 4, 1), (2, 3, 2, 2)) == (12, 4, 2, 1)
    assert shapes.reshape_strides((3, 2), (1, 3), (6,)) is None
    assert shapes.reshape_strides((3, 2), (1, 3), (3, 1, 2)) is not None
    assert shapes.reshape_strides((), (), (1, 1)) == (1, 1)
    assert shapes.reshape_strides((1,), (7,), ()) == ()
    assert shapes.reshape_strides((0, 3), (3, 1), (3, 0)) == (1, 1)
    assert shapes.reshape_strides((4,), (0,), (2, 2)) == (0, 0)
    assert shapes.reshape_strides((4,), (-1,), (2, 2)) == (-2, -1)


@pytest.mark.parametrize(
    ("size", "shape", "expected"),
    [
        (6, (-1,), (6,)),
        (6, (2, -1), (2, 3)),
        (0, (0, 3), (0, 3)),
        (0, (-1, 3), (0, 3)),
        (1, (), ()),
        (6, (4, -1), None),
        (6, (-1, -1), None),
        (6, (7,), None),
        (6, (-2, -3), None),
        (0, (0, -1), None),
    ],
)
def test_infer_shape(size, shape, expected):
    if expected is None:
        with pytest.raises(ShapeError, match="reshape"):
            shapes.infer_shape(size, shape)
    else:
        assert shapes.infer_shape(size, shape) == expected


@given(st.integers(0, 5), st.integers(-8, 8))
def test_normalize_axis(ndim, axis):
    if -ndim <= axis < ndim:
        assert shapes.normalize_axis(axis, ndim, "f") == axis % ndim
    else:
        with pytest.raises(AxisError, match="f: the axis is out of range"):
            shapes.normalize_axis(axis, ndim, "f")


def test_normalize_axes():
    assert shapes.normalize_axes(None, 3, "f") == (0, 1, 2)
    assert shapes.normalize_axes(-1, 3, "f") == (2,)
    assert shapes.normalize_axes([2, -3], 3, "f") == (2, 0)
    assert shapes.normalize_axes((), 3, "f") == ()
    with pytest.raises(AxisError, match="twice"):
        shapes.normalize_axes((0, -3), 3, "f")
    with pytest.raises(AxisError, match="an axis is an int"):
        shapes.normalize_axis(1.0, 3, "f")
    with pytest.raises(AxisError, match="0 dimensions"):
        shapes.normalize_axis(0, 0, "f")


def test_reduced_shape():
    assert shapes.reduced_shape((2, 3, 4), (0, 2), False) == (3,)
    assert shapes.reduced_shape((2, 3, 4), (0, 2), True) == (1, 3, 1)


@given(layouts(), st.integers(1, 3), st.data())
def test_merge_dims_visits_the_same_elements(layout, operands, data):
    shape, strides = layout
    every = [strides] + [
        tuple(data.draw(st.sampled_from([s, 0, c]))
              for s, c in zip(strides, shapes.contiguous_strides(shape), strict=True))
        for _ in range(operands - 1)
    ]  # fmt: skip
    merged, merged_strides = shapes.merge_dims(shape, every)
    assert len(merged) >= 1
    assert math.prod(merged) == math.prod(shape)
    for before, after in zip(every, merged_strides, strict=True):
        assert list(view(shape, before).ravel()) == list(view(merged, after).ravel())


def test_merge_dims_merges_all_it_can():
    assert shapes.merge_dims((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), ((1,), (1,)))
    assert shapes.merge_dims((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), ((12, 1), (0, 1)))
    assert shapes.merge_dims((2, 1, 4), [(4, 99, 1)]) == ((8,), ((1,),))
    assert shapes.merge_dims((), [()]) == ((1,), ((1,),))
    assert shapes.merge_dims((3, 0), [(5, 7)]) == ((0,), ((1,),))
    assert len(shapes.merge_dims((2,) * 62, [tuple(10**k for k in range(62))])[0]) == 62


@given(st.integers(0, 9), st.none() | st.integers(-12, 12), st.none() | st.integers(-12, 12), st.integers(-3, 3))
def test_slice_axis(n, start, stop, step):
    key = slice(start, stop, step or None)
    for step in (5, -5, 0):
        offset, size, stride = shapes.slice_axis(n, step, key)
        assert [offset + i * stride for i in range(size)] == [step * i for i in range(n)[key]]


def test_as_shape():
    assert shapes.as_shape(3, "f") == (3,)
    assert shapes.as_shape([2, np.int64(3)], "f") == (2, 3)
    assert shapes.as_shape((), "f") == ()
    assert shapes.as_shape((0, 2**62), "f") == (0, 2**62)
    for bad in (2.0, "23", (1, 2.0), None, -1, (2, -1), (2**40, 2**40), (0, 2**40, 2**40), (1,) * 65):
        with pytest.raises(ShapeError, match="f: "):
            shapes.as_shape(bad, "f")
