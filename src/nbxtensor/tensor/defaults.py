"""The default device, and devices by name."""

from nbxtensor.base import knobs
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
    return devices.get(device) if isinstance(device, str) else device
