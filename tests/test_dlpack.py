"""DLPack both ways with NumPy: layouts, flags, dtypes, lifetimes, streams. See the public bug reports #64 to #72."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from dlpack_tools import OldProducer, Producer
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError
from nbxtensor.tensor.interchange import _DLTensor, _open
from tensor_ops import install


@pytest.fixture(autouse=True)
def ops(monkeypatch):
    install(monkeypatch, "cpu")


VIEWS = {
    "whole": lambda x: x,
    "columns": lambda x: x[:, :2],
    "offset": lambda x: x[1:, 1:],
    "reversed": lambda x: x[::-1, ::-1],
    "transposed": lambda x: x.T,
    "strided": lambda x: x[::2, ::2],
    "one": lambda x: x[1, 1:2],
    "zero-d": lambda x: x[1, 1, ...],
    "empty": lambda x: x[1:1],
    "axis": lambda x: x[None, :, None],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_round_trip(d, view, kind):
    a = np.arange(12).reshape(3, 4).astype(d.numpy)
    x = VIEWS[view](nbx.asarray(a))
    y = nbx.from_dlpack(kind(x))
    assert (y.shape, y.dtype, y.readonly) == (x.shape, d, False)
    np.testing.assert_array_equal(y.numpy().astype(np.float64), VIEWS[view](a).astype(np.float64))
    if x.size:
        assert y.ptr == x.ptr
        assert all(s == t for s, t, n in zip(y.strides, x.strides, x.shape, strict=True) if n > 1)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", [d for d in dtypes.ARITHMETIC if d.name != "bfloat16"], ids=str)
def test_numpy_reads_ours_and_we_read_numpys(d, view):
    a = np.arange(12).reshape(3, 4).astype(d.numpy)
    b = np.from_dlpack(VIEWS[view](nbx.asarray(a)))
    np.testing.assert_array_equal(b, VIEWS[view](a))
    assert b.dtype == d.numpy
    assert np.shares_memory(a, b) or not b.size
    x = nbx.from_dlpack(VIEWS[view](a))
    np.testing.assert_array_equal(x.numpy(), VIEWS[view](a))
    assert np.shares_memory(a, x.numpy()) or not x.size
    assert x.dtype is d


@pytest.mark.parametrize(
    ("d", "code", "bits"),
    [
        ("bool", 6, 8),
        ("int32", 0, 32),
        ("uint64", 1, 64),
        ("float16", 2, 16),
        ("bfloat16", 4, 16),
        ("float8_e4m3fn", 10, 8),
        ("float8_e5m2", 12, 8),
    ],
)
def test_what_the_capsule_says(d, code, bits):
    x = nbx.empty((3, 4), d)[1:, ::2]
    capsule = x.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    tensor, managed = _open(capsule)
    assert managed.major == 1
    assert managed.flags == 0
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1)
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (1, 0, 2)
    assert tensor.data + tensor.byte_offset == x.ptr
    assert list((ctypes.c_int64 * 2).from_address(tensor.shape)) == [2, 2]
    assert list((ctypes.c_int64 * 2).from_address(tensor.strides)) == [4, 2]
    old = x.__dlpack__()
    assert '"dltensor"' in repr(old)
    assert _open(old)[0].code == code
    assert '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))


def test_byte_offset_is_added():
    a = np.arange(10, dtype=np.int32)
    capsule = a.__dlpack__(max_version=(1, 0))
    tensor, _ = _open(capsule)
    tensor.byte_offset = 4
    ctypes.c_int64.from_address(tensor.shape).value = 8

    class Shifted(Producer):
        def __dlpack__(self, **_):
            return capsule

    x = nbx.from_dlpack(Shifted(a))
    assert x.tolist() == list(range(1, 9))


def test_read_only_travels():
    a = np.arange(3)
    a.flags.writeable = False
    x = nbx.asarray(a)
    assert not np.from_dlpack(x).flags.writeable
    assert nbx.from_dlpack(Producer(x)).readonly
    assert nbx.from_dlpack(a).readonly
    assert _open(x.__dlpack__(max_version=(1, 0)))[1].flags == 1
    with pytest.raises(BufferError, match="readonly"):
        x.__dlpack__()
    assert np.from_dlpack(nbx.asarray(np.arange(3))).flags.writeable


def test_copy_and_device_arguments():
    x = nbx.asarray([1.0, 2.0])
    copied = x.__dlpack__(max_version=(1, 0), copy=True)
    tensor, managed = _open(copied)
    assert tensor.data != x.ptr
    assert managed.flags == 2
    shared = x.__dlpack__(dl_device=(1, 0), copy=False)
    assert _open(shared)[0].data == x.ptr
    with pytest.raises(BufferError, match=r"cannot export to device \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises(ArgumentError, match="no streams"):
        x.__dlpack__(stream=1)
    assert x.__dlpack_device__() == (1, 0)
    y = nbx.from_dlpack(Producer(x), copy=True)
    assert y.ptr != x.ptr
    assert nbx.from_dlpack(Producer(x), copy=False).ptr == x.ptr
    assert nbx.from_dlpack(Producer(x), device="null").device.name == "null"
    with pytest.raises(ArgumentError, match="copy only"):
        nbx.from_dlpack(Producer(x), device="null", copy=False)
    asked = []
    spy = Producer(x)
    spy.__class__ = type("Spy", (Producer,), {"__dlpack__": lambda s, **o: asked.append(o) or x.__dlpack__(**o)})
    for copy in (None, True, False):
        nbx.from_dlpack(spy, copy=copy)
    assert [o.get("copy") for o in asked] == [None, None, False]  # True: one copy, made here
    assert nbx.from_dlpack(x).ptr == x.ptr
    assert nbx.asarray(Producer(x)).ptr == x.ptr


def test_a_producer_that_knows_max_version_only():
    class Middle(Producer):
        def __dlpack__(self, stream=None, max_version=None):
            return self._x.__dlpack__(max_version=max_version)

    x = nbx.asarray([1.0, 2.0])
    assert nbx.from_dlpack(Middle(x), copy=True).tolist() == [1.0, 2.0]


def test_what_cannot_be_taken():
    with pytest.raises(ArgumentError, match=r"nbx\.from_dlpack: the object has no __dlpack__; got list"):
        nbx.from_dlpack([1])
    with pytest.raises(DTypeError, match="code 5, 64 bits, 1 lane;"):
        nbx.from_dlpack(np.zeros(2, np.complex64))

    class Used(Producer):
        capsule = None

        def __dlpack__(self, **options):
            self.capsule = self.capsule or super().__dlpack__(**options)
            return self.capsule

    used = Used(np.zeros(2))
    nbx.from_dlpack(used)
    with pytest.raises(ArgumentError, match="not an unused DLPack capsule"):
        nbx.from_dlpack(used)


def patched(field, value):
    """A producer whose capsule has one field changed."""

    class Patched(Producer):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            tensor, managed = _open(capsule)
            setattr(managed if hasattr(managed, field) else tensor, field, value)
            return capsule

    return Patched(np.arange(4, dtype=np.float32))


def test_capsules_of_other_kinds():
    with pytest.raises(BufferError, match="too new"):
        nbx.from_dlpack(patched("major", 2))
    with pytest.raises(DeviceError, match="unknown device type; got 9"):
        nbx.from_dlpack(patched("device_type", 9))
    with pytest.raises(DTypeError, match="4 lanes"):
        nbx.from_dlpack(patched("lanes", 4))
    assert nbx.from_dlpack(patched("device_type", 3)).tolist() == [0, 1, 2, 3]  # pinned host memory


def test_strides_may_be_absent():
    assert nbx.from_dlpack(patched("strides", None)).tolist() == [0, 1, 2, 3]


def test_import_leaves_the_producers_structure_as_it_was():
    seen = []

    class Watched(Producer):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            tensor, _ = _open(capsule)
            seen.append(_DLTensor.from_address(ctypes.addressof(tensor)))
            return capsule

    x = nbx.asarray([1.0], "bfloat16")
    y = nbx.from_dlpack(Watched(x))
    assert (seen[0].code, seen[0].bits, seen[0].device_type) == (4, 16, 1)
    assert y.item() == 1.0


def test_ml_dtypes_without_a_copy():
    a = np.arange(4).astype(ml_dtypes.bfloat16)
    x = nbx.asarray(a)
    y = nbx.from_dlpack(Producer(x))
    assert y.dtype is nbx.bfloat16
    assert np.shares_memory(y.numpy(), a)
    assert y.numpy().dtype == ml_dtypes.bfloat16
