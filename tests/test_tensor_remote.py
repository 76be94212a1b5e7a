"""Tensors on a device whose memory the host cannot read, without a GPU: a stand-in that only copies bytes."""

import ctypes
import pickle

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import DeviceError
from nbxtensor.device.artifact import Target
from nbxtensor.tensor import defaults
from nbxtensor.tensor.dispatch import table
from tensor_ops import lift


class Block:
    readonly = False

    def __init__(self, nbytes):
        self._memory = np.zeros(max(nbytes, 1), np.uint8)
        self.ptr = self._memory.ctypes.data
        self.nbytes = nbytes


class Remote:
    """Counts what crosses the bus."""

    computes = True
    host_accessible = False
    target = Target("cuda", "sm_90")

    def __init__(self, name):
        self.name = name
        self.up = self.down = 0

    def allocate(self, nbytes):
        return Block(nbytes)

    def copy_from_host(self, ptr, host):
        self.up += host.nbytes
        ctypes.memmove(ptr, np.frombuffer(host, np.uint8).ctypes.data, host.nbytes)

    def copy_to_host(self, host, ptr):
        assert not host.readonly
        self.down += host.nbytes
        ctypes.memmove(np.frombuffer(host, np.uint8).ctypes.data, ptr, host.nbytes)

    def synchronize(self):
        pass


@pytest.fixture
def remote():
    return Remote("cuda:6")


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    contiguous = lift(np.ascontiguousarray)

    def copy(x):
        if isinstance(x.device, Remote):
            here = nbx.asarray(np.array(host_view(x)))
            return here.to_device(x.device)
        return contiguous(x)

    monkeypatch.setitem(table, "copy", copy)


def host_view(x):
    from nbxtensor.tensor.host import expose

    return expose(x).view(x.dtype.numpy)


A = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_there_and_back(d, remote):
    a = A.astype(d.numpy)
    for view in (a, a[:, ::-1, ::2], a.T, a[0, 0, 0], a[:0], np.broadcast_to(a[0, 0], (3, 4))):
        x = nbx.asarray(view, device=remote)
        assert x.is_contiguous
        assert x.device is remote
        for y in (x, x[..., ::-1] if view.ndim else x):
            back = np.asarray(y)
            expected = view[..., ::-1] if view.ndim and y is not x else view
            assert back.dtype == d.numpy
            np.testing.assert_array_equal(back.astype(np.float64), expected.astype(np.float64))
            np.testing.assert_array_equal(
                np.asarray(y.to_device("cpu")).astype(np.float64), expected.astype(np.float64)
            )


def test_only_what_is_asked_for_crosses(remote):
    x = nbx.asarray(np.zeros((1000, 1000), np.float32), device=remote)
    remote.down = 0
    assert x[3, 4].item() == 0
    assert remote.down == 4
    remote.down = 0
    assert "..." in repr(x)
    assert remote.down == 4 * 3 * 3 * 4
    remote.down = 0
    pickle.dumps(x[:2, :3])
    assert remote.down == 24


def test_from_one_to_another(remote):
    other = Remote("cuda:5")
    x = nbx.asarray(A, device=remote)
    y = x[:, 1:].to_device(other)
    assert y.device is other
    np.testing.assert_array_equal(np.asarray(y), A[:, 1:])
    assert y.to_device("null").shape == (2, 2, 4)
    with pytest.raises(DeviceError, match="hold no values"):
        nbx.empty(3, device="null").to_device(remote)


def test_numpy_without_a_copy_is_refused(remote):
    x = nbx.asarray(A, device=remote)
    with pytest.raises(ValueError, match="by a copy only"):
        np.asarray(x, copy=False)
    assert np.asarray(x, dtype=np.float32).dtype == np.float32


def test_pickle_goes_back_to_the_device(remote, monkeypatch):
    real = defaults.devices.get
    monkeypatch.setattr(defaults.devices, "get", lambda name: remote if name == "cuda:6" else real(name))
    y = pickle.loads(pickle.dumps(nbx.asarray(A, device="cuda:6").mT))
    assert y.device is remote
    np.testing.assert_array_equal(np.asarray(y), A.mT)


def test_dlpack_to_the_cpu_copies(remote):
    x = nbx.asarray(A, device=remote)
    b = np.from_dlpack(x, device="cpu")
    np.testing.assert_array_equal(b, A)
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(x, device="cpu", copy=False)


def test_indices_go_to_the_device(remote, monkeypatch):
    seen = []
    monkeypatch.setitem(table, "take", lambda x, i, axis: seen.append(i.device) or x[: i.shape[0]])
    nbx.asarray(A, device=remote)[[1, 0]]
    assert seen == [remote]
