"""Memory of the CPU device: blocks aligned to a cache line, recycled so that page faults are paid once."""

import ctypes
from functools import lru_cache
from pathlib import Path

from nbxtensor.base.errors import OutOfMemoryError
from nbxtensor.base.text import counted
from nbxtensor.device.exhausted import out_of_memory

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
KEPT_BYTES = 1 << 30
"""Most bytes of freed blocks that are kept for the next allocation."""
SMALL = 1 << 18
SMALL_BYTES = 4 << 20
"""Blocks of up to `SMALL` bytes are kept by the size: `SMALL_BYTES` of each."""
COLOURED = 1 << 15
"""Blocks from this size start at different places of their pages: where operands are a multiple of a page apart, a
processor that compares the low 12 bits of addresses lets loads wait for stores that they do not need."""
PAGE = 4096

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


@lru_cache(4096)
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


class _Shelf(list[int]):
    """Freed blocks of one size; `room` is how many may be added without asking."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.room = SMALL_BYTES // size if size <= SMALL else 0


class CpuBuffer:
    """A block of host memory; goes back to its allocator with the last reference."""

    __slots__ = ("_home", "_shelf", "nbytes", "ptr")
    readonly = False

    def __init__(self, home: "Allocator", shelf: _Shelf, ptr: int, nbytes: int) -> None:
        self._home = home
        self._shelf = shelf
        self.ptr = ptr
        self.nbytes = nbytes

    def __del__(self) -> None:
        shelf = self._shelf
        if len(shelf) < shelf.room:
            shelf.append(self.ptr)
        else:
            self._home.release(self.ptr, shelf)

    def __repr__(self) -> str:
        return f"<CpuBuffer {counted(self.nbytes, 'byte')} at {self.ptr:#x}>"


class Allocator:
    """Gives out blocks and keeps freed ones, up to a bound, for the next request of the same size.

    Blocks come back whenever the garbage collector likes, also in the middle of a method here and on any thread. So
    there is no lock: a block moves by one ``pop`` or ``append``, and the bound is kept to within a few blocks.

    Parameters
    ----------
    kept
        Most bytes of freed blocks to keep, those of up to `SMALL` bytes aside.
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._shelves: dict[int, _Shelf] = {}
        self._colour = 0
        self._at_most = 0  # upper bound of the bytes kept: counts what comes, not what goes
        self._free = _free  # all bound here: at the end of a process the module's names go before the last blocks
        self._small = SMALL
        self._coloured = COLOURED
        self._page = PAGE

    @property
    def kept_bytes(self) -> int:
        """Bytes of freed blocks kept at present."""
        return sum(shelf.size * len(shelf) for shelf in list(self._shelves.values()))

    def allocate(self, nbytes: int) -> CpuBuffer:
        """A block of at least `nbytes` bytes with arbitrary content."""
        size = block_size(nbytes)
        shelf = self._shelves.get(size)
        if shelf is None:
            shelf = self._shelves.setdefault(size, _Shelf(size))
        try:
            ptr = shelf.pop()
        except IndexError:
            ptr = self._fresh(size, nbytes)
        return CpuBuffer(self, shelf, ptr, nbytes)

    def _fresh(self, size: int, nbytes: int) -> int:
        if size >= _CHECKED and size > memory_info()[0]:
            self.trim()
            if size > memory_info()[0]:
                raise self._refusal(nbytes)
        huge, coloured = size >= 2 * HUGE_PAGE, size >= COLOURED
        alignment = HUGE_PAGE if huge else PAGE if coloured else ALIGNMENT
        room = size + PAGE if coloured else size
        ptr = _aligned_alloc(alignment, room)
        if not ptr:
            self.trim()
            ptr = _aligned_alloc(alignment, room)
            if not ptr:
                raise self._refusal(nbytes)
        if huge:
            _madvise(ptr, size // HUGE_PAGE * HUGE_PAGE, _MADV_HUGEPAGE)
        return ptr + self._next_colour() if coloured else ptr

    def _next_colour(self) -> int:
        """Bytes into its page at which the next block starts: 512 to 3,584, far from the last ones and from 0,
        where other allocators begin."""
        self._colour = (self._colour + 3) % 7
        return (self._colour + 1) * (PAGE // 8)

    def _release(self, ptr: int, size: int) -> None:
        self._free(ptr & -self._page if size >= self._coloured else ptr)

    def _refusal(self, nbytes: int) -> OutOfMemoryError:
        return out_of_memory("cpu", nbytes, memory_info(), lambda candidate: type(candidate) is CpuBuffer)

    def release(self, ptr: int, shelf: _Shelf) -> None:
        """Take back a block that its shelf has no room for without asking."""
        if shelf.size <= self._small or shelf.size > self._kept:
            self._release(ptr, shelf.size)
            return
        self._at_most += shelf.size
        if self._at_most > self._kept:
            self._at_most = self.kept_bytes + shelf.size
            if self._at_most > self._kept:
                self.trim()
                self._at_most = shelf.size
        shelf.append(ptr)

    def trim(self) -> None:
        """Give all kept blocks back to the system."""
        for shelf in list(self._shelves.values()):
            while shelf:
                try:
                    ptr = shelf.pop()
                except IndexError:  # another thread took the last one
                    break
                self._release(ptr, shelf.size)
