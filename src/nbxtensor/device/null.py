"""The null device: computes nothing and records everything.

Shapes, dtypes, launches, and the memory that a piece of work would use come out; values never do. It stands in for any
target, so kernels are chosen and priced as they would be there.
"""

from collections.abc import Callable, Sequence

from nbxtensor.base.errors import DeviceError
from nbxtensor.device.artifact import Artifact, Target
from nbxtensor.device.profile import load_profile
from nbxtensor.device.protocol import LoadedKernel, Profile

DEFAULT_TARGET = Target("cpu", "x86-64-v3")
ALIGNMENT = 256
_FIRST_ADDRESS = 1 << 40  # no memory is there; aligned as a real device's would be


class NullBuffer:
    """A range of addresses that no memory stands behind; counts as live until it is dropped."""

    __slots__ = ("_device", "nbytes", "ptr")
    readonly = False

    def __init__(self, device: "NullDevice", ptr: int, nbytes: int) -> None:
        self._device = device
        self.ptr = ptr
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._device.live_bytes -= self.nbytes


class NullKernel:
    """An artifact "loaded" on the null device."""

    __slots__ = ("artifact",)

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact


class NullDevice:
    """A device that records launches instead of running them.

    Parameters
    ----------
    target
        What it stands in for.
    profile
        Facts of that target; by default those of its architecture.

    Attributes
    ----------
    calls
        Everything recorded since the start or the last `clear`, in order.
    live_bytes, peak_bytes
        Memory that is, and at most was, allocated at once.
    """

    computes = False
    host_accessible = False

    def __init__(self, target: Target = DEFAULT_TARGET, profile: Profile | None = None) -> None:
        self.name = "null" if target == DEFAULT_TARGET else f"null:{target.arch}"
        self.target = target
        self.profile = profile or load_profile(target.arch)
        self.calls: list[object] = []
        self.live_bytes = 0
        self.peak_bytes = 0
        self._next = _FIRST_ADDRESS

    def __repr__(self) -> str:
        return f"<device {self.name} ({self.target})>"

    def __str__(self) -> str:
        return self.name

    def allocate(self, nbytes: int) -> NullBuffer:
        """Addresses for `nbytes` bytes, aligned to 256, never given twice."""
        ptr = self._next
        self._next += (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT or ALIGNMENT
        self.live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return NullBuffer(self, ptr, nbytes)

    def record(self, call: object) -> None:
        """Take note of a launch."""
        self.calls.append(call)

    def clear(self) -> None:
        """Forget what was recorded; the peak restarts from what is live now."""
        self.calls.clear()
        self.peak_bytes = self.live_bytes

    def load(self, artifact: Artifact) -> NullKernel:
        return NullKernel(artifact)

    def launch(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], args: Sequence[int | float], work: int = 0
    ) -> None:
        """Record the launch of a loaded kernel."""
        self.record((kernel.artifact.symbol, grid, tuple(args), work))

    def bind(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], fixed: Sequence[int | float] = (), work: int = 0
    ) -> Callable[..., None]:
        """A function that records the launch."""
        return lambda *values: self.launch(kernel, grid, (*values, *fixed), work)

    def copy_from_host(self, ptr: int, host: memoryview) -> None:
        """Accept the bytes and keep none of them."""

    def copy_to_host(self, host: memoryview, ptr: int) -> None:
        """Refuse: there are no values.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError(
            "copy_to_host",
            "tensors on the null device hold no values",
            mend="run the same work on a device that computes to see its numbers",
        )

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in all of a very large memory."""
        total = 2**62
        return total - self.live_bytes, total
