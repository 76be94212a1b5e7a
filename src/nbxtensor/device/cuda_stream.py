"""Streams: which one work goes to, and what a stream needs of ours.

The current stream of a thread is the legacy default stream unless `Streams.use` says otherwise: work of libraries that
use it too (PyTorch, CuPy) is then in order with ours without further ado. Entering another stream makes it wait for the
one that was current, leaving makes that one wait for it.
"""

import ctypes
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from nbxtensor.base.errors import ArgumentError
from nbxtensor.device.cuda_driver import call, forked, lost

LEGACY = 1  # the handle by which CUDA calls its default stream
ARGUMENT_BYTES = 4096
_LENGTH_BYTES = 8
_DISABLE_TIMING = 2
_NON_BLOCKING = 1
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0
_NOTHING = nullcontext()


class CudaStream:
    """A stream of our own, independent of the default stream; destroyed with its last reference."""

    def __init__(self, context: "Context") -> None:
        driver = context.driver
        self._driver = driver
        self._stream = call(driver, "stream", "making a stream", driver.cuStreamCreate(_NON_BLOCKING))
        self.handle = int(self._stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def synchronize(self) -> None:
        """Wait for all work on this stream."""
        call(self._driver, "stream", "waiting for a stream", self._driver.cuStreamSynchronize(self._stream))

    def __del__(self) -> None:
        if hasattr(self, "_stream") and not lost():
            self._driver.cuStreamDestroy(self._stream)


def handle_of(stream: object) -> int:
    """The handle of a stream of any library: an int, ``__cuda_stream__``, PyTorch's or CuPy's object."""
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream or LEGACY
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version_and_handle: Any = protocol() if callable(protocol) else protocol
        return int(version_and_handle[1]) or LEGACY
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle or LEGACY
    raise ArgumentError(
        "stream", "not a CUDA stream", got=type(stream).__name__,
        allowed="a handle, or a stream object of nbxtensor, cuda.core, PyTorch or CuPy",
    )  # fmt: skip


class Event:
    """A point in a stream's work that other streams and the host can wait for."""

    __slots__ = ("_driver", "_event")

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._event = call(driver, "stream", "making an event", driver.cuEventCreate(_DISABLE_TIMING))

    def record(self, stream: Any) -> None:
        """Stand for all work that `stream` has now."""
        call(self._driver, "stream", "recording an event", self._driver.cuEventRecord(self._event, stream))

    def block(self, stream: Any) -> None:
        """Make later work on `stream` wait."""
        call(self._driver, "stream", "waiting for an event", self._driver.cuStreamWaitEvent(stream, self._event, 0))

    def wait(self) -> None:
        """Make the host wait."""
        call(self._driver, "synchronize", "waiting for the GPU", self._driver.cuEventSynchronize(self._event))

    def __del__(self) -> None:
        if hasattr(self, "_event") and not lost():
            self._driver.cuEventDestroy(self._event)


Block = int | tuple[int, list[Event]]
"""A free block: its address, with the events that must pass before the stream that it belongs to may use it."""

_KEPT_BYTES = 1 << 24
_KEPT_LARGEST = 1 << 26


class Shelf(list[Block]):
    """The free blocks of one size on one stream; at most `limit` are kept."""

    __slots__ = ("limit", "size")

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.limit = 0 if size > _KEPT_LARGEST else max(2, _KEPT_BYTES // size)


class Line:
    """A stream as the memory pool sees it.

    Attributes
    ----------
    free
        Free blocks by size.
    entered
        How many ``with`` blocks hold the stream current.
    after
        The line that waited for this one when it was last left.
    """

    __slots__ = ("after", "entered", "free", "handle", "owner", "stream")

    def __init__(self, driver: Any, handle: int, owner: object) -> None:
        self.handle = handle
        self.stream = driver.CUstream(handle)
        self.owner = owner
        self.free: dict[int, Shelf] = {}
        self.entered = 0
        self.after: Line | None = None

    def shelf(self, size: int) -> Shelf:
        """The free blocks of `size` bytes."""
        shelf = self.free.get(size)
        return self.free.setdefault(size, Shelf(size)) if shelf is None else shelf


class ThreadState(threading.local):
    """What a thread has of its own: the current stream, and the buffer that kernel arguments travel in.

    The buffer begins with the number of bytes that the arguments take; `extra` is the address of the list by which
    the driver finds both.
    """

    def __init__(self, driver: Any, context: Any, root: Line) -> None:
        self.line = root
        self.arguments = bytearray(_LENGTH_BYTES + ARGUMENT_BYTES)
        self._pinned = (ctypes.c_char * len(self.arguments)).from_buffer(self.arguments)
        start = ctypes.addressof(self._pinned)
        pointers = _BUFFER_POINTER, start + _LENGTH_BYTES, _BUFFER_SIZE, start, _END
        self._extra = (ctypes.c_void_p * len(pointers))(*pointers)
        self.extra = ctypes.addressof(self._extra)
        if context is not None:
            call(driver, "device", "making the GPU current", driver.cuCtxSetCurrent(context))


class Forked:
    """Takes the place of a `ThreadState` in a forked process: whoever needs it gets the error."""

    def __getattribute__(self, name: str) -> Any:
        raise forked()


class Context:
    """The CUDA context of one GPU, and the threads that work in it.

    With a single GPU, a thread makes the context current once, for good. With several, each use makes it current and
    then goes back to what was: other libraries read the current context as the user's choice of a GPU.
    """

    def __init__(self, driver: Any, device: Any, alone: bool) -> None:
        self.driver = driver
        self.alone = alone
        self.root = Line(driver, LEGACY, None)
        self._handle = call(driver, "device", "opening the GPU", driver.cuDevicePrimaryCtxRetain(device))
        self.threads: Any = ThreadState(driver, self._handle if alone else None, self.root)

    @property
    def line(self) -> Line:
        """The current stream of this thread. Raises `DeviceError` in a forked process."""
        return self.threads.line

    def current(self) -> AbstractContextManager[object]:
        """Make the context this thread's current one inside a ``with`` block."""
        _ = self.threads.line
        return _NOTHING if self.alone else self._pushed()

    @contextmanager
    def _pushed(self) -> Generator[None]:
        driver = self.driver
        call(driver, "device", "making the GPU current", driver.cuCtxPushCurrent(self._handle))
        try:
            yield
        finally:
            driver.cuCtxPopCurrent()


class Streams:
    """The streams in use on one device.

    Attributes
    ----------
    others
        Those in use besides the default stream, by handle.
    plain
        There are none, and memory may be given back.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._driver = context.driver
        self._lock = threading.Lock()
        self.root = context.root
        self.others: dict[int, Line] = {}
        self.plain = True
        self.closed = False

    def close(self) -> None:
        """Touch no stream any more: the process ends, or was forked and has no GPU."""
        self.closed = True
        self.plain = False

    @contextmanager
    def use(self, stream: object) -> Generator[None]:
        """Make `stream` the current one of this thread inside a ``with`` block."""
        threads = self._context.threads
        before, line = threads.line, self._enter(stream)
        try:
            if line is not before:
                self.join(line.stream, before.stream)
            threads.line = line
            yield
        finally:
            threads.line = before
            try:
                if line is not before:
                    self.join(before.stream, line.stream)
            finally:
                self._leave(line, before)

    def join(self, later: Any, earlier: Any) -> None:
        """Make what is queued on the stream `later` from now on wait for what `earlier` has now."""
        with self._context.current():
            event = Event(self._driver)
            event.record(earlier)
            event.block(later)

    def _enter(self, stream: object) -> Line:
        handle = handle_of(stream)
        if handle == LEGACY:
            return self.root
        with self._lock:
            line = self.others.get(handle)
            if line is None:
                line = self.others[handle] = Line(self._driver, handle, stream)
            self.plain = False
            line.entered += 1
            return line

    def _leave(self, line: Line, before: Line) -> None:
        """Free blocks of a stream that nobody uses any more go to the one that has just waited for it."""
        if line is self.root:
            return
        with self._lock:
            line.entered -= 1
            if line.entered == 0:
                del self.others[line.handle]
                line.after = before
                for size, shelf in line.free.items():
                    before.shelf(size).extend(shelf)
                line.free = {}
                self.plain = not self.others and not self.closed

    def home(self, line: Line) -> Line:
        """Where a block of `line` is free: on it, or on what waited for it."""
        while line.after is not None and line.entered == 0:
            line = line.after
        return line

    def fences(self, line: Line) -> list[Event]:
        """Events that stand for the work of every stream in use but `line`."""
        events: list[Event] = []
        for other in (self.root, *list(self.others.values())):
            if other is not line:
                event = Event(self._driver)
                event.record(other.stream)
                events.append(event)
        return events
