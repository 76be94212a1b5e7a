"""What a check is, and how it is run: whatever happens inside of one becomes one of its findings."""

import contextlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from nbxtensor.base import knobs
from nbxtensor.base.errors import NbxError
from nbxtensor.cli.checks.scan import Scan, scan_store
from nbxtensor.cli.gpus import Gpu, gpus
from nbxtensor.compiler.store import default_store
from nbxtensor.device import cuda_driver
from nbxtensor.device.cpu_level import choose_level

Status = Literal["ok", "warning", "problem"]
ORDER: tuple[Status, ...] = ("ok", "warning", "problem")


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of several; of none, ok."""
    found = set(statuses)
    return "problem" if "problem" in found else "warning" if "warning" in found else "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, and what to do about it."""

    status: Status
    text: str
    mend: str


@dataclass(slots=True)
class Check:
    """What was looked at, and what was found.

    Attributes
    ----------
    facts
        Plain JSON values.
    summary
        The facts that matter, in a few words.
    """

    name: str
    summary: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])

    def warning(self, text: str, mend: str) -> None:
        """Note something that works, but not as well as it could."""
        self.findings.append(Finding("warning", text, mend))

    def problem(self, text: str, mend: str) -> None:
        """Note something that is wrong."""
        self.findings.append(Finding("problem", text, mend))

    @property
    def status(self) -> Status:
        """The worst of the findings."""
        return worst(f.status for f in self.findings)


class Machine:
    """What several checks want to know, found out once."""

    @cached_property
    def driver(self) -> Any:
        """The driver module; raises `DeviceError` where there is none that works."""
        return cuda_driver.open_driver()

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that the driver shows; none if it does not work, which the check of GPUs tells."""
        try:
            return gpus(self.driver)
        except NbxError:
            return []

    @cached_property
    def arches(self) -> list[str]:
        """Architectures that kernels run on here."""
        found: list[str] = []
        with contextlib.suppress(NbxError):
            found.append(choose_level(knobs.cpu_level.get()))
        return list(dict.fromkeys([*found, *(gpu.arch for gpu in self.gpus)]))

    @cached_property
    def scan(self) -> Scan:
        """What the kernel cache holds."""
        return scan_store(default_store())


Body = Callable[[Check, Machine], None]


def explained(error: NbxError) -> str:
    """The error's text without its mend."""
    return str(error).removesuffix(f"; {error.mend}") if error.mend else str(error)


def run_check(name: str, body: Body, machine: Machine) -> Check:
    """Run one check; an exception inside of it is one of its problems."""
    check = Check(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body(check, machine)
    except NbxError as error:
        check.problem(explained(error), error.mend or "correct what the line says is not allowed")
    except Exception as error:
        text = f"the check could not be done: {type(error).__name__}: {error}"
        check.problem(text, "report it with this line, unless the line says what to do")
    return check
