"""The memory that proving and timing calls takes, known before any of it is filled."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from nbxtensor.base.errors import OutOfMemoryError
from nbxtensor.certify.memory import FENCE
from nbxtensor.device.cpu_memory import memory_info
from nbxtensor.device.null import NullBuffer, NullDevice
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, place
from nbxtensor.tensor.tensor import Tensor
from nbxtensor.tuning.choose import observed

Size = Literal["light", "heavy", "large", "huge"]
_WIDE = 8  # bytes of an element of a reference
_WIDE_RESULTS = 3  # arrays of the size of a result that are held while it is compared: wanted, found, allowed
MEND = "certify fewer rows or a smaller size, or run this where there is more memory"


class _Counting(NullDevice):
    """Adds up what is allocated: fenced blocks are kept until a call is judged."""

    taken = 0

    def allocate(self, nbytes: int) -> NullBuffer:
        self.taken += 2 * FENCE + nbytes
        return super().allocate(nbytes)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a call takes.

    Attributes
    ----------
    elements
        Of the largest operand or result.
    device
        Bytes of everything that is allocated: operands, results, workspaces and their fences.
    operands, results
        Bytes of their values: of the operands' memory, and of the results as contiguous arrays.
    wide
        Bytes of a float64 reference: of floating-point operands, and of all that is held to compare the results.
    """

    elements: int
    device: int
    operands: int
    results: int
    wide: int


def footprint(example: Example, device: Device) -> Footprint:
    """What a call takes on a device, found without allocating anything.

    Raises
    ------
    NbxError
        The call cannot be made.
    """
    null = _Counting(device.target, device.profile)
    operands = example.map(lambda spec: place(spec, null))
    with observed():
        found: Any = example.call(operands, null)
    results = cast("tuple[Tensor, ...]", found if isinstance(found, tuple) else (found,))
    specs = example.specs
    spans = [high - low for low, high in (spec.span for spec in specs)]
    wide = sum(spec.size for spec in specs if spec.dtype.is_float) + _WIDE_RESULTS * sum(r.size for r in results)
    return Footprint(
        elements=max((tensor.size for tensor in (*specs, *results)), default=0),
        device=null.taken,
        operands=sum(span * spec.dtype.itemsize for span, spec in zip(spans, specs, strict=True)),
        results=sum(r.size * r.dtype.itemsize for r in results),
        wide=_WIDE * wide,
    )


def require(calls: Iterable[tuple[Example, Size]], device: Device) -> None:
    """Refuse calls that memory cannot hold. What is counted is the least that they take.

    Parameters
    ----------
    calls
        Calls whose values and results are kept side by side, each as often as it is made; one that is ``huge`` is
        compared with no reference.

    Raises
    ------
    OutOfMemoryError
        The device, or the host, has too little free memory.
    """
    known: dict[Example, Footprint] = {}
    kept, passing, largest = 0, 0, None
    for example, size in calls:
        need = known.get(example)
        if need is None:
            need = known[example] = footprint(example, device)
        kept += need.operands + need.results
        once = 0 if size == "huge" else need.operands + need.wide
        if device.host_accessible:  # results stay where they are
            once += need.device - need.results
        else:
            _compare(example, need.device, device.memory_info(), device.name)
        if largest is None or once > passing:
            passing, largest = once, example
    if largest is not None:
        _compare(largest, kept + passing, memory_info(), "the host")


def _compare(example: Example, needed: int, memory: tuple[int, int], where: str) -> None:
    free, total = memory
    if needed > free:
        problem = f"{where} has too little memory for {example}: {needed:,} bytes needed, {free:,} of {total:,} free"
        raise OutOfMemoryError("certify", problem, mend=MEND)
