"""Who keeps DLPack memory alive, and who frees it. See the public bug reports #69 and #70."""

import ctypes
import gc
import resource
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import nbxtensor as nbx
from dlpack_tools import Producer
from nbxtensor.tensor.interchange import _open


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
