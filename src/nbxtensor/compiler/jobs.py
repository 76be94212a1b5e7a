"""A compile job: what to compile and how, and the key under which its result is stored.

Making a key imports neither Triton nor LLVM, so that a lookup in a warm store stays cheap.
"""

import contextlib
import hashlib
import os
import sys
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import cast

from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import CompileError
from nbxtensor.base.locks import renew_cached
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Options, Target

type_text = "a Triton type such as '*fp32' or 'i64', or a tuple of them"

_SOURCES = {
    "cuda": ("source.py", "ttir.py", "cuda.py"),
    "hip": ("source.py", "ttir.py", "hip.py"),
    "cpu": ("source.py", "ttir.py", "cpu/*.py"),
}
COMPILERS = {"cuda": ("triton",), "hip": ("triton",), "cpu": ("triton", "llvmlite")}


def _version(package: str) -> str:
    """The installed version of `package`, read off the name of its metadata folder."""
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                    return name.removeprefix(f"{package}-").removesuffix(".dist-info")
    from importlib import metadata  # knows other ways to install a package, but costs more than all the rest of a key

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _lowering_hash(kind: str) -> str:
    """Hash of our own compiler's sources for `kind`: what they emit changes whenever they do."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for name in _SOURCES[kind]:
        for part in sorted(folder.glob(name)):
            digest.update(part.name.encode() + b"\0" + part.read_bytes())
    return digest.hexdigest()[:12]


@cache
def compiler_version(kind: str) -> str:
    """What compiles for `kind` here: the installed compilers' versions and a hash of our own lowering."""
    if kind not in COMPILERS:
        raise CompileError("compile", "unknown kind of target", got=repr(kind), allowed=COMPILERS)
    packages = [f"{name} {_version(name)}" for name in COMPILERS[kind]]
    return ", ".join([*packages, f"nbxtensor {_lowering_hash(kind)}"])


def describe(value: object) -> object:
    """A constant as it is written into an artifact's header: plain JSON values."""
    if isinstance(value, KernelFunction):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, tuple):
        return [describe(v) for v in cast("tuple[object, ...]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _canonical(name: str, value: object) -> str:
    """One text per constant value; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, KernelFunction):
        return f"fn {value.source_hash}"
    if isinstance(value, tuple):
        return f"({','.join(_canonical(name, v) for v in cast('tuple[object, ...]', value))})"
    if value is None or type(value) in (bool, int, float, str):
        return f"{type(value).__name__} {value!r}"
    triton = getattr(value, "triton", None)
    if isinstance(triton, str):
        return f"dtype {triton}"
    raise CompileError(
        "compile",
        f"constant {name} has a type that a kernel cannot take",
        got=type(value).__name__,
        allowed="bool, int, float, str, None, a dtype, a kernel function, or a tuple of them",
    )


def _flat(kind: object) -> tuple[str, ...]:
    if isinstance(kind, tuple):
        return tuple(part for k in cast("tuple[object, ...]", kind) for part in _flat(k))
    if not isinstance(kind, str):
        raise CompileError("compile", "an argument's type is not one", got=repr(kind), allowed=type_text)
    return (kind,)


@dataclass(frozen=True)
class Job:
    """One kernel to compile for one target.

    Two jobs that compare equal may still differ (``1 == True == 1.0``): tell jobs apart by `key`.

    Attributes
    ----------
    signature
        (name, type) of each run-time argument in order: ``"*fp32"``, ``"i64"``, or a tuple of types.
    constants
        (name, value) of each ``tl.constexpr`` argument.
    divisible
        Names of pointers and integers that are multiples of 16; ``"shape.1"`` is the second part of a tuple.
    """

    fn: KernelFunction
    signature: tuple[tuple[str, object], ...]
    constants: tuple[tuple[str, object], ...]
    options: Options
    divisible: frozenset[str]
    target: Target

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: another process makes the key from the sources that it has."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def name(self) -> str:
        """Module and name of the kernel."""
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    @property
    def flat_signature(self) -> tuple[str, ...]:
        """Types of the run-time arguments as the binary takes them: tuples are taken apart."""
        return tuple(part for _, kind in self.signature for part in _flat(kind))

    @cached_property
    def identity(self) -> str:
        """Hash of everything but the compiler (hex): the same wherever the job is compiled."""
        order = {name: index for index, name in enumerate(self.fn.parameters)}
        parts = [
            f"source {self.fn.source_hash}",
            f"name {self.fn.name}",
            *(f"argument {name} {kind!r}" for name, kind in self.signature),
            *(
                f"constant {name} {_canonical(name, value)}"
                for name, value in sorted(self.constants, key=lambda c: (order.get(c[0], -1), c[0]))
            ),
            f"divisible {sorted(self.divisible)}",
            f"options {self.options}",
            f"target {self.target.kind} {self.target.arch}",
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def key(self) -> str:
        """Hash of `identity` and the compiler's version (hex): the key of the artifact store."""
        return hashlib.sha256(f"{self.identity}\n{compiler_version(self.target.kind)}".encode()).hexdigest()


renew_cached(DType, KernelFunction, Job)
