"""Making tensors, and NumPy both ways."""

import array
import weakref

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from tensor_ops import install


@pytest.fixture(autouse=True)
def ops(monkeypatch, device):
    install(monkeypatch, device)


def address(a):
    return a.__array_interface__["data"][0]


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_round_trip_without_a_copy(d):
    a = np.arange(24).reshape(2, 3, 4).astype(d.numpy)
    for view in (a, a[::-1, :, ::2], a.T, a[1:1], a[0, 0, 0:1], a[..., None]):
        x = nbx.from_numpy(view)
        assert x.dtype is d
        assert x.shape == view.shape
        b = np.asarray(x)
        assert b.dtype == view.dtype
        assert b.flags.writeable
        np.testing.assert_array_equal(b.astype(np.float64), view.astype(np.float64))
        if view.size:
            assert address(b) == address(view) == x.ptr
            assert x.buffer.ptr <= x.ptr < x.buffer.ptr + x.buffer.nbytes


def test_asarray_shares_memory_and_writes_go_through():
    a = np.zeros(4, np.float32)
    x = nbx.asarray(a)
    a[1] = 5
    assert x[1].item() == 5
    np.asarray(x)[2] = 6
    assert a[2] == 6


def test_read_only_stays_read_only():
    a = np.arange(3)
    a.flags.writeable = False
    x = nbx.asarray(a)
    assert x.readonly
    assert x[1:].readonly
    assert not np.asarray(x).flags.writeable
    assert not nbx.asarray(a, copy=True).readonly
    assert not x.copy().readonly
    np.asarray(x.copy())[0] = 1


def test_arrays_that_cannot_be_shared_are_copied():
    big = np.arange(3, dtype=">i4")
    gap = np.zeros(3, np.dtype([("a", "i1"), ("b", "<i4")]))["b"]
    gap[:] = [0, 1, 2]
    for a in (big, gap):
        assert nbx.asarray(a).tolist() == [0, 1, 2]
        assert nbx.asarray(a).dtype is nbx.int32
        with pytest.raises(ArgumentError, match=r"nbx\.from_numpy: the array becomes int32 by a copy only"):
            nbx.from_numpy(a)
        with pytest.raises(ArgumentError, match="copy only"):
            nbx.asarray(a, copy=False)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (3, "int64"),
        (2.5, "float32"),
        ([1, 2], "int64"),
        ([1, 2.5], "float32"),
        ([[True, False]], "bool"),
        ([], "float32"),
        ((1, 2), "int64"),
        (np.float64(2.5), "float64"),
        (np.float16(2.5), "float16"),
        (np.bool_(True), "bool"),
        (ml_dtypes.bfloat16(2.5), "bfloat16"),
        (range(3), "int64"),
        (array.array("f", [1, 2]), "float32"),
        (array.array("d", [1, 2]), "float64"),
        (memoryview(b"ab"), "uint8"),
        (bytearray(b"ab"), "uint8"),
    ],
    ids=lambda v: type(v).__name__ if " at 0x" in str(v) else str(v),
)
def test_asarray_of_values(value, dtype):
    x = nbx.asarray(value)
    assert x.dtype.name == dtype
    assert x.shape == np.shape(value)
    np.testing.assert_array_equal(np.asarray(x).astype(np.float64), np.asarray(value).astype(np.float64))


def test_asarray_with_a_dtype():
    assert nbx.asarray([0.1], dtype="bfloat16").item() == 0.10009765625
    assert nbx.asarray([1.5, 2.5], dtype=nbx.float16).dtype is nbx.float16
    assert nbx.asarray([0, 3], dtype=bool).tolist() == [False, True]
    assert nbx.asarray(2**53 + 1, dtype="int64").item() == 2**53 + 1
    assert nbx.asarray(2**64 - 1, dtype="uint64").item() == 2**64 - 1
    assert nbx.asarray([0.1], dtype="float64").item() == 0.1


@pytest.mark.parametrize(
    "bad",
    ["text", object(), 1j, [1j], np.array(["a"]), np.datetime64("2020"), None, b"ab", 2**70, np.longdouble(1)],
    ids=lambda v: type(v).__name__ if " at 0x" in repr(v) else repr(v),
)
def test_values_without_a_dtype(bad):
    with pytest.raises(DTypeError, match=r"nbx\.asarray: no tensor holds NumPy's dtype"):
        nbx.asarray(bad)


def test_bad_arguments():
    with pytest.raises(ArgumentError, match="do not form an array"):
        nbx.asarray([[1, 2], [3]])
    with pytest.raises(ArgumentError, match=r"out of bounds|too large"):
        nbx.asarray([300], dtype="uint8")
    with pytest.raises(DTypeError, match=r"nbx\.asarray: unknown dtype; got 'float31'"):
        nbx.asarray([1], dtype="float31")
    with pytest.raises(DeviceError, match="no device has this name"):
        nbx.asarray([1], device="abacus")
    with pytest.raises(ShapeError, match=r"nbx\.empty"):
        nbx.empty((2, -1))
    with pytest.raises(DTypeError, match=r"nbx\.empty"):
        nbx.empty(2, dtype="complex64")


def test_dunder_array():
    a = np.arange(3, dtype=np.float32)
    x = nbx.asarray(a)
    assert np.shares_memory(np.asarray(x), a)
    assert np.shares_memory(np.asarray(x, copy=False), a)
    assert not np.shares_memory(np.array(x), a)
    assert not np.shares_memory(np.asarray(x, copy=True), a)
    assert np.asarray(x, dtype=np.int8).dtype == np.int8
    assert np.shares_memory(np.asarray(x, dtype=np.float32), a)
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, dtype=np.int8, copy=False)
    assert np.stack([x, x]).shape == (2, 3)
    assert np.array_equal(x, a)


def test_numpy_arrays_keep_the_tensor_alive():
    x = nbx.empty(1000, "int64")
    a = x.numpy()
    a[:] = np.arange(1000)
    del x
    others = [nbx.empty(1000, "int64").numpy() for _ in range(20)]
    for other in others:
        other[:] = -1
    assert a.sum() == 499500


def test_the_array_is_released_with_the_last_tensor():
    class Owner(np.ndarray):
        pass

    a = np.zeros(3).view(Owner)
    alive = weakref.ref(a)
    x = nbx.asarray(a)
    y = x[1:]
    del a, x
    assert alive() is not None
    del y
    assert alive() is None


def test_default_device():
    assert nbx.default_device().name == "cpu"
    nbx.set_default_device("null")
    try:
        assert nbx.default_device().name == "null"
        assert nbx.empty(2).device.name == "null"
        assert nbx.asarray([1]).device.name == "null"
        assert nbx.asarray(nbx.empty(2, device="cpu")).device.name == "cpu"
    finally:
        nbx.set_default_device(None)
    assert nbx.empty(2).device.name == "cpu"


def test_default_device_from_the_environment(monkeypatch):
    monkeypatch.setenv("NBX_DEVICE", "null")
    assert nbx.empty(2).device.name == "null"
    monkeypatch.setenv("NBX_DEVICE", "toaster")
    with pytest.raises(DeviceError, match="toaster"):
        nbx.empty(2)


def test_info():
    for d in (nbx.float16, nbx.bfloat16, nbx.float32, nbx.float64, nbx.float8_e4m3fn, nbx.float8_e5m2):
        ours, theirs = nbx.finfo(d), ml_dtypes.finfo(d.numpy)
        assert ours.dtype is d
        for name in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, name) == float(getattr(theirs, name)), (d, name)
    for d in dtypes.INTEGERS:
        ours, theirs = nbx.iinfo(nbx.empty(1, d)), np.iinfo(d.numpy)
        assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)
    with pytest.raises(DTypeError):
        nbx.finfo("int8")
    with pytest.raises(DTypeError):
        nbx.iinfo(nbx.float32)
    assert nbx.isdtype(nbx.int8, "integral")
    assert nbx.isdtype(nbx.uint8, ("bool", nbx.uint8))
    assert not nbx.isdtype(nbx.bool, "numeric")
    assert not nbx.isdtype(nbx.float32, "complex floating")
    with pytest.raises(ArgumentError, match="unknown kind"):
        nbx.isdtype(nbx.int8, "whole")
    assert nbx.can_cast(nbx.empty(1, "int8"), nbx.int16)
    assert nbx.result_type(nbx.empty(1, "int8"), nbx.uint8, 3) is nbx.int16
