"""The worker pool of the CPU device: threads without Python state that run chunks of a launch's grid.

The pool itself is machine code (``cpu_pool.s``). A launch packs one block of bytes (``JOB`` and the arguments) and
makes one call; threads are made at the first launch that may use them, and again in a forked child.
"""

import ctypes
import mmap
import os
import signal
import struct
import threading

from nbxtensor.base.errors import ArgumentError, DeviceError
from nbxtensor.device.cpu_code import CodeBlock
from nbxtensor.device.cpu_pool_code import CODE, LAUNCH, WORKER

JOB = "<QqqqqQq"
"""Head of a job: function, programs, gx, gy, gz, address of the cost, helpers; the arguments follow."""

SPIN_CYCLES = 50_000
GRAIN_CYCLES = 40_000
STACK_BYTES = 8 << 20
_POOL_BYTES = 192
_OFFSET_PARKED, _OFFSET_SPIN = 0x04, 0x08

_libc = ctypes.CDLL(None, use_errno=True)


class _Threads:
    """pthread functions, looked up by name when the first worker is made."""

    create = _libc.pthread_create
    attr_init = _libc.pthread_attr_init
    attr_setstacksize = _libc.pthread_attr_setstacksize
    attr_setdetachstate = _libc.pthread_attr_setdetachstate
    attr_destroy = _libc.pthread_attr_destroy


_Threads.create.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_Threads.attr_init.argtypes = (ctypes.c_void_p,)
_Threads.attr_setstacksize.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_Threads.attr_setdetachstate.argtypes = (ctypes.c_void_p, ctypes.c_int)
_Threads.attr_destroy.argtypes = (ctypes.c_void_p,)
_PTHREAD_CREATE_DETACHED = 1


class Pool:
    """Workers that help with launches.

    Parameters
    ----------
    threads
        Threads that a launch may use, the calling one included.

    Attributes
    ----------
    wanted
        Workers that a launch should be able to use.
    helpers
        Workers that a launch may use: `wanted` of them once `start` was called.
    workers
        Workers that exist.
    state
        Address of the shared state, to be handed to `call`.
    call
        ``call(state, job)`` runs a job and returns how many workers joined it.
    """

    def __init__(self, threads: int) -> None:
        self._code = CodeBlock(len(CODE))
        self._code.seal(CODE)
        # Workers outlive every Python object, so their pages are never given back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._code))
        prototype = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_char_p)
        self.call = prototype(self._code.address + LAUNCH)
        self.wanted = threads - 1
        self.helpers = 0
        self._state = mmap.mmap(-1, _POOL_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        anchor = ctypes.c_char.from_buffer(self._state)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(anchor))
        self.state = ctypes.addressof(anchor)
        self._fresh()
        os.register_at_fork(after_in_child=self._fresh)
        self.set_threads(threads)

    def _fresh(self) -> None:
        self._lock = threading.Lock()
        self.workers = 0
        self._state[:] = bytes(_POOL_BYTES)
        struct.pack_into("<QQi", self._state, _OFFSET_SPIN, SPIN_CYCLES, GRAIN_CYCLES, _libc.sched_getcpu())
        self.helpers = 0

    @property
    def threads(self) -> int:
        """Threads that a launch may use, the calling one included."""
        return self.wanted + 1

    @property
    def parked(self) -> int:
        """Workers asleep at present."""
        return struct.unpack_from("<I", self._state, _OFFSET_PARKED)[0]

    def set_threads(self, threads: int) -> None:
        """Change how many threads a launch may use."""
        if threads < 1:
            raise ArgumentError("set_num_threads", "a launch needs a thread", got=threads, allowed="1 and more")
        self.wanted = threads - 1
        self.helpers = min(self.helpers, threads - 1)

    def start(self) -> int:
        """Make the workers that are still missing; returns how many may help with a launch."""
        wanted = self.wanted
        if self.helpers != wanted:
            with self._lock:
                while self.workers < wanted:
                    self._make_worker()
                    self.workers += 1
                self.helpers = wanted
        return self.helpers

    def _make_worker(self) -> None:
        handle = ctypes.c_ulong()
        attributes = ctypes.create_string_buffer(256)
        _Threads.attr_init(attributes)
        _Threads.attr_setstacksize(attributes, STACK_BYTES)
        _Threads.attr_setdetachstate(attributes, _PTHREAD_CREATE_DETACHED)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            error = _Threads.create(ctypes.byref(handle), attributes, self._code.address + WORKER, self.state)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _Threads.attr_destroy(attributes)
        if error:
            raise DeviceError(
                "cpu", "a worker thread cannot be made", got=os.strerror(error), mend="set NBX_NUM_THREADS lower"
            )
