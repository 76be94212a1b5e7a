"""Memory of the CPU device: blocks aligned to a cache line, recycled so that page faults are paid once."""

import ctypes
import threading
from collections import deque
from pathlib import Path

from nbxtensor.base.errors import OutOfMemoryError

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
KEPT_BYTES = 1 << 30
"""Most bytes of freed blocks that are kept for the next allocation."""

_CHECKED = 16 << 20
_MADV_HUGEPAGE = 14
_CGROUP = Path("/sys/fs/cgroup")

_libc = ctypes.CDLL(None, use_errno=True)
_aligned_alloc = _libc.aligned_alloc
_aligned_alloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
_aligned_alloc.restype = ctypes.c_void_p
_free = _libc.free
_free.argtypes = (ctypes.c_void_p,)
_free.restype = None
_madvise = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def block_size(nbytes: int) -> int:
    """Bytes of the block that holds `nbytes`: a multiple of 64 at most a quarter larger, so that blocks are reused."""
    if nbytes <= 4 * ALIGNMENT:
        return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


def memory_info() -> tuple[int, int]:
    """Bytes that can still be allocated, and bytes in all, of the machine or of the container's limit."""
    found: dict[str, int] = {}
    with Path("/proc/meminfo").open() as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemFree", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    total = found["MemTotal"]
    free = found.get("MemAvailable", found["MemFree"])
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free, total
    if limit != "max" and int(limit) < total:
        total = int(limit)
        free = min(free, max(total - used, 0))
    return free, total


class CpuBuffer:
    """A block of host memory; goes back to its allocator with the last reference."""

    __slots__ = ("_home", "_size", "nbytes", "ptr")

    def __init__(self, home: "Allocator", ptr: int, size: int, nbytes: int) -> None:
        self._home = home
        self._size = size
        self.ptr = ptr
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._home.release(self.ptr, self._size)

    def __repr__(self) -> str:
        return f"<CpuBuffer {self.nbytes} bytes at {self.ptr:#x}>"


class Allocator:
    """Gives out blocks and keeps freed ones, up to a bound, for the next request of the same size.

    Parameters
    ----------
    kept
        Most bytes of freed blocks to keep.
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._blocks: dict[int, list[int]] = {}
        self._bytes = 0
        self._late: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._free = _free

    @property
    def kept_bytes(self) -> int:
        """Bytes of freed blocks kept at present."""
        return self._bytes

    def allocate(self, nbytes: int) -> CpuBuffer:
        """A block of at least `nbytes` bytes with arbitrary content."""
        size = block_size(nbytes)
        ptr = 0
        if self._lock.acquire(blocking=False):
            try:
                self._take_late()
                blocks = self._blocks.get(size)
                if blocks:
                    ptr = blocks.pop()
                    self._bytes -= size
            finally:
                self._lock.release()
        return CpuBuffer(self, ptr or self._fresh(size, nbytes), size, nbytes)

    def _fresh(self, size: int, nbytes: int) -> int:
        if size >= _CHECKED and size > memory_info()[0]:
            self.trim()
            if size > memory_info()[0]:
                raise self._refusal(nbytes)
        huge = size >= 2 * HUGE_PAGE
        ptr = _aligned_alloc(HUGE_PAGE if huge else ALIGNMENT, size)
        if not ptr:
            self.trim()
            ptr = _aligned_alloc(HUGE_PAGE if huge else ALIGNMENT, size)
            if not ptr:
                raise self._refusal(nbytes)
        if huge:
            _madvise(ptr, size // HUGE_PAGE * HUGE_PAGE, _MADV_HUGEPAGE)
        return ptr

    def _refusal(self, nbytes: int) -> OutOfMemoryError:
        free, total = memory_info()
        return OutOfMemoryError(
            "allocate", f"{nbytes} bytes do not fit on the cpu", got=f"{free} bytes free of {total}"
        )

    def release(self, ptr: int, size: int) -> None:
        """Take a block back.

        The garbage collector may call this in the middle of any other method, so nothing here waits for the lock.
        """
        self._late.append((ptr, size))
        if self._lock.acquire(blocking=False):
            try:
                self._take_late()
            finally:
                self._lock.release()

    def _take_late(self) -> None:
        while self._late:
            ptr, size = self._late.popleft()
            if size > self._kept:
                self._free(ptr)
                continue
            if self._bytes + size > self._kept:
                self._drop()
            self._blocks.setdefault(size, []).append(ptr)
            self._bytes += size

    def _drop(self) -> None:
        for blocks in self._blocks.values():
            for ptr in blocks:
                self._free(ptr)
        self._blocks.clear()
        self._bytes = 0

    def trim(self) -> None:
        """Give all kept blocks back to the system."""
        if self._lock.acquire(blocking=False):
            try:
                self._take_late()
                self._drop()
            finally:
                self._lock.release()
