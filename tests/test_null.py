"""The null device: shapes, memory and launches without values."""

import gc

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import DeviceError
from nbxtensor.device import get
from nbxtensor.device.artifact import Artifact, Options, Resources, Target
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device


def test_is_a_device_that_does_not_compute():
    null: Device = NullDevice()
    assert (null.name, null.computes, null.host_accessible) == ("null", False, False)
    assert get("null") is get("null")


def test_stands_for_any_target():
    assert NullDevice(Target("cuda", "sm_90")).name == "null:sm_90"
    assert get("null:sm_90").target == Target("cuda", "sm_90")
    assert get("null:sm_90").profile.warp_size == 32
    assert get("null").profile.warp_size == 1
    assert get("null:sm_90") is not get("null")
    with pytest.raises(DeviceError, match="null:vax"):
        get("null:vax")


def test_addresses_are_aligned_and_distinct():
    null = NullDevice()
    blocks = [null.allocate(n) for n in (0, 1, 255, 256, 257, 10**12)]
    ends = [b.ptr + b.nbytes for b in blocks]
    assert all(b.ptr % 256 == 0 for b in blocks)
    assert all(end <= b.ptr for end, b in zip(ends, blocks[1:], strict=False))
    assert len({b.ptr for b in blocks}) == len(blocks)


def test_counts_live_and_peak_bytes():
    null = NullDevice()
    a = null.allocate(100)
    b = null.allocate(50)
    assert (null.live_bytes, null.peak_bytes) == (150, 150)
    del a
    gc.collect()
    assert (null.live_bytes, null.peak_bytes) == (50, 150)
    free, total = null.memory_info()
    assert total - free == 50
    null.clear()
    assert null.peak_bytes == 50
    del b
    assert null.live_bytes == 0


def test_records_launches():
    null = NullDevice()
    resources = Resources(0, 0, 0)
    artifact = Artifact("key", null.target, "twice", ("*fp32", "i64"), {}, Options(), resources, "none", b"")
    null.launch(null.load(artifact), (4, 1, 1), (1 << 40, 7), 28)
    null.record("anything")
    null.synchronize()
    assert null.calls == [("twice", (4, 1, 1), (1 << 40, 7), 28), "anything"]
    null.clear()
    assert null.calls == []


def test_tensors_have_shapes_but_no_values():
    x = nbx.empty((2, 3, 4), device="null")
    y = x[:, ::-1, 1:].permute_dims(2, 0, 1)
    assert y.shape == (3, 2, 3)
    assert y.reshape(3, 2, 3, 1).shape == (3, 2, 3, 1)
    for read in (np.asarray, float, bool, lambda t: t.tolist(), lambda t: t.item(), lambda t: t.to_device("cpu")):
        with pytest.raises(DeviceError, match="hold no values"):
            read(nbx.empty((1,), device="null"))
    with pytest.raises(DeviceError, match="no tensors are exchanged"):
        np.from_dlpack(x)


def test_tensors_move_there():
    a = nbx.asarray([[1.0, 2.0]])
    x = a.to_device("null")
    assert (x.shape, x.dtype, x.device.name) == ((1, 2), nbx.float32, "null")
    assert nbx.asarray(np.arange(3), device="null").dtype is nbx.int64
    target = memoryview(bytearray(8))
    with pytest.raises(DeviceError, match="hold no values"):
        x.device.copy_to_host(target, x.ptr)


def test_pickle_keeps_shape_and_dtype():
    import pickle

    x = pickle.loads(pickle.dumps(nbx.empty((2, 5), "int8", device="null").T))
    assert (x.shape, x.dtype, x.device.name) == ((5, 2), nbx.int8, "null")


def test_operators_record_their_launches():
    null = NullDevice()
    x = nbx.empty((4, 3), device=null)
    y = 2 - x
    y[1:] = 3
    y += x
    z = y.T.reshape(-1)
    assert [call.name for call in null.calls] == ["subtract", "copy_into", "add", "copy"]
    assert (z.shape, z.dtype, z.device) == ((12,), nbx.float32, null)
    assert null.live_bytes == 3 * 48
    assert all(call.grid[0] >= 1 for call in null.calls)
