"""What the CUDA driver says about the GPUs of this machine; asking makes no context on them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbxtensor.device import cuda_driver

TRACES = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Files that a loaded NVIDIA driver makes; the last one under WSL."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
_VENDOR = "0x10de"
_DISPLAY = "0x03"
_CUBIN_OS = 0x33
_ABI_OF_CUDA_12 = 7


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, in the driver's words.

    Attributes
    ----------
    name
        As users write it: ``cuda:0``.
    registers
        32-bit registers of a block.
    shared_bytes
        Most shared memory that a block may ask for.
    peak_bandwidth
        Bytes per second that memory clock and bus width allow; 0 if the driver does not say.
    """

    name: str
    model: str
    capability: tuple[int, int]
    memory: int
    processors: int
    warp_size: int
    registers: int
    shared_bytes: int
    memory_pools: bool
    prohibited: bool
    peak_bandwidth: float

    @property
    def arch(self) -> str:
        """Its architecture: ``sm_90``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def _gpu(driver: Any, ordinal: int) -> Gpu:
    def call(doing: str, result: tuple[Any, ...]) -> Any:
        return cuda_driver.call(driver, "device", doing, result)

    device = call("opening the GPU", driver.cuDeviceGet(ordinal))

    def ask(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(f"asking the GPU for {name}", driver.cuDeviceGetAttribute(attribute, device)))

    def ask_if_known(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        status, value = (1, 0) if attribute is None else driver.cuDeviceGetAttribute(attribute, device)
        return 0 if status else int(value)

    clock, width = ask_if_known("MEMORY_CLOCK_RATE"), ask_if_known("GLOBAL_MEMORY_BUS_WIDTH")
    return Gpu(
        name=f"cuda:{ordinal}",
        model=cuda_driver.gpu_model(driver, device),
        capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        memory=int(call("asking for the GPU's memory", driver.cuDeviceTotalMem(device))),
        processors=ask("MULTIPROCESSOR_COUNT"),
        warp_size=ask("WARP_SIZE"),
        registers=ask("MAX_REGISTERS_PER_BLOCK"),
        shared_bytes=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        memory_pools=bool(ask("MEMORY_POOLS_SUPPORTED")),
        prohibited=ask("COMPUTE_MODE") == 2,
        peak_bandwidth=2 * clock * 1e3 * width / 8,  # both edges of a clock in kHz
    )


def gpus(driver: Any) -> list[Gpu]:
    """The GPUs that the driver shows to this process."""
    count = cuda_driver.call(driver, "device", "counting GPUs", driver.cuDeviceGetCount())
    return [_gpu(driver, ordinal) for ordinal in range(count)]


def needed_cuda(cubin: bytes) -> int:
    """The CUDA version that a driver must know to load a cubin; 0 if it is none.

    The version of the binary interface stands in the ELF header, and a driver refuses those that are newer than it.
    """
    if len(cubin) < 9 or cubin[:4] != b"\x7fELF" or cubin[7] != _CUBIN_OS:
        return 0
    return 13000 if cubin[8] > _ABI_OF_CUDA_12 else 12000


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def machine_has_gpu() -> bool:
    """Whether there is an NVIDIA GPU to be seen, with or without a driver for it."""
    if any(path.exists() for path in TRACES):
        return True
    try:
        folders = list(PCI_DEVICES.iterdir())
    except OSError:
        return False
    return any(_read(f / "vendor") == _VENDOR and _read(f / "class").startswith(_DISPLAY) for f in folders)


def hidden() -> bool:
    """Whether the environment keeps all GPUs from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1", "NoDevFiles", "void")
