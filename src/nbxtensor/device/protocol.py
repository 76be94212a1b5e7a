"""What every device offers. Code above asks a device for a capability, never for a vendor's name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nbxtensor.device.artifact import Artifact, Target


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts of an architecture, read from ``device/profiles/<arch>.toml``.

    Attributes
    ----------
    warp_size
        Threads that run in step; 1 where a program is plain code.
    registers_per_thread
        32-bit registers a thread may use before it spills; 0 where the notion does not exist.
    shared_bytes
        Shared memory one program may use.
    reduce_tile_max
        Largest number of elements in one reduced tile.
    loop_bits
        Width of loop bounds that the target accepts (32 or 64).
    copy_bandwidth
        Bytes per second of a large device-to-device copy, reads and writes counted; 0 if unknown.
    dtypes
        Names of dtypes that kernels may use on this target.
    """

    arch: str
    warp_size: int
    registers_per_thread: int
    shared_bytes: int
    reduce_tile_max: int
    loop_bits: int
    copy_bandwidth: float
    dtypes: frozenset[str]

    @property
    def is_measured(self) -> bool:
        """Whether kernels were timed on such a device; settings for others leave more registers free."""
        return self.copy_bandwidth > 0

    @property
    def is_roomy(self) -> bool:
        """Whether a processor has the shared memory, and so the bytes under way, of a GPU for data centres."""
        return self.shared_bytes >= 1 << 17


class Buffer(Protocol):
    """A block of device memory; freed (in stream order) when the last reference goes."""

    @property
    def ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...


class LoadedKernel(Protocol):
    """An artifact made ready on a device."""

    @property
    def artifact(self) -> Artifact: ...


class Device(Protocol):
    """One device. `name` is what users write: ``cpu``, ``cuda:0``, ``null``."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Target: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def computes(self) -> bool:
        """False for a device that only records; it then has ``record(call)`` and its results hold no values."""
        ...

    @property
    def host_accessible(self) -> bool:
        """Whether the host may read and write buffers through their address."""
        ...

    def allocate(self, nbytes: int) -> Buffer:
        """Uninitialised memory, aligned to at least 64 bytes. Raises `OutOfMemoryError`."""
        ...

    def load(self, artifact: Artifact) -> LoadedKernel: ...

    def launch(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], args: Sequence[int | float], work: int = 0
    ) -> None:
        """Run `kernel` over `grid` on the current stream.

        Pointers travel as integers, in the order of the artifact's signature. `work` is the number of elements that
        the launch touches (0: unknown), from which a CPU chooses its thread count.
        """
        ...

    def bind(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], fixed: Sequence[int | float] = (), work: int = 0
    ) -> Callable[..., object]:
        """A quick function that launches `kernel` over `grid`: of the arguments that precede those in `fixed`."""
        ...

    def copy_from_host(self, ptr: int, host: memoryview) -> None:
        """Copy contiguous host bytes to `ptr`; the host memory may be reused on return."""
        ...

    def copy_to_host(self, host: memoryview, ptr: int) -> None:
        """Copy to contiguous, writable host bytes; complete on return."""
        ...

    def record(self, call: object) -> None:
        """Take note of a launch; only called where `computes` is False."""
        ...

    def synchronize(self) -> None: ...

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""
        ...
