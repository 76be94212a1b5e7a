"""The only place where kernels are launched.

A launch is described by a `Plan`: kernel, types, constants, settings, grid. Making one costs a lookup or a compile;
running it costs the device's launch alone. Every run passes through `Plan.run`; devices that compute nothing
record it instead.
"""

import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import NotPackedError, UncertifiedKeyError
from nbxtensor.base.knobs import certified_only
from nbxtensor.compiler import packs
from nbxtensor.compiler.compile import Job, artifact_key, compile_job
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Artifact, Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.public_call import running_call
from nbxtensor.kernel.unpacked import explained
from nbxtensor.tuning.certificate import Certificate, binary_hash
from nbxtensor.tuning.key import certify_command

Grid = tuple[int, int, int]
Constant = bool | int | float | str | DType | KernelFunction | tuple[int, ...] | None
DEFAULT_OPTIONS = Options()
ALIGNMENT = 16


class Pointer(NamedTuple):
    """A pointer argument to elements of `dtype`; its address comes with each run."""

    dtype: DType


class Scalar(NamedTuple):
    """A scalar argument of `dtype` whose value comes with each run."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Call:
    """What a recording device sees of one launch."""

    name: str
    job: Job
    grid: Grid
    args: tuple[int | float, ...]


def jobs_among(recorded: Iterable[object]) -> list[Job]:
    """The jobs of the launches among what a device recorded, in order, with repetitions."""
    return [call.job for call in recorded if isinstance(call, Call)]


Argument = Pointer | Scalar | int | tuple[int, ...]
_state = threading.local()


class CertificateWarning(UserWarning):
    """Code runs that is not what a certificate was given for."""


@contextmanager
def planning() -> Generator[list["Plan"]]:
    """The plans that this thread makes in the block, without those of blocks inside it."""
    before = getattr(_state, "plans", None)
    plans: list[Plan] = []
    _state.plans = plans
    try:
        yield plans
    finally:
        _state.plans = before


def _type_of(argument: Argument) -> str | tuple[str, ...]:
    if isinstance(argument, Pointer):
        return f"*{argument.dtype.triton}"
    if isinstance(argument, Scalar):
        return argument.dtype.triton
    if isinstance(argument, tuple):
        return ("i64",) * len(argument)
    return "i64"


class Plan:
    """A kernel made ready for one kind of call.

    Parameters
    ----------
    name
        Operator that launches, for error messages and recorders.
    fn
        The kernel.
    arguments
        Run-time parameters by name, in the kernel's order. `Pointer` and `Scalar` stand for values that come with
        each run and precede the integers and tuples of integers, which are fixed by the plan and 64 bits wide.
    constants
        Values of the remaining parameters by name.
    work
        Elements that the whole launch touches: where programs are plain code, small launches stay on one thread.

    Attributes
    ----------
    run
        Launches with the addresses and scalars given, in the order of the plan's arguments.
    """

    __slots__ = (
        "_artifacts",
        "_bound",
        "_certificate",
        "_fixed",
        "_pointers",
        "arguments",
        "constants",
        "device",
        "fn",
        "grid",
        "name",
        "options",
        "run",
        "work",
    )

    def __init__(
        self,
        name: str,
        fn: KernelFunction,
        device: Device,
        grid: Grid,
        arguments: Mapping[str, Argument],
        constants: Mapping[str, Constant],
        options: Options = DEFAULT_OPTIONS,
        work: int = 0,
    ) -> None:
        self.name = name
        self.fn = fn
        self.device = device
        self.grid = grid
        self.arguments = arguments
        self.constants = tuple(sorted(constants.items()))
        self.options = options
        self.work = work
        fixed: list[int] = []
        pointers: list[int] = []
        for position, argument in enumerate(arguments.values()):
            if isinstance(argument, int):
                fixed.append(argument)
            elif isinstance(argument, Pointer):
                pointers.append(position)
            elif not isinstance(argument, Scalar):
                fixed.extend(argument)
        self._fixed = tuple(fixed)
        self._pointers = tuple(pointers)
        self._bound: list[Callable[..., object] | None] = [None, None]
        self._artifacts: dict[bool, Artifact] = {}
        self._certificate: Certificate | None = None
        self.run: Callable[..., object] = self._first
        plans: list[Plan] | None = getattr(_state, "plans", None)
        if plans is not None:
            plans.append(self)

    def job(self, aligned: bool = True) -> Job:
        """What must be compiled for this plan; `aligned`: every pointer is a multiple of 16 bytes."""
        divisible: set[str] = set()
        if self.device.profile.warp_size > 1:
            for name, argument in self.arguments.items():
                if isinstance(argument, Pointer):
                    if aligned:
                        divisible.add(name)
                elif isinstance(argument, int):
                    if argument % ALIGNMENT == 0:
                        divisible.add(name)
                elif not isinstance(argument, Scalar):
                    divisible.update(f"{name}.{i}" for i, v in enumerate(argument) if v % ALIGNMENT == 0)
        return Job(
            fn=self.fn,
            signature=tuple((name, _type_of(argument)) for name, argument in self.arguments.items()),
            constants=self.constants,
            options=self.options,
            divisible=frozenset(divisible),
            target=self.device.target,
        )

    @property
    def alignments(self) -> tuple[bool, ...]:
        """The values of `aligned` for which jobs differ."""
        return (True, False) if self.device.profile.warp_size > 1 else (True,)

    def artifact_key(self, aligned: bool) -> str:
        """Key of the artifact that will run, without compiling it."""
        return artifact_key(self.job(aligned))

    def is_covered(self, certificate: Certificate) -> bool:
        """Whether a certificate lists what will run.

        The code for pointers that are not aligned may be absent where a pack lacks it too: it is checked when it loads.
        """
        needed = self.alignments
        if len(needed) > 1 and packs.key_of(self.job(True)) is not None and packs.key_of(self.job(False)) is None:
            needed = (True,)
        return all(certificate.covers(self.artifact_key(aligned)) for aligned in needed)

    def trust(self, certificate: Certificate) -> bool:
        """Whether the code for aligned pointers is that of a certificate; other code is then checked when it loads."""
        self._certificate = certificate
        return self._proved(self._artifact(True))

    def _proved(self, artifact: Artifact) -> bool:
        return self._certificate is None or self._certificate.covers(artifact.key, binary_hash(artifact))

    def _artifact(self, aligned: bool) -> Artifact:
        found = self._artifacts.get(aligned)
        if found is None:
            try:
                found = self._artifacts[aligned] = compile_job(self.job(aligned))
            except NotPackedError as error:
                raise explained(error, self.name, self.device.target) from None
        return found

    def _first(self, *values: int | float) -> None:
        """The first run; finds out how the later ones go."""
        device = self.device
        if 0 in self.grid:
            return
        if not device.computes:
            job = self.job(self._are_aligned(values))
            device.record(Call(self.name, job, self.grid, (*values, *self._fixed)))
            return
        if device.profile.warp_size == 1:
            self.run = self._bind(True)
        else:
            self.run = self._by_alignment
        self.run(*values)

    def _are_aligned(self, values: tuple[int | float, ...]) -> bool:
        return not any(values[position] % ALIGNMENT for position in self._pointers)

    def _by_alignment(self, *values: int | float) -> None:
        aligned = 1
        for position in self._pointers:
            if values[position] % ALIGNMENT:
                aligned = 0
                break
        run = self._bound[aligned]
        if run is None:
            run = self._bound[aligned] = self._bind(bool(aligned))
        run(*values)

    def _bind(self, aligned: bool) -> Callable[..., object]:
        artifact = self._artifact(aligned)
        if not aligned and not self._proved(artifact):
            problem = f"the code for pointers that are no multiple of {ALIGNMENT} is not what was certified"
            if certified_only.get():
                command = certify_command(running_call(), self.device.target.arch)
                mend = f"run: {command}, copy the operands, or unset NBX_CERTIFIED_ONLY"
                raise UncertifiedKeyError(f"nbx.{self.name}", problem, got=self.fn.__name__, mend=mend)
            warnings.warn(f"{self.name}: {problem}", CertificateWarning, stacklevel=2)
        self._artifacts.clear()
        return self.device.bind(self.device.load(artifact), self.grid, self._fixed, self.work)
