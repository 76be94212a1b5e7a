"""Device memory, in stream order.

Blocks come from a CUDA memory pool of our own. Those that are freed are kept by size, so that a block like it costs no
driver call. A block goes back to the stream it came from; if other streams are in use then, the next user waits for
what they had queued.
"""

import contextlib
import gc

from nbxtensor.base.errors import OutOfMemoryError
from nbxtensor.base.text import counted
from nbxtensor.device.cuda_driver import OUT_OF_MEMORY, call, error_of
from nbxtensor.device.cuda_stream import Block, Context, Forked, Line, Shelf, Streams
from nbxtensor.device.exhausted import out_of_memory

_GRAIN = 512
_FINE = 1 << 20  # sizes up to here are multiples of _GRAIN, larger ones eighths of a power of two
_NAMED = 5
_PACKAGE = "nbxtensor"


def block_size(nbytes: int) -> int:
    """Bytes of the block that serves `nbytes`."""
    if nbytes <= _FINE:
        return (nbytes + _GRAIN - 1) // _GRAIN * _GRAIN or _GRAIN
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return (nbytes + step - 1) // step * step


class CudaBuffer:
    """A block of device memory; goes back to the pool with its last reference."""

    __slots__ = ("__weakref__", "_line", "_pool", "_shelf", "nbytes", "ptr")
    readonly = False

    def __init__(self, pool: "Pool", ptr: int, nbytes: int, shelf: Shelf, line: Line) -> None:
        self._pool = pool
        self.ptr = ptr
        self.nbytes = nbytes
        self._shelf = shelf
        self._line = line

    def __del__(self) -> None:
        shelf = self._shelf
        if self._pool.streams.plain and len(shelf) < shelf.limit:
            shelf.append(self.ptr)
        else:
            self._pool.release(self.ptr, shelf.size, self._line)


class Pool:
    """The memory of one device."""

    def __init__(self, name: str, ordinal: int, context: Context, streams: Streams) -> None:
        driver = context.driver
        self._driver = driver
        self._name = name
        self._context = context
        self._threads = context.threads
        self._root = context.root
        self.streams = streams
        place = driver.CUmemLocation()
        place.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        place.id = ordinal
        wanted = driver.CUmemPoolProps()
        wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.handleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        wanted.location = place
        self._pool = call(driver, "device", "making a memory pool", driver.cuMemPoolCreate(wanted))
        keep = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        everything = driver.cuuint64_t(2**64 - 1)
        call(driver, "device", "setting up a memory pool", driver.cuMemPoolSetAttribute(self._pool, keep, everything))

    def forget(self) -> None:
        """In a forked process: hand out nothing and give nothing back."""
        self.streams.close()
        self._threads = self._context.threads = Forked()

    def allocate(self, nbytes: int) -> CudaBuffer:
        """Uninitialised memory for the current stream. Raises `OutOfMemoryError`."""
        size = (nbytes + 511) & ~511 if 0 < nbytes <= _FINE else block_size(nbytes)
        line = self._threads.line
        shelf = line.free.get(size)
        if shelf:
            try:
                block = shelf.pop()
                ptr = block if type(block) is int else self._settle(block, line)
            except IndexError:  # another thread took the last one
                ptr = self._grow(nbytes, size, line)
        else:
            ptr = self._grow(nbytes, size, line)
            shelf = line.shelf(size)
        return CudaBuffer(self, ptr, nbytes, shelf if line is self._root else self._root.shelf(size), line)

    def _settle(self, block: Block, line: Line) -> int:
        """The address of a block, once `line` waits for what other streams did with it."""
        if isinstance(block, int):
            return block
        ptr, events = block
        with self._context.current():
            for event in events:
                event.block(line.stream)
        return ptr

    def _grow(self, nbytes: int, size: int, line: Line) -> int:
        driver = self._driver
        with self._context.current():
            result = driver.cuMemAllocFromPoolAsync(size, self._pool, line.stream)
            if result[0] == OUT_OF_MEMORY:
                self.trim()
                result = driver.cuMemAllocFromPoolAsync(size, self._pool, line.stream)
        if not result[0]:
            return int(result[1])
        if result[0] == OUT_OF_MEMORY or nbytes > self.memory_info()[1]:
            raise self._exhausted(nbytes)
        raise error_of(driver, result[0], "allocate", f"allocating {counted(nbytes, 'byte')}")

    def release(self, ptr: int, size: int, line: Line) -> None:
        """Take a block back; runs while objects are torn down, in any thread."""
        streams = self.streams
        if streams.closed:
            return
        block: Block = ptr
        if streams.others:
            line = streams.home(line)
            with self._context.current():
                block = (ptr, streams.fences(line))
        else:
            line = streams.root
        shelf = line.shelf(size)
        if len(shelf) < shelf.limit:
            shelf.append(block)
        else:
            self._return(block, line)

    def _return(self, block: Block, line: Line) -> None:
        with self._context.current():
            self._driver.cuMemFreeAsync(self._settle(block, line), line.stream)

    def trim(self) -> None:
        """Give every free block back to the driver, those of other threads' streams included."""
        gc.collect()
        for line in (self.streams.root, *list(self.streams.others.values())):
            for shelf in list(line.free.values()):
                with contextlib.suppress(IndexError):
                    while True:
                        self._return(shelf.pop(), line)
        driver = self._driver
        with self._context.current():
            call(driver, "allocate", "waiting for the GPU", driver.cuCtxSynchronize())
            call(driver, "allocate", "trimming the memory pool", driver.cuMemPoolTrimTo(self._pool, 0))

    def idle_bytes(self) -> int:
        """Bytes that the pool holds and nobody uses."""
        driver = self._driver
        attributes = driver.CUmemPool_attribute
        held, used = (
            int(call(driver, "memory_info", "asking the memory pool", driver.cuMemPoolGetAttribute(self._pool, a)))
            for a in (attributes.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, attributes.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        )
        kept = 0
        for line in (self.streams.root, *list(self.streams.others.values())):
            kept += sum(shelf.size * len(shelf) for shelf in list(line.free.values()))
        return held - used + kept

    def memory_info(self) -> tuple[int, int]:
        """Bytes free (what the pool can hand out again included) and bytes in all."""
        with self._context.current():
            free, total = call(self._driver, "memory_info", "asking for free memory", self._driver.cuMemGetInfo())
        return int(free) + self.idle_bytes(), int(total)

    def _exhausted(self, nbytes: int) -> OutOfMemoryError:
        return out_of_memory(self._name, nbytes, self.memory_info(), self._owns)

    def _owns(self, candidate: object) -> bool:
        return type(candidate) is CudaBuffer and candidate._pool is self  # pyright: ignore[reportPrivateUsage]
