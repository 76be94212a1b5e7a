"""DLPack and the CUDA array interface for tensors on a GPU; a stand-in device, since no memory is touched."""

import ctypes

import pytest

import nbxtensor as nbx
from dlpack_tools import Producer
from nbxtensor.base.errors import ArgumentError, DeviceError
from nbxtensor.tensor import interchange
from nbxtensor.tensor.interchange import _open
from nbxtensor.tensor.tensor import Tensor


class FakeCuda:
    """Stands for a GPU in tests that touch no memory."""

    name = "cuda:1"
    host_accessible = False
    computes = True

    def __init__(self):
        self.synchronized = 0

    def synchronize(self):
        self.synchronized += 1

    def allocate(self, nbytes):
        raise AssertionError(f"a test that touches no memory asked for {nbytes} bytes")


class FakeBuffer:
    ptr = 0x7F00_0000_0000
    nbytes = 1 << 20
    readonly = False


@pytest.fixture
def cuda_tensor():
    return Tensor(FakeBuffer(), (3, 4), (8, 2), 5, nbx.float32, FakeCuda())


def test_export_from_a_gpu(cuda_tensor):
    x = cuda_tensor
    assert x.__dlpack_device__() == (2, 1)
    tensor, _ = _open(x.__dlpack__(max_version=(1, 0), stream=2))
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


def test_streams_of_a_device_that_orders_them(cuda_tensor):
    x = cuda_tensor
    waiting = []
    x.device.hand_over = waiting.append
    x.device.current_stream = 77
    for stream in (None, 2, 0x5555_0000, -1):
        x.__dlpack__(stream=stream)
    assert waiting == [1, 2, 0x5555_0000]
    assert x.device.synchronized == 0
    assert x.__cuda_array_interface__["stream"] == 77


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
    x.device.current_stream = 77
    nbx.from_dlpack(Watched(x))
    assert asked[1]["stream"] == 77


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


def test_stream_context():
    class Streamed(FakeCuda):
        def stream(self, stream):
            return ("context of", stream)

    assert nbx.stream(7, Streamed()) == ("context of", 7)
    with pytest.raises(DeviceError, match=r"nbx\.stream: the device has no streams; got cpu"):
        nbx.stream(7, "cpu")
