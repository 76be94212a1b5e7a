"""What a kernel is compiled for, and what compiling it gave."""

from collections.abc import Mapping
from dataclasses import dataclass

_ALSO_RUNS = {
    "x86-64-v4": ("x86-64-v3",),
    "sm_75": ("sm_70",),
    "sm_86": ("sm_80",),
    "sm_89": ("sm_86", "sm_80"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture: ``Target("cuda", "sm_90")``, ``Target("hip", "gfx942")`` or ``Target("cpu", "x86-64-v3")``."""

    kind: str
    arch: str

    def __str__(self) -> str:
        return self.arch

    @property
    def also_runs(self) -> "tuple[Target, ...]":
        """Other targets whose binaries run here as they are, the nearest first."""
        return tuple(Target(self.kind, arch) for arch in _ALSO_RUNS.get(self.arch, ()))


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that steer the compiler but never the result."""

    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True, slots=True)
class Resources:
    """What a binary needs, read from the binary itself. CPU kernels report 0 registers."""

    registers: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel: the binary and everything needed to launch it.

    Attributes
    ----------
    key
        Hash of source, signature, constants, options, target and compiler version (hex).
    symbol
        Name of the entry point in `binary`.
    signature
        Types of the run-time arguments in order (``"*fp32"``, ``"i64"``, ``"fp32"``); constants are not among them.
    binary
        A cubin (cuda), an hsaco (hip) or a relocatable ELF object (cpu).
    """

    key: str
    target: Target
    symbol: str
    signature: tuple[str, ...]
    constants: Mapping[str, object]
    options: Options
    resources: Resources
    compiler: str
    binary: bytes
