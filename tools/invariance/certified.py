"""The settings that shipped tables certify and that no case of `tools.invariance.cases` meets, on their own calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tools.invariance.cases import NO_ROWS, Case, Part, is_elementwise
from tools.invariance.runs import choices, settings_text

from nbxtensor.base.errors import NbxError
from nbxtensor.certify.census import keys_of
from nbxtensor.certify.run import calls_of
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, Spec, plain
from nbxtensor.kernel.declare import operators
from nbxtensor.tuning.certificate import Certificate, encode, read_table
from nbxtensor.tuning.tables import SHIPPED

MOST = 1 << 28
"""Elements of the largest call."""


@dataclass(frozen=True, slots=True)
class Certified:
    """A call of a certificate with its own number of rows, and the settings to force on it."""

    case: Case
    settings: frozenset[str]


def text_of(certificate: Certificate) -> str:
    """The setting as `Choice.certificate` says it."""
    operator, variant, *_ = certificate.key.split("|")
    return settings_text(operator, variant, certificate.setting)


def unmet(device: Device, cases: Sequence[Case]) -> dict[str, list[Example]]:
    """Settings of certificates that no case meets, and the calls that they were certified for, small ones first."""
    met = {c.certificate for case in cases for batch in case.batches for c in choices(case, batch, device)}
    found: dict[str, list[Example]] = {}
    for path in sorted((SHIPPED / device.target.arch).glob("*.json")):
        for one in read_table(path.read_text(), str(path)).values():
            text = text_of(one)
            if text not in met and dict(one.setting):
                found.setdefault(text, []).extend(calls_of(one))
    return {text: sorted(calls, key=_elements) for text, calls in found.items()}


def _elements(example: Example) -> int:
    return sum(spec.size for spec in example.specs)


def case_of(example: Example) -> Case | None:
    """The call as so many rows of a smaller one; None where its leading axis is no number of rows."""
    specs, op = example.specs, operators.get(example.operator)
    rank = max((len(s.shape) for s in specs), default=0)
    if rank == 0 or op is None or op.name in NO_ROWS:
        return None
    if dict(example.attributes).get("axis") == 0:
        return columns_of(example)
    if rank == 1 and not is_elementwise(op):
        return None
    batch = specs[0].shape[0] if specs[0].shape else 1
    first_only = op.name in ("conv", "linear") or (op.name == "matmul" and rank == 2)
    left = iter(range(len(specs)))

    def part(spec: Spec) -> Part:
        first = next(left) == 0
        batched = len(spec.shape) == rank and spec.shape[0] == batch and (first or not first_only)
        strides = None if spec == plain(spec.shape, spec.dtype) else spec.strides
        return Part(spec.shape[1:] if batched else spec.shape, spec.dtype, batched, strides)

    operands = (tuple(cast("list[Any]", o)) if isinstance(o, list) else o for o in example.map(part))
    return Case(op.name, tuple(operands), example.attributes, (batch,))


def columns_of(example: Example) -> Case | None:
    """The call as so many columns; None where it is not one contiguous matrix."""
    specs = example.specs
    if len(specs) != 1 or len(specs[0].shape) != 2 or specs[0] != plain(specs[0].shape, specs[0].dtype):
        return None
    length, count = specs[0].shape
    return Case(example.operator, (Part((length,), specs[0].dtype),), example.attributes, (count,), columns=True)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to try of settings that no case meets.

    Attributes
    ----------
    cases
        The first call of each setting whose own number of rows meets it.
    left
        Settings that no call meets.
    stale
        Settings that this version offers for none of the calls they were certified for, so that nothing takes them.
    """

    cases: list[Certified] = field(default_factory=list[Certified])
    left: list[str] = field(default_factory=list[str])
    stale: list[str] = field(default_factory=list[str])


def certified_cases(settings: Mapping[str, Sequence[Example]], device: Device) -> Found:
    """The calls to try for settings (`unmet`)."""
    found = Found()
    for text, calls in settings.items():
        cases = (case_of(example) for example in calls if _elements(example) <= MOST)
        case = next((case for case in cases if case is not None and _meets(case, text, device)), None)
        if case is not None:
            found.cases.append(Certified(case, frozenset((text,))))
        elif any(_offered(example, text, device) for example in calls):
            found.left.append(text)
        else:
            found.stale.append(text)
    return found


def _offered(example: Example, text: str, device: Device) -> bool:
    try:
        uses = keys_of(example, device)
    except NbxError:
        return False
    return any(
        settings_text(key.operator, key.variant, encode(setting)) == text
        for key, use in uses.items()
        for setting in use.candidates
    )


def _meets(case: Case, text: str, device: Device) -> bool:
    try:
        choices(case, 1, device)
        return any(c.certificate == text for c in choices(case, case.batches[0], device))
    except NbxError:
        return False
