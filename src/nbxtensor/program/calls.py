"""A program: ordered calls of operators on numbered slots, with the lifetime of every slot."""

from collections.abc import Iterator
from dataclasses import dataclass

from nbxtensor.base.dtypes import DType


@dataclass(frozen=True, slots=True)
class Slot:
    """The value in slot `index`."""

    index: int


Literal = bool | int | float | str | DType | None | tuple["Literal", ...]
Operand = Slot | bool | int | float | str | DType | None | tuple["Operand", ...]


def slots_in(operand: Operand) -> Iterator[int]:
    """Indices of the slots that `operand` mentions, packs included."""
    if isinstance(operand, Slot):
        yield operand.index
    elif isinstance(operand, tuple):
        for part in operand:
            yield from slots_in(part)


def _text(operand: Operand) -> str:
    if isinstance(operand, Slot):
        return f"%{operand.index}"
    if isinstance(operand, tuple):
        return f"({', '.join(map(_text, operand))}{',' * (len(operand) == 1)})"
    if isinstance(operand, DType):
        return operand.name
    return repr(operand)


@dataclass(frozen=True, slots=True)
class View:
    """What a call does that only looks at its first operand in another way.

    Attributes
    ----------
    source
        Strides of the operand for which this holds.
    shape, strides
        Those of the result.
    skip
        Elements from the operand's first element to the result's.
    """

    source: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    skip: int


@dataclass(frozen=True, slots=True)
class Call:
    """One operator applied to slots and literals.

    Attributes
    ----------
    op
        Name in the operator table, or of a view (`nbxtensor.tensor.names`).
    operands
        Positional arguments; a tuple that holds slots is handed over as a list of tensors.
    attributes
        Keyword arguments; they hold no slots.
    results
        Slots that the call fills, in order.
    source
        What the call comes from, for error messages (``"Conv node 'conv1'"``).
    view
        What the call comes to where its result shares the memory of its first operand.
    """

    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Literal], ...]
    results: tuple[int, ...]
    source: str = ""
    view: View | None = None

    @property
    def reads(self) -> frozenset[int]:
        """Slots that the call reads."""
        return frozenset(slots_in(self.operands))

    def __str__(self) -> str:
        arguments = [*map(_text, self.operands), *(f"{name}={_text(value)}" for name, value in self.attributes)]
        return f"{', '.join(f'%{r}' for r in self.results)} = {self.op}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True)
class Program:
    """Calls in order, from inputs to outputs.

    Attributes
    ----------
    inputs
        Slots to fill before a run.
    calls
        In an order in which every slot is filled before it is read.
    outputs
        Slots that hold the results after a run.
    slots
        Number of slots.
    """

    inputs: tuple[int, ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    slots: int

    def __str__(self) -> str:
        drops = self.drops()
        lines = [f"inputs {', '.join(f'%{i}' for i in self.inputs)}"]
        for call, dropped in zip(self.calls, drops, strict=True):
            notes = [f"drop {', '.join(f'%{d}' for d in dropped)}"] if dropped else []
            if call.source:
                notes.append(call.source)
            lines.append(f"{call}{'  # ' + '; '.join(notes) if notes else ''}")
        lines.append(f"outputs {', '.join(f'%{i}' for i in self.outputs)}")
        return "\n".join(lines)

    def drops(self) -> tuple[tuple[int, ...], ...]:
        """For each call, the slots whose value is not needed after it."""
        needed = set(self.outputs)
        drops: list[tuple[int, ...]] = []
        for call in reversed(self.calls):
            touched = {*call.reads, *call.results}
            drops.append(tuple(sorted(touched - needed)))
            needed |= touched
        return tuple(reversed(drops))

    def only(self, outputs: tuple[int, ...]) -> "Program":
        """The part of the program that makes these outputs; of the inputs, those that it reads."""
        part = Program((), self.calls, outputs, self.slots).pruned()
        reads = {s for call in part.calls for s in call.reads}
        return Program(tuple(i for i in self.inputs if i in reads), part.calls, outputs, self.slots)

    def pruned(self) -> "Program":
        """The same program without calls whose results nothing needs; the inputs stay."""
        needed = set(self.outputs)
        kept: list[Call] = []
        for call in reversed(self.calls):
            if needed.intersection(call.results):
                kept.append(call)
                needed |= call.reads
        return Program(self.inputs, tuple(reversed(kept)), self.outputs, self.slots)
