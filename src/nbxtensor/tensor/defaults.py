"""The default device, devices by name, and the stream that work goes to."""

from contextlib import AbstractContextManager
from typing import Any

from nbxtensor.base import knobs
from nbxtensor.base.errors import DeviceError
from nbxtensor.device import registry as devices
from nbxtensor.device.protocol import Device

_default: Device | None = None


def default_device() -> Device:
    """The device of new tensors when none is given: set by `set_default_device`, else ``NBX_DEVICE``, else the CPU."""
    return _default if _default is not None else devices.get(knobs.device.get())


def set_default_device(device: str | Device | None) -> None:
    """Make `device` the default for new tensors of this process; None goes back to ``NBX_DEVICE``."""
    global _default
    _default = None if device is None else resolve_device(device)


def resolve_device(device: str | Device | None) -> Device:
    """`device` itself, the device of that name, or the default one for None."""
    if device is None:
        return default_device()
    if isinstance(device, str):
        return devices.get(device)
    if not hasattr(device, "allocate"):
        raise DeviceError("device", "not a device or the name of one", got=repr(device), allowed=devices.NAMES)
    return device


def stream(stream: Any, device: str | Device = "cuda") -> AbstractContextManager[None]:
    """Send the work of this thread to `stream` inside a ``with`` block.

    Work stays in order: on entry the stream waits for the one that was current, on exit that one waits for it.

    Parameters
    ----------
    stream
        A stream of `device`, of PyTorch, CuPy or cuda.core, or a handle.
    device
        The device it belongs to.

    Raises
    ------
    DeviceError
        If the device has no streams.
    """
    target = resolve_device(device)
    use: Any = getattr(target, "stream", None)
    if use is None:
        raise DeviceError("nbx.stream", "the device has no streams", got=target.name, allowed="cuda devices")
    return use(stream)
