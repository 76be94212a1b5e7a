"""Runs the cases of `tools.invariance.cases` in every setting, beside other work, and compares bits."""

from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from tools.invariance.cases import Case

from nbxtensor.base.errors import DTypeError
from nbxtensor.certify.calls import same_bits
from nbxtensor.certify.census import keys_of
from nbxtensor.certify.contents import content
from nbxtensor.certify.memory import Array, host_memory, view_of
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, place
from nbxtensor.kernel.launch import jobs_among
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tensor.create import to_numpy
from nbxtensor.tensor.host import raw
from nbxtensor.tensor.tensor import Tensor
from nbxtensor.tuning.certificate import encode
from nbxtensor.tuning.choose import forced, observed

FILLS = ("normal", "cancelling", "special")
"""What the row holds, in turn; its neighbours hold the same kind."""
SOURCE = 16
"""Rows of the operands that the row is taken from."""
PERIOD = 65_537
"""Elements after which the neighbours' content repeats; a prime, so that no two are alike."""
WORK = 1 << 18
"""Elements of a call up to which it is repeated in full."""
OTHERS = 10
"""Rows of other lengths than the usual one are repeated so many times less."""
SMALL = 1 << 16
"""Bytes of a result up to which all of it is fetched from a device."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting that is forced on an operator's variant; `variant` None: whatever is chosen."""

    operator: str = ""
    variant: str | None = None
    setting: Any = None

    def __str__(self) -> str:
        return "as chosen" if self.variant is None else f"{self.variant} {encode(self.setting)}"

    @property
    def certificate(self) -> str:
        """The same text for the same setting of a table."""
        return settings_text(self.operator, self.variant or "", encode(self.setting))


def settings_text(operator: str, variant: str, setting: Any) -> str:
    """Operator, variant and setting in words."""
    return f"{operator}|{variant}|{sorted(dict(setting).items())}"


AS_CHOSEN = Choice()


def choices(case: Case, batch: int, device: Device) -> list[Choice]:
    """All settings of a call on `device`, which only says where it would run; the declared default first.

    Where a key has several, what is chosen without force comes last.
    """
    seen = keys_of(case.example(batch), device)
    found = [
        Choice(key.operator, key.variant, setting)
        for key, use in seen.items()
        for setting in use.candidates
        if encode(setting)
    ]
    several = not found or any(len(use.candidates) > 1 for use in seen.values())
    return [*dict.fromkeys(found), *([AS_CHOSEN] if several else [])]


@contextmanager
def chosen(choice: Choice) -> Generator[list[Any]]:
    """Let calls of this thread take a setting; what took it is in the list."""
    forget_plans()
    try:
        with observed():
            if choice.variant is None:
                yield []
            else:
                with forced(choice.operator, choice.variant, choice.setting) as wish:
                    yield wish.taken
    finally:
        forget_plans()


def jobs_of(cases: Sequence[Case], device: Device, settings: Container[str] | None = None) -> list[Job]:
    """All that the cases launch, in every setting, or in those named and the row alone in the default."""
    jobs: dict[str, Job] = {}
    for case in cases:
        alone = case.as_rows
        calls = [(alone, 1, choices(alone, 1, device)[0])]
        for batch in case.batches:
            calls += [(case, batch, choice) for choice in wanted(choices(case, batch, device), settings)]
        for one, batch, choice in calls:
            null = NullDevice(device.target, device.profile)
            with chosen(choice):
                one.example(batch).run(null)
            jobs.update((job.identity, job) for job in jobs_among(null.calls))
    return list(jobs.values())


def wanted(found: Sequence[Choice], settings: Container[str] | None) -> list[Choice]:
    """The choices whose setting is named; all if none is."""
    return [c for c in found if settings is None or (c.variant is not None and c.certificate in settings)]


def takes(case: Case, device: Device) -> bool:
    """Whether the operator takes the case's dtypes."""
    try:
        choices(case, 1, device)
    except DTypeError:
        return False
    return True


def positions(batch: int) -> list[int]:
    """Where the row stands: first, in the middle, last."""
    return sorted({0, batch // 2, batch - 1})


def values_of(example: Example, fill: str, seed: int) -> list[Array]:
    """The tensors of a call, their content the same again after a while."""
    memories = content(example, fill, seed, PERIOD)
    return [view_of(memory, spec, 0) for memory, spec in zip(memories, example.specs, strict=True)]


class Operands:
    """The values of a case, and its operands on a device.

    Attributes
    ----------
    case
        The call.
    """

    def __init__(self, case: Case, device: Device) -> None:
        self.case = case
        self.device = device

    @cached_property
    def _sources(self) -> dict[str, list[Array]]:
        example = self.case.as_rows.example(SOURCE)
        return {fill: values_of(example, fill, 1) for fill in FILLS}

    def arrays(self, fill: str, batch: int) -> list[Array]:
        """One array for each tensor: the row at `positions`, other rows between."""
        arrays: list[Array] = []
        others = values_of(self.case.as_rows.example(batch), fill, 2) if batch > 1 else self._sources[fill]
        for part, other, source in zip(self.case.parts, others, self._sources[fill], strict=True):
            if not part.batched:
                arrays.append(source)
            elif batch == 1:
                arrays.append(source[:1])
            else:
                mixed = other.copy()
                mixed[positions(batch)] = source[0]
                arrays.append(mixed)
        return arrays

    def placed(self, fill: str, batch: int, case: Case) -> list[Any]:
        """The operands on the device, in memory of their own."""
        arrays = iter(zip(case.parts, self.arrays(fill, batch), strict=True))

        def tensor(spec: Any) -> Tensor:
            part, array = next(arrays)
            if part.batched and case.columns:
                array = np.moveaxis(array, 0, -1)
            placed = place(spec, self.device)
            self.device.copy_from_host(placed.buffer.ptr, raw(host_memory(spec, array, 0, 0)))
            return placed

        return case.example(batch).map(tensor)


def call(case: Case, batch: int, operands: list[Any], device: Device) -> tuple[Tensor, ...]:
    """The results of a call."""
    found: Any = case.example(batch).call(operands, device)
    if found is None:  # the operator writes into its first operand
        found = operands[0]
    return cast("tuple[Tensor, ...]", found if isinstance(found, tuple) else (found,))


def rows(results: Sequence[Tensor], at: Sequence[int], columns: bool, host: bool) -> list[list[Array]]:
    """The rows `at` some positions of every result, on the host."""
    found: list[list[Array]] = []
    for result in results:
        if host or columns or result.nbytes <= SMALL:
            array = to_numpy(result)
            found.append([np.array(array[..., p] if columns else array[p]) for p in at])
        else:
            found.append([np.array(to_numpy(result[p])) for p in at])
    return found


@dataclass(slots=True)
class Tally:
    """What came of an operator's cases.

    Attributes
    ----------
    cases
        Calls of so many rows, contents aside.
    settings
        Different settings that were forced.
    runs
        Calls in all.
    fewest, most
        Repeats of a case in one setting.
    compared
        Rows that were compared.
    differing
        Elements with other bits than in the row alone with the declared default.
    faults
        Where, the first of each case and setting.
    met
        The settings as tables write them.
    """

    cases: int = 0
    settings: set[str] = field(default_factory=set[str])
    runs: int = 0
    fewest: int = 0
    most: int = 0
    compared: int = 0
    differing: int = 0
    faults: list[str] = field(default_factory=list[str])
    met: set[str] = field(default_factory=set[str])

    def repeated(self, count: int) -> None:
        """Enter that a case was repeated in a setting."""
        self.fewest = min(self.fewest, count) if self.runs else count
        self.most = max(self.most, count)
        self.runs += count


def differing(a: Array, b: Array) -> int:
    """Elements whose bits differ; any NaN equals any NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return max(a.size, b.size, 1)
    if same_bits(a, b):
        return 0
    return sum(not same_bits(x, y) for x, y in zip(a.reshape(-1, 1), b.reshape(-1, 1), strict=True))


def repeats_of(repeats: int, elements: int) -> int:
    """How often a call is repeated: large ones less, all contents at least once."""
    return max(len(FILLS), min(repeats, repeats * WORK // max(1, elements)))


class Check:
    """Holds the rows of one case against the row alone.

    Parameters
    ----------
    repeats
        Of each number of rows in each setting, for rows of the usual length.
    """

    def __init__(self, device: Device, repeats: int) -> None:
        self.device = device
        self.repeats = repeats

    def run(self, case: Case, tally: Tally, settings: Container[str] | None = None) -> None:
        """Run a case for all its numbers of rows, in all settings or those named."""
        operands = Operands(case, self.device)
        with chosen(choices(case.as_rows, 1, self.device)[0]):
            alone = {fill: self._alone(operands, fill) for fill in FILLS}
        for batch in case.batches:
            placed = [operands.placed(fill, batch, case) for fill in FILLS]
            elements = sum(spec.size for spec in case.example(batch).specs)
            count = repeats_of(self.repeats if case.is_usual else self.repeats // OTHERS, elements)
            tally.cases += 1
            for choice in wanted(choices(case, batch, self.device), settings):
                with chosen(choice) as taken:
                    self._repeat(case, batch, placed, alone, choice, count, tally)
                if choice.variant is not None:
                    if not taken:
                        raise RuntimeError(f"{case.example(batch)}: no launch took the setting {choice}")
                    tally.settings.add(str(choice))
                    tally.met.add(choice.certificate)

    def _alone(self, operands: Operands, fill: str) -> list[Array]:
        case = operands.case.as_rows
        results = call(case, 1, operands.placed(fill, 1, case), self.device)
        return [found for (found,) in rows(results, (0,), False, self.device.host_accessible)]

    def _repeat(
        self, case: Case, batch: int, placed: list[Any], alone: Any, choice: Choice, count: int, tally: Tally
    ) -> None:
        at = positions(batch)
        faults = 0
        for number in range(count):
            fill = number % len(FILLS)
            results = call(case, batch, placed[fill], self.device)
            found = rows(results, at, case.columns, self.device.host_accessible)
            for wanted, got in zip(alone[FILLS[fill]], found, strict=True):
                for position, row in zip(at, got, strict=True):
                    tally.compared += 1
                    if wanted.tobytes() == row.tobytes() and wanted.shape == row.shape:
                        continue
                    wrong = differing(wanted, row)
                    tally.differing += wrong
                    if wrong and not faults:
                        where = f"row {position} of {batch}, {FILLS[fill]} values, run {number + 1}"
                        tally.faults.append(f"{case.example(batch)}: {where}, {choice}: {wrong} elements differ")
                    faults += wrong
        tally.repeated(count)
