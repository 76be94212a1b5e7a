"""Running a program: every call bound to its function once, then one short loop per run."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from nbxtensor.base.errors import ArgumentError, AxisError, DTypeError, IndexingError, ModelError, ShapeError
from nbxtensor.program.calls import Call, Operand, Program, Slot
from nbxtensor.tensor.names import function
from nbxtensor.tensor.tensor import Tensor

REFUSALS = (ArgumentError, AxisError, DTypeError, IndexingError, ShapeError)
"""What an operator raises when its operands do not fit: a fault of the model, told with the call's source."""

Step = tuple[Callable[[list[Any]], Any], int, tuple[int, ...], tuple[int, ...]]


def _materialise(operand: Operand, values: list[Any]) -> Any:
    if isinstance(operand, Slot):
        return values[operand.index]
    if isinstance(operand, tuple):
        return [_materialise(part, values) for part in operand]
    return operand


def _bind(call: Call) -> Callable[[list[Any]], Any]:
    """A function of the slot values that makes one call."""
    run = _bind_operator(call)
    view = call.view
    if view is None:
        return run
    (index,) = call.reads
    source, shape, strides, skip = view.source, view.shape, view.strides, view.skip

    def look(values: list[Any]) -> Any:
        x = values[index]
        if x.strides != source:
            return run(values)
        return Tensor(x.buffer, shape, strides, x.offset + skip, x.dtype, x.device)

    return look


def _bind_operator(call: Call) -> Callable[[list[Any]], Any]:
    """A function that calls the operator; plain operands take a path without lookups."""
    run = function(call.op)
    keywords: dict[str, Any] = dict(call.attributes)
    operands = call.operands
    plain = [operand.index for operand in operands if isinstance(operand, Slot)]
    if len(plain) == len(operands) and plain:
        take = itemgetter(*plain)
        if len(plain) == 1:
            return (lambda values: run(take(values), **keywords)) if keywords else (lambda values: run(take(values)))
        return (lambda values: run(*take(values), **keywords)) if keywords else (lambda values: run(*take(values)))

    def general(values: list[Any]) -> Any:
        return run(
            *[
                values[o.index] if isinstance(o, Slot) else _materialise(o, values) if call_packs[i] else o
                for i, o in enumerate(operands)
            ],
            **keywords,
        )

    call_packs = [isinstance(o, tuple) and any(isinstance(p, Slot) for p in o) for o in operands]
    return general


class Runner:
    """A program bound to its operators; any number of threads may run it at once.

    Parameters
    ----------
    program
        What to run.
    constants
        Slot -> tensor for slots that are filled before every run and never dropped.
    name
        Function named in errors.
    """

    def __init__(self, program: Program, constants: dict[int, Tensor], name: str = "program") -> None:
        self.program = program
        self._name = name
        self._initial: list[Tensor | None] = [None] * program.slots
        for slot, tensor in constants.items():
            self._initial[slot] = tensor
        self._steps: list[Step] = []
        for call, drops in zip(program.calls, program.drops(), strict=True):
            first = call.results[0] if len(call.results) == 1 else -1
            self._steps.append((_bind(call), first, call.results, tuple(d for d in drops if d not in constants)))

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run on one tensor per input slot; returns one tensor per output slot."""
        values: list[Any] = self._initial.copy()
        for slot, tensor in zip(self.program.inputs, inputs, strict=True):
            values[slot] = tensor
        step = 0
        try:
            for step, (call, single, results, drops) in enumerate(self._steps):  # noqa: B007 (named in the error)
                if single >= 0:
                    values[single] = call(values)
                else:
                    for slot, value in zip(results, call(values), strict=True):
                        values[slot] = value
                for slot in drops:
                    values[slot] = None
        except REFUSALS as error:
            source = self.program.calls[step].source
            raise ModelError(self._name, f"{source}: {error}") from error
        return [values[slot] for slot in self.program.outputs]
