"""DLPack both ways with NumPy: layouts, flags, dtypes, lifetimes, streams. See the public bug reports #64 to #72."""

import ctypes
import gc
import resource
import subprocess
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError
from nbxtensor.tensor import interchange
from nbxtensor.tensor.interchange import _DLTensor, _open
from nbxtensor.tensor.tensor import Tensor
from tensor_ops import install


@pytest.fixture(autouse=True)
def ops(monkeypatch):
    install(monkeypatch, "cpu")


class Producer:
    """Some other library's tensor: only the protocol is visible."""

    def __init__(self, x, **fixed):
        self._x = x
        self._fixed = fixed

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**(options | self._fixed))

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


class OldProducer(Producer):
    """From before DLPack 1: no keyword but stream, capsules without a version."""

    def __dlpack__(self, stream=None):
        return self._x.__dlpack__()


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


def fields(capsule):
    tensor, managed = _open(capsule)
    return tensor, managed


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
    tensor, managed = fields(capsule)
    assert managed.major == 1
    assert managed.flags == 0
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1)
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (1, 0, 2)
    assert tensor.data + tensor.byte_offset == x.ptr
    assert list((ctypes.c_int64 * 2).from_address(tensor.shape)) == [2, 2]
    assert list((ctypes.c_int64 * 2).from_address(tensor.strides)) == [4, 2]
    old = x.__dlpack__()
    assert '"dltensor"' in repr(old)
    assert fields(old)[0].code == code
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
    assert fields(x.__dlpack__(max_version=(1, 0)))[1].flags == 1
    with pytest.raises(BufferError, match="readonly"):
        x.__dlpack__()
    assert np.from_dlpack(nbx.asarray(np.arange(3))).flags.writeable


def test_copy_and_device_arguments():
    x = nbx.asarray([1.0, 2.0])
    copied = x.__dlpack__(max_version=(1, 0), copy=True)
    tensor, managed = fields(copied)
    assert tensor.data != x.ptr
    assert managed.flags == 2
    shared = x.__dlpack__(dl_device=(1, 0), copy=False)
    assert fields(shared)[0].data == x.ptr
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
    with pytest.raises(DTypeError, match="code 5, 64 bits, 1 lanes"):
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


class Owner(np.ndarray):
    """An array that can be watched."""


def watched(n=8):
    a = np.arange(n).view(Owner)
    return nbx.asarray(a), weakref.ref(a)


def test_the_consumer_keeps_the_memory_alive():
    x, alive = watched()
    b = np.from_dlpack(x[2:])
    del x
    gc.collect()
    assert alive() is not None
    assert b[0] == 2
    del b
    gc.collect()
    assert alive() is None


def test_an_imported_tensor_keeps_the_producer_alive():
    a = np.arange(8).view(Owner)
    alive = weakref.ref(a)
    x = nbx.from_dlpack(a)[1:]
    del a
    gc.collect()
    assert alive() is not None
    assert x.tolist() == list(range(1, 8))
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_an_unconsumed_capsule_frees_itself(max_version):
    x, alive = watched()
    capsule = x.__dlpack__(max_version=max_version)
    del x
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def deleter_of(capsule):
    """Consume a versioned capsule by hand, as C++ code does; the deleter and its argument."""
    _, managed = _open(capsule)
    set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_SetName", ctypes.pythonapi)
    )
    set_name(capsule, b"used_dltensor_versioned")
    # CFUNCTYPE releases the GIL around the call, as a foreign thread would not hold it
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter), ctypes.addressof(managed)


def test_deleter_without_the_gil():
    x, alive = watched()
    deleter, managed = deleter_of(x.__dlpack__(max_version=(1, 0)))
    del x
    assert alive() is not None
    deleter(managed)
    assert alive() is None


def test_deleter_from_another_thread():
    x, alive = watched()
    deleter, managed = deleter_of(x.__dlpack__(max_version=(1, 0)))
    del x
    thread = threading.Thread(target=deleter, args=(managed,))
    thread.start()
    thread.join()
    assert alive() is None


def test_capsules_alive_at_exit():
    """Capsules and arrays that outlive the interpreter's own objects, and a deleter called when it has shut down."""
    code = """
import ctypes, numpy as np, nbxtensor as nbx
from nbxtensor.tensor.interchange import _open
keep = [nbx.empty(1000).__dlpack__(max_version=(1, 0)) for _ in range(10)]
keep.append(np.from_dlpack(nbx.empty(1000)))
capsule = nbx.empty(10).__dlpack__(max_version=(1, 0))
_, managed = _open(capsule)
set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
set_name(("PyCapsule_SetName", ctypes.pythonapi))(capsule, b"used_dltensor_versioned")
deleter = ctypes.c_void_p(managed.deleter)
# libc runs this after the interpreter is gone
ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(ctypes.addressof(managed)), None)
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("way", ["export", "consume", "import", "bfloat16"])
def test_flat_memory(way):
    """10,000 exports of 64 KiB, consumed or not, leave no memory behind."""
    x = nbx.empty(8192, "bfloat16" if way == "bfloat16" else "int64")

    def once() -> None:
        if way == "export":
            x.__dlpack__(max_version=(1, 0))
            nbx.empty(8192, "int64").__dlpack__()
        elif way == "consume":
            np.from_dlpack(nbx.empty(8192, "int64"))
        else:
            nbx.from_dlpack(Producer(x, copy=None))

    for _ in range(500):
        once()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    references = sys.getrefcount(x.buffer)
    for _ in range(10_000):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB; a leak would be 640 MB
    after = sys.getrefcount(x.buffer)
    assert after == references


class FakeCuda:
    """Stands for a GPU in tests that touch no memory."""

    name = "cuda:1"
    host_accessible = False
    computes = True

    def __init__(self):
        self.synchronized = 0

    def synchronize(self):
        self.synchronized += 1


class FakeBuffer:
    ptr = 0x7F00_0000_0000
    nbytes = 1 << 20


@pytest.fixture
def cuda_tensor():
    return Tensor(FakeBuffer(), (3, 4), (8, 2), 5, nbx.float32, FakeCuda())


def test_export_from_a_gpu(cuda_tensor):
    x = cuda_tensor
    assert x.__dlpack_device__() == (2, 1)
    tensor, _ = fields(x.__dlpack__(max_version=(1, 0), stream=2))
    assert (tensor.device_type, tensor.device_id, tensor.code, tensor.bits) == (2, 1, 2, 32)
    assert tensor.data + tensor.byte_offset == 0x7F00_0000_0000 + 20
    assert list((ctypes.c_int64 * 2).from_address(tensor.strides)) == [8, 2]


def test_streams(cuda_tensor):
    x = cuda_tensor
    x.__dlpack__(stream=-1)
    assert x.device.synchronized == 0
    for stream in (None, 1, 2, 0x5555_0000):
        before = x.device.synchronized
        x.__dlpack__(stream=stream)
        assert x.device.synchronized == before + 1
    for stream in (0, -2):
        with pytest.raises(ArgumentError, match="not a stream"):
            x.__dlpack__(stream=stream)


def test_import_from_a_gpu(cuda_tensor, monkeypatch):
    x = cuda_tensor
    asked = []
    real = interchange.devices.get
    monkeypatch.setattr(interchange.devices, "get", lambda name: x.device if name == "cuda:1" else real(name))

    class Watched(Producer):
        def __dlpack__(self, **options):
            asked.append(options)
            return super().__dlpack__(**options)

    y = nbx.from_dlpack(Watched(x))
    assert (y.ptr, y.shape, y.strides, y.dtype) == (x.ptr, x.shape, x.strides, x.dtype)
    assert y.device is x.device
    assert asked[0]["stream"] == 1


def test_cuda_array_interface(cuda_tensor):
    x = cuda_tensor
    interface = x.__cuda_array_interface__
    assert interface == {
        "version": 3,
        "shape": (3, 4),
        "typestr": "<f4",
        "data": (x.ptr, False),
        "strides": (32, 8),
        "stream": 1,
    }
    assert x.as_view((2,), (1,), 0).__cuda_array_interface__["strides"] is None
    assert not hasattr(nbx.empty(1), "__cuda_array_interface__")
    assert not hasattr(Tensor(FakeBuffer(), (1,), (1,), 0, nbx.bfloat16, FakeCuda()), "__cuda_array_interface__")


def test_ml_dtypes_without_a_copy():
    a = np.arange(4).astype(ml_dtypes.bfloat16)
    x = nbx.asarray(a)
    y = nbx.from_dlpack(Producer(x))
    assert y.dtype is nbx.bfloat16
    assert np.shares_memory(y.numpy(), a)
    assert y.numpy().dtype == ml_dtypes.bfloat16
