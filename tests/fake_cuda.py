# ruff: noqa: N802 (the driver's names)
"""A stand-in for ``cuda.bindings.driver`` that runs no kernel but keeps account of the order of things.

Memory is host memory. Every stream has a vector clock, so that `FakeDriver.problems` can say when a block of memory
was used for a new purpose without waiting for its old one. A kernel's first argument is the block it uses, its second a
number that tells purposes apart.
"""

import ctypes
import struct
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from types import SimpleNamespace

from nbxtensor.device.artifact import Artifact, Options, Resources, Target

OK = (0,)
H200 = {
    "WARP_SIZE": 32,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MULTIPROCESSOR_COUNT": 132,
    "COMPUTE_MODE": 0,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
}


class Handle(int):
    pass


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701


class FakeDriver:
    """What `nbxtensor.device.cuda` needs of the driver, for `gpus` GPUs with `memory` bytes."""

    CUstream = Handle
    CUresult = CUresult
    cuuint64_t = int
    CUmemLocation = CUmemPoolProps = SimpleNamespace
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAllocationHandleType = SimpleNamespace(CU_MEM_HANDLE_TYPE_NONE=0)
    CUmemPool_attribute = SimpleNamespace(
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD="threshold",
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT="reserved",
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT="used",
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major",
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor",
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED="pools",
        **{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in H200},
    )

    def __init__(
        self,
        gpus: int = 1,
        memory: int = 1 << 30,
        capability: tuple[int, int] = (9, 0),
        version: int = 13000,
        **facts: int,
    ) -> None:
        self.gpus, self.memory, self.capability, self.version = gpus, memory, capability, version
        self.facts = {"major": capability[0], "minor": capability[1], "pools": 1, **H200, **facts}
        self.blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.used = 0
        self.reserved = 0
        self.driver_allocations = 0
        self.clocks: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.events: dict[int, dict[int, int]] = {}
        self.last: dict[int, tuple[int, dict[int, int]]] = {}
        self.problems: list[str] = []
        self.launches: list[dict[str, object]] = []
        self.contexts = [0]
        self.next_status = CUresult.CUDA_SUCCESS
        self.attributes: dict[str, int] = {}
        self._handles = iter(range(5000, 1 << 40))

    def _step(self, stream: int) -> dict[int, int]:
        self.clocks[stream][stream] += 1
        return dict(self.clocks[stream])

    # Devices, contexts, errors

    def cuInit(self, flags: int):
        return OK

    def cuDriverGetVersion(self):
        return 0, self.version

    def cuDeviceGetCount(self):
        return 0, self.gpus

    def cuDeviceGetName(self, length: int, device: int):
        return 0, b"NVIDIA H200".ljust(length, b"\0")

    def cuDeviceTotalMem(self, device: int):
        return 0, self.memory

    def cuDeviceGet(self, ordinal: int):
        return 0, ordinal

    def cuDeviceGetAttribute(self, name: str, device: int):
        return 0, self.facts[name]

    def cuDevicePrimaryCtxRetain(self, device: int):
        return 0, 100 + device

    def cuCtxSetCurrent(self, context: int):
        self.contexts[-1] = context
        return OK

    def cuCtxPushCurrent(self, context: int):
        self.contexts.append(context)
        return OK

    def cuCtxPopCurrent(self):
        return 0, self.contexts.pop()

    def cuGetErrorName(self, status: int):
        return 0, CUresult(status).name.encode()

    def cuGetErrorString(self, status: int):
        return 0, b"an explanation"

    def cuCtxSynchronize(self):
        return (self.next_status,)

    # Memory

    def cuMemPoolCreate(self, wanted: object):
        return 0, Handle(1)

    def cuMemPoolSetAttribute(self, pool: int, name: str, value: int):
        self.attributes[name] = value
        return OK

    def cuMemPoolGetAttribute(self, pool: int, name: str):
        return 0, {"reserved": self.reserved, "used": self.used}[name]

    def cuMemPoolTrimTo(self, pool: int, keep: int):
        self.reserved = self.used
        return OK

    def cuMemAllocFromPoolAsync(self, size: int, pool: int, stream: int):
        if self.used + size > self.memory:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0
        block = ctypes.create_string_buffer(size)
        self.used += size
        self.reserved = max(self.reserved, self.used)
        self.driver_allocations += 1
        self.blocks[ctypes.addressof(block)] = block
        self.last.pop(ctypes.addressof(block), None)
        return 0, ctypes.addressof(block)

    def cuMemFreeAsync(self, ptr: int, stream: int):
        self._ordered(ptr, stream, "freed")
        self.used -= len(self.blocks.pop(ptr))
        return OK

    def cuMemGetInfo(self):
        return 0, self.memory - self.reserved, self.memory

    def cuMemHostAlloc(self, size: int, flags: int):
        block = ctypes.create_string_buffer(size)
        self.attributes[f"host{ctypes.addressof(block)}"] = 1
        self._kept = [*getattr(self, "_kept", []), block]
        return 0, ctypes.addressof(block)

    def cuMemcpyHtoDAsync(self, ptr: int, host: int, size: int, stream: int):
        ctypes.memmove(ptr, host, size)
        return OK

    def cuMemcpyDtoHAsync(self, host: int, ptr: int, size: int, stream: int):
        ctypes.memmove(host, ptr, size)
        return OK

    # Streams and events

    def cuStreamCreate(self, flags: int):
        return 0, Handle(next(self._handles))

    def cuStreamDestroy(self, stream: int):
        return OK

    def cuStreamSynchronize(self, stream: int):
        return OK

    def cuEventCreate(self, flags: int):
        return 0, Handle(next(self._handles))

    def cuEventDestroy(self, event: int):
        self.events.pop(event, None)
        return OK

    def cuEventRecord(self, event: int, stream: int):
        self.events[event] = self._step(stream)
        return OK

    def cuEventSynchronize(self, event: int):
        return OK

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int):
        clock = self.clocks[stream]
        for other, count in self.events[event].items():
            clock[other] = max(clock[other], count)
        return OK

    # Kernels

    def cuModuleLoadData(self, image: bytes):
        return 0 if image.startswith(b"\x7fELF") else CUresult(1), Handle(7)

    def cuModuleGetFunction(self, module: int, name: bytes):
        return 0, Handle(8)

    def cuFuncSetAttribute(self, function: int, name: str, value: int):
        self.attributes[name] = value
        return OK

    def cuLaunchKernel(self, function, x, y, z, threads, ty, tz, shared, stream, params, extra):
        if max(x, y, z) >= 1 << 32:
            raise OverflowError
        status, self.next_status = self.next_status, CUresult.CUDA_SUCCESS
        if status:
            return (status,)
        kinds = (ctypes.c_void_p * 5).from_address(extra)
        assert (kinds[0], kinds[2], kinds[4]) == (1, 2, None)
        nbytes = ctypes.c_size_t.from_address(kinds[3]).value
        packed = ctypes.string_at(kinds[1], nbytes)
        launch = {"grid": (x, y, z), "threads": threads, "shared": shared, "stream": int(stream), "packed": packed}
        self.launches.append({**launch, "context": self.contexts[-1]})
        if nbytes == 32:
            self._use(*struct.unpack("QqQQ", packed)[:2], stream)
        return OK

    def _ordered(self, ptr: int, stream: int, doing: str, purpose: int | None = None) -> None:
        before, uses = self.last.get(ptr, (None, {}))
        if before is not None and before != purpose:
            late = [s for s, count in uses.items() if self.clocks[stream][s] < count]
            if late:
                self.problems.append(f"block {ptr:x} {doing} on stream {stream} before streams {late} were done")

    def _use(self, ptr: int, purpose: int, stream: int) -> None:
        self._ordered(ptr, stream, "used", purpose)
        before, uses = self.last.get(ptr, (purpose, {}))
        if before != purpose:
            uses = {}
        uses[int(stream)] = self._step(stream)[stream]
        self.last[ptr] = purpose, uses


SIGNATURE: Sequence[str] = ("*fp32", "i64")
"""What a kernel must take for the account to follow it."""


class Missing:
    """A driver that is not there, too old, or broken."""

    def __init__(self, status: int, version: int = 13000, error: Exception | None = None) -> None:
        self._status, self._version, self._error = status, version, error

    def cuInit(self, flags: int):
        if self._error:
            raise self._error
        return (self._status,)

    def cuDriverGetVersion(self):
        return 0, self._version

    def cuGetErrorName(self, status: int):
        return 0, b"CUDA_ERROR_UNKNOWN"

    def cuGetErrorString(self, status: int):
        return 0, None


def artifact(signature: tuple[str, ...] = tuple(SIGNATURE), shared: int = 0, arch: str = "sm_90") -> Artifact:
    key = f"{signature}{shared}{arch}"
    resources = Resources(32, 0, shared)
    return Artifact(key, Target("cuda", arch), "some_kernel", signature, {}, Options(8), resources, "t", b"\x7fELF")
