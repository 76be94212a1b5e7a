"""Devices by name. A device's module is imported when the device is first asked for."""

import importlib

from nbxtensor.base.errors import DeviceError
from nbxtensor.base.locks import ForkLock
from nbxtensor.device.profile import known_profiles, target_of
from nbxtensor.device.protocol import Device

NAMES = "cpu, cuda, cuda:<index>, null, null:<architecture>"
_devices: dict[str, Device] = {}
_lock = ForkLock()


def get(name: str) -> Device:
    """The device called `name`; the same object every time.

    Parameters
    ----------
    name
        ``"cpu"``; ``"cuda"`` (the same as ``"cuda:0"``) or ``"cuda:1"``; ``"null"``, which computes nothing and
        records everything, or ``"null:sm_90"`` or ``"null:gfx942"`` to have it stand for another architecture.

    Raises
    ------
    DeviceError
        If the name is unknown or there is no such device; the message says what there is.
    """
    device = _devices.get(name)
    if device is None:
        with _lock:
            device = _devices.get(name)
            if device is None:
                device = _open(name)
                device = _devices.setdefault(device.name, device)
                _devices[name] = device
    return device


def _open(name: str) -> Device:
    kind, colon, rest = name.partition(":")
    if kind == "cpu" and not colon:
        return importlib.import_module("nbxtensor.device.cpu").CpuDevice()
    if kind == "cuda" and (not colon or rest.isdecimal()):
        return importlib.import_module("nbxtensor.device.cuda").CudaDevice(int(rest or 0))
    if kind == "null" and (not colon or rest in known_profiles()):
        return importlib.import_module("nbxtensor.device.null").NullDevice(target_of(rest or "x86-64-v3"))
    if kind == "hip" and (not colon or rest.isdecimal()):
        raise DeviceError(
            "device",
            "kernels are compiled and checked for AMD GPUs, but not yet run on them",
            got=repr(name),
            allowed=NAMES,
            mend="'null:gfx942' records what would run; Target('hip', 'gfx942') compiles it",
        )
    raise DeviceError("device", "no device has this name", got=repr(name), allowed=NAMES)


def discover() -> list[str]:
    """Names of the devices of this machine, ``"cpu"`` first; the null device is not among them."""
    return ["cpu", *importlib.import_module("nbxtensor.device.cuda").discover()]
