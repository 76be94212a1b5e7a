"""Which x86-64 level this machine offers. Kernels are compiled for a level, never for a machine's feature list."""

import platform
from functools import cache
from pathlib import Path

from nbxtensor.base.errors import DeviceError

LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v3": frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")),
    "x86-64-v4": frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
}
"""What each level needs beyond the one before, in the words of ``/proc/cpuinfo``, lowest level first."""


@cache
def cpu_flags() -> frozenset[str]:
    """Features that the kernel reports for the first processor."""
    with Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def supported_levels(flags: frozenset[str]) -> tuple[str, ...]:
    """Levels that a processor with `flags` can run, lowest first."""
    found: list[str] = []
    for level, needed in LEVELS.items():
        if not needed <= flags:
            break
        found.append(level)
    return tuple(found)


def choose_level(wanted: str | None = None) -> str:
    """The level to compile for: `wanted`, or else the highest that this machine runs.

    Raises
    ------
    DeviceError
        If the machine is older than the lowest level, or does not run `wanted`.
    """
    machine = platform.machine()
    if machine != "x86_64":
        raise DeviceError("cpu", "this processor is not supported", got=machine, allowed="x86_64")
    offered = supported_levels(cpu_flags())
    lowest = next(iter(LEVELS))
    if not offered:
        lacking = ", ".join(sorted(LEVELS[lowest] - cpu_flags()))
        raise DeviceError("cpu", f"this processor is older than {lowest}", got=f"one without {lacking}")
    if not wanted:
        return offered[-1]
    if wanted not in offered:
        raise DeviceError(
            "cpu", "this processor does not run the level NBX_CPU_LEVEL asks for", got=wanted, allowed=offered
        )
    return wanted
