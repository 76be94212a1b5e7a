"""Processor and GPUs: what they are, whether that can be, and whether a kernel runs on them."""

import os
import platform
from collections.abc import Iterator

from nbxtensor.base import knobs
from nbxtensor.base.dtypes import ALL
from nbxtensor.base.errors import DeviceError
from nbxtensor.cli import trial
from nbxtensor.cli.checks.core import Check, Machine, explained
from nbxtensor.cli.checks.software import INSTALL, present
from nbxtensor.cli.gpus import Gpu, gpus, hidden, machine_has_gpu, needed_cuda
from nbxtensor.cli.show import bandwidth, size
from nbxtensor.compiler import packs
from nbxtensor.device.cpu_level import choose_level, cpu_flags, supported_levels
from nbxtensor.device.cpu_memory import memory_info
from nbxtensor.device.cuda import profile_of
from nbxtensor.device.cuda_driver import cuda_text, driver_version
from nbxtensor.device.profile import load_profile
from nbxtensor.device.protocol import Profile

FASTEST = 1e14
"""Bytes per second beyond any memory's."""
FAR = 4.0
"""How many times a profile's bandwidth may differ from what a GPU's clock allows: GPUs of one architecture vary."""
REPORT = "reinstall nbxtensor; if that changes nothing, report it"
DRIVER = "reinstall or update the NVIDIA driver, or reset the GPU"


def profile_faults(profile: Profile) -> Iterator[str]:
    """What cannot be in a profile."""
    warp = profile.warp_size
    if warp < 1 or warp & (warp - 1):
        yield f"warp size {warp}"
    if not (0 < profile.registers_per_thread <= 1024 or (warp == 1 and profile.registers_per_thread == 0)):
        yield f"{profile.registers_per_thread} registers per thread"
    if profile.shared_bytes < 0 or (profile.shared_bytes == 0 and warp > 1):
        yield f"{profile.shared_bytes} bytes of shared memory"
    if profile.reduce_tile_max < 1:
        yield f"reduced tiles of {profile.reduce_tile_max} elements"
    if profile.loop_bits not in (32, 64):
        yield f"loop bounds of {profile.loop_bits} bits"
    if not 0 <= profile.copy_bandwidth <= FASTEST:  # NaN is not either
        yield f"a copy bandwidth of {profile.copy_bandwidth:g} bytes per second"
    unknown = profile.dtypes - {dtype.name for dtype in ALL}
    if unknown or not profile.dtypes:
        yield f"dtypes {', '.join(sorted(unknown)) or 'missing'}"


def gpu_faults(gpu: Gpu) -> Iterator[str]:
    """What the driver says about a GPU and cannot be."""
    if gpu.memory <= 0:
        yield "memory of 0 bytes"
    if gpu.processors < 1:
        yield f"{gpu.processors} multiprocessors"
    if not gpu.model:
        yield "no name"


def disagreements(gpu: Gpu, profile: Profile) -> Iterator[str]:
    """Where a GPU has less than its profile claims, or something else."""
    if gpu.warp_size != profile.warp_size:
        yield f"warp size {gpu.warp_size}, profile {profile.warp_size}"
    if gpu.registers < profile.registers_per_thread * profile.warp_size:
        yield f"{gpu.registers} registers per block, profile {profile.registers_per_thread} per thread"
    if gpu.shared_bytes < profile.shared_bytes:
        yield f"{gpu.shared_bytes} bytes of shared memory, profile {profile.shared_bytes}"
    measured, peak = profile.copy_bandwidth, gpu.peak_bandwidth
    if measured and peak and not peak / FAR < measured < peak * FAR:
        yield f"memory of at most {bandwidth(peak)}, profile {bandwidth(measured)}"


def check_processor(check: Check, machine: Machine) -> None:
    """The processor's instruction set, and the memory."""
    flags = cpu_flags()
    free, total = memory_info()
    check.facts = {
        "machine": platform.machine(),
        "levels": list(supported_levels(flags)),
        "memory": total,
        "free": free,
        "cpus": os.cpu_count(),
        "usable_cpus": knobs.usable_cpus(),
    }
    if total <= 0 or free > total:
        check.problem(f"the memory cannot be: {free} bytes free of {total}", "look at /proc/meminfo and the container")
    try:
        level = choose_level(knobs.cpu_level.get())
    except DeviceError as error:
        offered = bool(supported_levels(flags))
        mend = "unset NBX_CPU_LEVEL" if offered else "use an x86-64 processor with AVX2 and FMA, or a GPU"
        check.problem(explained(error), mend)
        return
    check.facts["target"] = level
    check.summary = f"{level}, {knobs.usable_cpus()} of {os.cpu_count()} processors, {size(free)} free of {size(total)}"
    for fault in profile_faults(load_profile(level)):
        check.problem(f"the profile of {level} has impossible facts: {fault}", REPORT)


def check_gpus(check: Check, machine: Machine) -> None:
    """The NVIDIA driver and the GPUs that it shows."""
    wanted = knobs.device.get().startswith("cuda")
    try:
        driver = machine.driver
    except DeviceError as error:
        _check_no_driver(check, error, wanted)
        return
    version = driver_version(driver)
    found = gpus(driver)
    check.facts = {"driver": cuda_text(version), "gpus": [_facts(gpu) for gpu in found]}
    check.summary = f"driver for {cuda_text(version)}; " + ", ".join(f"{gpu.name} {gpu.model}" for gpu in found)
    for gpu in found:
        _check_gpu(check, gpu)
    _check_binaries(check, machine, version)


def _facts(gpu: Gpu) -> dict[str, object]:
    return {
        "name": gpu.name,
        "model": gpu.model,
        "target": gpu.arch,
        "memory": gpu.memory,
        "processors": gpu.processors,
        "warp_size": gpu.warp_size,
        "registers": gpu.registers,
        "shared_bytes": gpu.shared_bytes,
        "peak_bandwidth": gpu.peak_bandwidth,
    }


def _check_no_driver(check: Check, error: DeviceError, wanted: bool) -> None:
    seen = machine_has_gpu()
    check.facts = {"driver": None, "gpus": [], "seen": seen, "reason": error.problem}
    bindings = present("cuda-bindings")
    if wanted:
        check.problem(f"NBX_DEVICE asks for a GPU, but {explained(error)}", error.mend)
    elif not seen or hidden():
        check.summary = "no GPU" if not seen else "GPUs are hidden by CUDA_VISIBLE_DEVICES"
    elif bindings:
        check.problem(f"there is an NVIDIA GPU that cannot be used: {explained(error)}", error.mend)
    else:
        check.warning(f"there is an NVIDIA GPU that cannot be used: {explained(error)}", INSTALL.format("cuda"))


def _check_gpu(check: Check, gpu: Gpu) -> None:
    about = f"{gpu.name} ({gpu.model}, {gpu.arch})"
    for fault in gpu_faults(gpu):
        check.problem(f"{about}: the driver states impossible facts: {fault}", DRIVER)
    if gpu.prohibited:
        check.problem(f"{about} is in compute mode 'prohibited'", f"nvidia-smi -i {gpu.name[5:]} -c DEFAULT")
    if not gpu.memory_pools:
        check.problem(f"{about} has no memory pools", "update the driver, or use device 'cpu'")
    try:
        profile = profile_of(*gpu.capability)
    except DeviceError as error:
        check.problem(f"{about} has no profile: {explained(error)}", "use device 'cpu', or another GPU")
        return
    for fault in profile_faults(profile):
        check.problem(f"the profile of {gpu.arch} has impossible facts: {fault}", REPORT)
    differing = list(disagreements(gpu, profile))
    if differing:
        check.problem(f"{about} is not what its profile says: {'; '.join(differing)}", REPORT)


def _check_binaries(check: Check, machine: Machine, version: int) -> None:
    """Kernels that exist, and that the driver is too old to load."""
    arches = {gpu.arch for gpu in machine.gpus}
    places = [("the kernel cache", max((machine.scan.needed.get(arch, 0) for arch in arches), default=0))]
    for pack in packs.in_use():
        cubins = (needed_cuda(a.binary) for a in pack.artifacts() if a.target.arch in arches)
        places.append((str(pack.path), max(cubins, default=0)))
    for place, needed in places:
        if needed > version:
            check.problem(
                f"the driver is too old for kernels in {place}: it knows {cuda_text(version)}, they need "
                f"{cuda_text(needed)}",
                "update the driver" if place != "the kernel cache"
                else "update the driver; or nbxtensor cache clear, and compile with a Triton of the tried versions",
            )  # fmt: skip


def check_kernels(check: Check, machine: Machine) -> None:
    """One kernel on every device."""
    outcomes: dict[str, str] = {}
    check.facts = {"devices": outcomes}
    default = knobs.device.get()
    names = ["cpu", *(gpu.name for gpu in machine.gpus)]
    if not default.startswith("null") and default not in (*names, "cuda"):
        names.append(default)
    for name in names:
        outcome = trial.try_device(name)
        if outcome.uncompiled:  # the check of compilers says more
            outcomes[name] = "not tried: no compiler, and no pack has this kernel"
            continue
        outcomes[name] = outcome.error or "right"
        if outcome.error:
            setting = "" if name in names[: 1 + len(machine.gpus)] else "correct or unset NBX_DEVICE"
            mend = outcome.mend or setting or f"python -m nbxtensor.cli.trial {name} shows all of it"
            check.problem(f"a sum on {name} failed: {outcome.error.removesuffix(f'; {outcome.mend}')}", mend)
    check.summary = ", ".join(f"{name}: {text}" for name, text in outcomes.items())
