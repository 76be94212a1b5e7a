"""The CUDA driver, loaded when a GPU is first asked for, and what its error codes mean.

cuda.bindings is used directly: a launch through it costs less host time than through cuda.core, it loads faster, and
its interface follows the driver's.
"""

import importlib
import os
from functools import cache
from typing import Any

from nbxtensor.base.errors import DeviceError, LaunchError, NbxError
from nbxtensor.base.locks import ForkLock

OUT_OF_MEMORY = 2
NO_DEVICE = 100
_OLDEST_DRIVER = 12000
_TOO_OLD = {35, 803, 804}
_NAME_BYTES = 256
# After one of these every call of the process fails: the driver has given the context up.
FATAL = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719}

_lock = ForkLock()
_used = False
_lost = False


def _bindings() -> Any:
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")  # large, and of use only where a GPU is
    except ImportError as error:
        raise DeviceError(
            "device", "the package cuda-bindings is needed for NVIDIA GPUs", mend="install nbxtensor[cuda]"
        ) from error
    return driver


@cache
def _initialised() -> Any:
    driver = _bindings()
    mend = "run on a machine with an NVIDIA GPU and driver, or use device 'cpu'"
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise DeviceError("device", "no NVIDIA driver was found (libcuda.so.1)", mend=mend) from error
    if status == NO_DEVICE:
        raise DeviceError("device", "the NVIDIA driver sees no GPU", mend=f"look at CUDA_VISIBLE_DEVICES; {mend}")
    version = 0 if status in _TOO_OLD else driver.cuDriverGetVersion()[1]
    if version < _OLDEST_DRIVER:
        raise DeviceError(
            "device", "the NVIDIA driver is too old", got=f"CUDA {version // 1000}", allowed="12 or newer",
            mend="update the driver",
        )  # fmt: skip
    if status:
        raise DeviceError("device", f"the NVIDIA driver did not start: {describe(driver, status)}", mend=mend)
    return driver


def open_driver() -> Any:
    """The initialised driver module (``cuda.bindings.driver``).

    Raises
    ------
    DeviceError
        If there is no package, no driver or no GPU, or if this process was forked from one that used the GPU.
    """
    global _used
    if _lost:
        raise forked()
    with _lock:
        driver = _initialised()
        _used = True
        return driver


def lost() -> bool:
    """Whether this process was forked from one that had used the GPU: no call of the driver may be made then."""
    return _lost


def _after_fork() -> None:
    global _lost
    _lost = _used


os.register_at_fork(after_in_child=_after_fork)


def forked() -> DeviceError:
    """The error of a process that was forked from one that had used the GPU."""
    return DeviceError(
        "device",
        "this process was forked after its parent had used the GPU, and CUDA does not survive a fork",
        mend="start workers with multiprocessing's 'spawn', or fork before the GPU is first used",
    )


def describe(driver: Any, status: Any) -> str:
    """Name and text of an error code."""
    name, text = driver.cuGetErrorName(status)[1], driver.cuGetErrorString(status)[1]
    parts = [p.decode() for p in (name, text) if p]
    return ": ".join(parts) or f"error {int(status)}"


def error_of(driver: Any, status: Any, function: str, doing: str) -> NbxError:
    """The exception for a call that failed while `doing` something."""
    text = describe(driver, status)
    if int(status) in FATAL:
        return LaunchError(
            function,
            f"a kernel or copy on the GPU failed ({text}), found out while {doing}",
            mend="CUDA cannot go on in this process: start a new one (compute-sanitizer names the faulty access)",
        )
    return DeviceError(function, f"{doing} failed ({text})")


def call(driver: Any, function: str, doing: str, result: tuple[Any, ...]) -> Any:
    """The value of a driver call (None if it has none); raises if the call failed."""
    if result[0]:
        raise error_of(driver, result[0], function, doing)
    return result[1] if len(result) == 2 else result[1:] or None


def driver_version(driver: Any) -> int:
    """The newest CUDA that the driver knows: 12080 is CUDA 12.8."""
    return int(call(driver, "device", "asking for the driver's version", driver.cuDriverGetVersion()))


def cuda_text(version: int) -> str:
    """``CUDA 12.8`` of 12080."""
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def gpu_model(driver: Any, device: Any) -> str:
    """What the driver calls a GPU: ``NVIDIA H200``."""
    name: bytes = call(driver, "device", "asking for the GPU's name", driver.cuDeviceGetName(_NAME_BYTES, device))
    return name.partition(b"\0")[0].decode(errors="replace")
