"""The CPU as a device: native kernels run in this process, on host memory."""

import ctypes
import struct
from collections.abc import Callable, Sequence

import numpy as np

from nbxtensor.base.errors import ArgumentError, DeviceError, LaunchError
from nbxtensor.base.knobs import cpu_level, num_threads
from nbxtensor.base.text import counted
from nbxtensor.device.artifact import Artifact, Target
from nbxtensor.device.cpu_code import load_object
from nbxtensor.device.cpu_level import choose_level
from nbxtensor.device.cpu_memory import Allocator, memory_info
from nbxtensor.device.cpu_pool import JOB, STACK_BYTES, Pool
from nbxtensor.device.profile import load_profile
from nbxtensor.device.protocol import LoadedKernel, Profile
from nbxtensor.device.registry import get

_INTEGERS = {f"{s}{n}": n for s in "iu" for n in (8, 16, 32, 64)} | {"i1": 1, "u1": 1}
_FORMATS = {"fp32": "f4x", "fp64": "d"}


def _slot(kind: str) -> str:
    if kind.startswith("*"):
        return "Q"
    if kind in _INTEGERS:
        return "Q" if kind == "u64" else "q"
    if kind not in _FORMATS:
        raise DeviceError(
            "load", "a kernel argument has a type that cannot be passed", got=kind, allowed=(*_INTEGERS, *_FORMATS)
        )
    return _FORMATS[kind]


def _misfit(kernel: LoadedKernel, args: Sequence[int | float], error: object) -> LaunchError:
    return LaunchError(
        "launch",
        f"arguments of kernel {kernel.artifact.symbol} do not fit its signature ({error})",
        got=f"{counted(len(args), 'argument')} {tuple(args)}",
        allowed=", ".join(kernel.artifact.signature) or "none",
    )


class CpuKernel:
    """An artifact loaded into executable memory.

    Attributes
    ----------
    address
        Entry point: ``void (args, start, end, gx, gy, gz)``.
    slots
        Format of each argument in a job.
    cost
        Address of the measured cycles of one program, which the pool keeps up to date.
    """

    __slots__ = ("_block", "_cost", "address", "artifact", "cost", "slots")

    def __init__(self, artifact: Artifact) -> None:
        if artifact.resources.stack_bytes > STACK_BYTES // 2:
            raise DeviceError(
                "load", f"kernel {artifact.symbol} needs too much stack", got=artifact.resources.stack_bytes,
                allowed=f"{STACK_BYTES // 2} bytes", mend="use a smaller tile",
            )  # fmt: skip
        self.artifact = artifact
        self._block, self.address = load_object(artifact.binary, artifact.symbol)
        self.slots = tuple(map(_slot, artifact.signature))
        self._cost = ctypes.c_uint64(0)
        self.cost = ctypes.addressof(self._cost)

    def forget(self) -> None:
        """Forget the measured cost, as if the kernel had never run."""
        self._cost.value = 0


class CpuDevice:
    """The host's processor; see `nbxtensor.device.protocol.Device`."""

    name = "cpu"
    computes = True
    host_accessible = True

    def __init__(self) -> None:
        self.target = Target("cpu", choose_level(cpu_level.get()))
        self.profile: Profile = load_profile(self.target.arch)
        self.pool = Pool(num_threads.get())
        self._allocator = Allocator()
        self.allocate = self._allocator.allocate

    def __repr__(self) -> str:
        return f"<device cpu ({self.target}, {counted(self.pool.threads, 'thread')})>"

    def __str__(self) -> str:
        return self.name

    def load(self, artifact: Artifact) -> CpuKernel:
        """Make an artifact ready; its code goes with the returned object."""
        if artifact.target not in (self.target, *self.target.also_runs):
            raise DeviceError(
                "load", "the kernel was compiled for another target", got=artifact.target, allowed=str(self.target)
            )
        return CpuKernel(artifact)

    def launch(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], args: Sequence[int | float], work: int = 0
    ) -> None:
        """Run `kernel` over `grid`; complete on return.

        How many threads help follows from the kernel's measured cost per program, so `work` is not looked at.
        """
        self.run(kernel, grid, args)

    def run(self, kernel: LoadedKernel, grid: tuple[int, int, int], args: Sequence[int | float]) -> int:
        """Run `kernel` over `grid`; returns how many workers helped."""
        if len(args) != len(kernel.artifact.signature):
            raise _misfit(kernel, args, "their number differs")
        return self.bind(kernel, grid)(*args)

    def bind(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], fixed: Sequence[int | float] = (), work: int = 0
    ) -> Callable[..., int]:
        """A function of the arguments before `fixed`, which come last, that runs `kernel` over `grid`."""
        assert isinstance(kernel, CpuKernel)
        x, y, z = grid
        total = x * y * z
        if min(grid) <= 0:
            if min(grid) < 0:
                raise LaunchError("launch", "the grid has a negative side", got=grid, mend="no program was run")
            return lambda *values: 0
        count = len(kernel.slots) - len(fixed)
        pool = self.pool
        call, state = pool.call, pool.state
        # All that does not change from run to run is packed once.
        head = struct.pack(JOB[:-1], kernel.address, total, x, y, z, kernel.cost)
        try:
            tail = struct.pack("<" + "".join(kernel.slots[count:]), *fixed)
        except (struct.error, OverflowError) as error:
            raise _misfit(kernel, fixed, error) from error
        pack = struct.Struct(f"<{len(head)}sq{''.join(kernel.slots[:count])}{len(tail)}s").pack

        def run(*values: int | float) -> int:
            try:
                job = pack(head, pool.helpers if pool.helpers == pool.wanted else pool.start(), *values, tail)
            except (struct.error, OverflowError) as error:
                raise _misfit(kernel, (*values, *fixed), error) from error
            return call(state, job)

        def run_two(a: int | float, b: int | float) -> int:
            try:
                job = pack(head, pool.helpers if pool.helpers == pool.wanted else pool.start(), a, b, tail)
            except (struct.error, OverflowError) as error:
                raise _misfit(kernel, (a, b, *fixed), error) from error
            return call(state, job)

        def run_three(a: int | float, b: int | float, c: int | float) -> int:
            try:
                job = pack(head, pool.helpers if pool.helpers == pool.wanted else pool.start(), a, b, c, tail)
            except (struct.error, OverflowError) as error:
                raise _misfit(kernel, (a, b, c, *fixed), error) from error
            return call(state, job)

        # Unpacking a tuple of arguments costs as much as the rest of a run: the usual numbers have their own form.
        return {2: run_two, 3: run_three}.get(count, run)

    def copy_from_host(self, ptr: int, host: memoryview) -> None:
        """Copy contiguous host bytes to `ptr`."""
        if host.nbytes:
            ctypes.memmove(ptr, np.frombuffer(host, np.uint8).ctypes.data, host.nbytes)

    def copy_to_host(self, host: memoryview, ptr: int) -> None:
        """Copy to contiguous, writable host bytes."""
        if host.readonly:
            raise ArgumentError("copy_to_host", "the host memory is read-only")
        if host.nbytes:
            ctypes.memmove(np.frombuffer(host, np.uint8).ctypes.data, ptr, host.nbytes)

    def record(self, call: object) -> None:
        """Not for a device that computes."""
        raise DeviceError("record", "the cpu computes: it records nothing", got=call)

    def synchronize(self) -> None:
        """Launches are complete on return, so there is nothing to wait for."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes that can still be allocated, and bytes in all."""
        return memory_info()

    def trim(self) -> None:
        """Give the freed blocks that are kept for reuse back to the system."""
        self._allocator.trim()


def set_num_threads(n: int) -> None:
    """Let launches use `n` threads, the calling one included.

    Operators that cut one long row into as many parts as there are threads keep the cut of calls made before; their
    results are the same.
    """
    device = get("cpu")
    assert isinstance(device, CpuDevice)
    device.pool.set_threads(n)
    num_threads.set(str(n))
