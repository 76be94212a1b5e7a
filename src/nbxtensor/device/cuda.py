"""NVIDIA GPUs as devices, through the CUDA driver."""

import atexit
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError, DeviceError, LaunchError
from nbxtensor.base.text import counted
from nbxtensor.device.artifact import Artifact, Target
from nbxtensor.device.cuda_driver import FATAL, call, describe, error_of, open_driver
from nbxtensor.device.cuda_memory import Pool
from nbxtensor.device.cuda_staging import Staging
from nbxtensor.device.cuda_stream import ARGUMENT_BYTES, Context, CudaStream, Streams, handle_of
from nbxtensor.device.exhausted import operation
from nbxtensor.device.profile import known_profiles, load_profile
from nbxtensor.device.protocol import LoadedKernel, Profile

_FORMATS = {
    "i1": "?", "u1": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "fp32": "f", "fp64": "d",
}  # fmt: skip
_LENGTH = "N"
_SCRATCH = "PP"  # two pointers that Triton appends to every kernel's arguments; none of our kernels uses them
_PLAIN_SHARED_BYTES = 48 << 10
_WARP = 32


def discover() -> list[str]:
    """Names of the GPUs that can be used here."""
    try:
        driver = open_driver()
    except DeviceError:
        return []
    return [f"cuda:{i}" for i in range(call(driver, "discover", "counting GPUs", driver.cuDeviceGetCount()))]


def argument_layout(signature: Sequence[str]) -> struct.Struct:
    """How a launch is packed: the bytes that the arguments take, and the arguments as in a C structure."""
    unknown = [k for k in signature if not k.startswith("*") and k not in _FORMATS]
    if unknown:
        raise DeviceError(
            "load", "a kernel argument has a type that cannot be passed", got=unknown[0], allowed=_FORMATS
        )
    layout = struct.Struct(_LENGTH + "".join("P" if k.startswith("*") else _FORMATS[k] for k in signature) + _SCRATCH)
    if layout.size > ARGUMENT_BYTES:
        raise DeviceError("load", "a kernel has too many arguments", got=layout.size, allowed=f"{ARGUMENT_BYTES} bytes")
    return layout


def profile_of(major: int, minor: int) -> Profile:
    """Facts of a GPU: its own profile, else that of the nearest older one of its generation."""
    own = f"sm_{major}{minor}"
    known = [int(a[3:]) for a in known_profiles() if a.startswith("sm_")]
    fitting = [number for number in known if number // 10 == major and number % 10 <= minor]
    if not fitting:
        raise DeviceError(
            "device", "this generation of GPUs is not supported", got=own, allowed=[f"sm_{n}" for n in sorted(known)]
        )
    return replace(load_profile(f"sm_{max(fitting)}"), arch=own)


class CudaKernel:
    """An artifact loaded on a GPU."""

    __slots__ = ("artifact", "function", "module", "nbytes", "pack_into", "shared", "threads")

    def __init__(self, artifact: Artifact, layout: struct.Struct, module: Any, function: Any) -> None:
        self.artifact = artifact
        self.module = module
        self.function = function
        self.pack_into = layout.pack_into
        self.nbytes = layout.size - struct.calcsize(_LENGTH)
        self.threads = _WARP * artifact.options.num_warps
        self.shared = artifact.resources.shared_bytes


class CudaDevice:
    """One GPU; see `nbxtensor.device.protocol.Device`.

    Work goes to the current stream of the calling thread: the legacy default stream, as in PyTorch and CuPy, unless
    `stream` says otherwise.
    """

    computes = True
    host_accessible = False

    def __init__(self, ordinal: int) -> None:
        driver = open_driver()
        count = call(driver, "device", "counting GPUs", driver.cuDeviceGetCount())
        if ordinal >= count:
            raise DeviceError("device", "no such GPU", got=f"cuda:{ordinal}", allowed=["cpu", *discover()])
        self.name = f"cuda:{ordinal}"
        self._driver = driver
        self._device = call(driver, "device", "opening the GPU", driver.cuDeviceGet(ordinal))
        major, minor = self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR")
        self.target = Target("cuda", f"sm_{major}{minor}")
        self.profile = profile_of(major, minor)
        if not self._attribute("MEMORY_POOLS_SUPPORTED"):
            raise DeviceError("device", f"{self.name} has no memory pools", mend="update the driver, or use 'cpu'")
        self._context = Context(driver, self._device, alone=count == 1)
        self._alone = self._context.alone
        self._threads = self._context.threads
        self._streams = Streams(self._context)
        self._pool = Pool(self.name, ordinal, self._context, self._streams)
        self._staging = Staging(self._context)
        self.allocate = self._pool.allocate
        self._submit = driver.cuLaunchKernel
        self._kernels: dict[str, CudaKernel] = {}
        atexit.register(self._streams.close)
        os.register_at_fork(after_in_child=self._forget)

    def __repr__(self) -> str:
        return f"<{self.name} ({self.target})>"

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        result = self._driver.cuDeviceGetAttribute(attribute, self._device)
        return int(call(self._driver, "device", "asking the GPU for its properties", result))

    def _forget(self) -> None:
        """In a forked process nothing of this device works, and its memory is the parent's."""
        self._pool.forget()
        self._threads = self._context.threads

    # Memory

    def copy_from_host(self, ptr: int, host: memoryview) -> None:
        """Copy contiguous host bytes to `ptr`; the host memory may be reused on return."""
        self._staging.to_device(ptr, host)

    def copy_to_host(self, host: memoryview, ptr: int) -> None:
        """Copy to contiguous, writable host bytes; complete on return."""
        self._staging.to_host(host, ptr)

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all; memory that is kept for reuse counts as free."""
        return self._pool.memory_info()

    def trim(self) -> None:
        """Give the memory that is kept for reuse back to the driver, for other programs and libraries."""
        self._pool.trim()

    # Streams

    @property
    def current_stream(self) -> int:
        """Handle of this thread's current stream; 1 is the legacy default stream."""
        return self._context.line.handle

    def new_stream(self) -> CudaStream:
        """A stream of its own, for `stream`."""
        with self._context.current():
            return CudaStream(self._context)

    def stream(self, stream: object) -> AbstractContextManager[None]:
        """Make `stream` this thread's current one inside a ``with`` block.

        On entry it waits for the stream that was current; on exit that one waits for it. So what is queued before,
        inside and after the block stays in order, and only work of other threads runs beside it.

        Parameters
        ----------
        stream
            A stream of `new_stream`, cuda.core, PyTorch or CuPy, or a handle.
        """
        return self._streams.use(stream)

    def hand_over(self, stream: object) -> None:
        """Make what is queued on `stream` from now on wait for the current stream's work (for DLPack)."""
        handle = handle_of(stream)
        if handle != self._context.line.handle:
            self._streams.join(self._driver.CUstream(handle), self._context.line.stream)

    def synchronize(self) -> None:
        """Wait for all work on this GPU; raises the error of what failed in it."""
        with self._context.current():
            call(self._driver, "synchronize", "waiting for the GPU", self._driver.cuCtxSynchronize())

    def record(self, call: object) -> None:
        """Not for a device that computes."""
        raise DeviceError("record", f"{self.name} computes", allowed="the null device")

    # Kernels

    def load(self, artifact: Artifact) -> CudaKernel:
        """Make an artifact ready; the same key gives the same kernel."""
        kernel = self._kernels.get(artifact.key)
        if kernel is None:
            with self._context.current():
                kernel = self._kernels.setdefault(artifact.key, self._load(artifact))
        return kernel

    def _load(self, artifact: Artifact) -> CudaKernel:
        driver = self._driver
        if artifact.target not in (self.target, *self.target.also_runs):
            raise DeviceError(
                "load", f"kernel {artifact.symbol} is for another target", got=artifact.target, allowed=str(self.target)
            )
        shared = artifact.resources.shared_bytes
        if shared > self.profile.shared_bytes:
            raise LaunchError(
                operation(), f"kernel {artifact.symbol} needs too much shared memory", got=f"{shared} bytes",
                allowed=f"{self.profile.shared_bytes} on {self.name}", mend="use a smaller tile or fewer stages",
            )  # fmt: skip
        layout = argument_layout(artifact.signature)
        doing = f"loading kernel {artifact.symbol}"
        module = call(driver, "load", doing, driver.cuModuleLoadData(artifact.binary))
        function = call(driver, "load", doing, driver.cuModuleGetFunction(module, artifact.symbol.encode()))
        if shared > _PLAIN_SHARED_BYTES:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver, "load", doing, driver.cuFuncSetAttribute(function, limit, shared))
        return CudaKernel(artifact, layout, module, function)

    def launch(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], args: Sequence[int | float], work: int = 0
    ) -> None:
        """Run `kernel` over `grid` on the current stream. `LaunchError` if it cannot be; the GPU stays usable."""
        self.bind(kernel, grid)(*args)

    def bind(
        self, kernel: LoadedKernel, grid: tuple[int, int, int], fixed: Sequence[int | float] = (), work: int = 0
    ) -> Callable[..., None]:
        """A function of the arguments before `fixed`, which come last, that runs `kernel` over `grid`."""
        assert isinstance(kernel, CudaKernel)
        if 0 in grid:
            return lambda *values: None
        x, y, z = grid
        pack_into, nbytes, function = kernel.pack_into, kernel.nbytes, kernel.function
        threads, shared, submit = kernel.threads, kernel.shared, self._submit
        last = (*fixed, 0, 0)

        def run(*values: int | float) -> None:
            thread = self._threads
            try:
                pack_into(thread.arguments, 0, nbytes, *values, *last)
            except (struct.error, OverflowError, TypeError):
                pack_into(thread.arguments, 0, nbytes, *_converted(kernel.artifact, (*values, *fixed)), 0, 0)
            stream, extra = thread.line.stream, thread.extra
            try:
                if self._alone:
                    (status,) = submit(function, x, y, z, threads, 1, 1, shared, stream, 0, extra)
                else:
                    with self._context.current():
                        (status,) = submit(function, x, y, z, threads, 1, 1, shared, stream, 0, extra)
            except OverflowError:
                status = self._driver.CUresult.CUDA_ERROR_INVALID_VALUE
            if status:
                raise self._failed(kernel, grid, status)

        return run

    def _failed(self, kernel: CudaKernel, grid: tuple[int, int, int], status: Any) -> Exception:
        if int(status) in FATAL:
            return error_of(self._driver, status, operation(), f"launching kernel {kernel.artifact.symbol}")
        resources = kernel.artifact.resources
        return LaunchError(
            operation(),
            f"kernel {kernel.artifact.symbol} cannot be launched on {self.name} ({describe(self._driver, status)})",
            got=f"grid {grid}, {kernel.threads} threads of {resources.registers} registers, "
            f"{resources.shared_bytes} bytes of shared memory",
            allowed="grid up to (2147483647, 65535, 65535), 65536 registers, "
            f"{self.profile.shared_bytes} bytes of shared memory",
        )


def _converted(artifact: Artifact, args: Sequence[int | float]) -> list[int | float]:
    """Arguments that do not fit as they are: floats too large for fp32 are infinite; all else is an error."""
    if len(args) != len(artifact.signature):
        raise ArgumentError(
            operation(), f"kernel {artifact.symbol} takes {counted(len(artifact.signature), 'argument')}", got=len(args)
        )
    values: list[int | float] = []
    for kind, value in zip(artifact.signature, args, strict=True):
        if kind == "fp32":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        else:
            try:
                struct.pack("P" if kind.startswith("*") else _FORMATS[kind], value)
            except (struct.error, OverflowError, TypeError):
                raise ArgumentError(
                    operation(), f"an argument of kernel {artifact.symbol} does not fit", got=repr(value), allowed=kind
                ) from None
        values.append(value)
    return values
