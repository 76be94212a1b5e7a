"""The launch keys of models and of calls, found without running anything."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbxtensor.base.errors import NbxError
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, bound
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.onnx.graph import Array
from nbxtensor.onnx.model import Model
from nbxtensor.program.calls import Operand, Program, Slot
from nbxtensor.tensor.names import function
from nbxtensor.tensor.tensor import Tensor, empty
from nbxtensor.tuning.choose import Use, observed
from nbxtensor.tuning.key import LaunchKey


def keys_of(example: Example, device: Device) -> dict[LaunchKey, Use]:
    """The launch keys of a call, without running it; `device` only says where it would run."""
    with observed() as seen:
        example.run(NullDevice(device.target, device.profile))  # a fresh one: forms are new, and so are plans
    return seen


@dataclass(slots=True)
class Entry:
    """A launch key, the settings that it may take (the default first), and calls that ask for one."""

    key: LaunchKey
    candidates: tuple[Any, ...]
    examples: list[Example] = field(default_factory=list[Example])


class Census:
    """Collects the keys of calls on a device of one kind; the device itself is only looked at.

    Attributes
    ----------
    entries
        What was found, in the order of the calls.
    left_out
        Calls that cannot be made, and why.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.entries: dict[LaunchKey, Entry] = {}
        self.left_out: dict[str, str] = {}
        self._seen: dict[Example, bool] = {}

    @property
    def examples(self) -> list[Example]:
        """The calls that launch something with settings, in order."""
        return [example for example, launches in self._seen.items() if launches]

    def add(self, example: Example) -> None:
        """Enter the keys of a call.

        Raises
        ------
        NbxError
            The call cannot be made.
        """
        if example in self._seen:
            return
        self._seen[example] = False
        seen = keys_of(example, self.device)
        self._seen[example] = bool(seen)
        self._enter(example, seen)

    def add_all(self, examples: Iterable[Example]) -> None:
        """Enter the keys of calls; those that cannot be made are noted."""
        for example in examples:
            try:
                self.add(example)
            except NbxError as error:
                self.left_out[str(example)] = error.problem
        forget_plans()

    def _enter(self, example: Example, seen: Mapping[LaunchKey, Use]) -> None:
        for key, use in seen.items():
            entry = self.entries.setdefault(key, Entry(key, use.candidates))
            if use.candidates == entry.candidates and kind(example) not in map(kind, entry.examples):
                entry.examples.append(example)

    def add_model(
        self, model: Model, shapes: Mapping[str, tuple[int, ...]], contents: Mapping[str, Array] | None = None
    ) -> None:
        """Enter the keys of every call of a model's programs for inputs of these shapes."""
        null = NullDevice(self.device.target, self.device.profile)
        traced = model.specialize(shapes, null, contents).traced
        tensors: dict[int, Any] = {}
        for slot, value in traced.arrays.items():
            tensors[slot] = empty(value.shape, value.dtype, null)
        for port, slot in zip(model.inputs, traced.program.inputs, strict=True):
            tensors[slot] = empty(shapes[port.name], port.dtype, null)
        examples: list[Example] = []
        for program in (traced.folds, traced.program):
            examples += _calls(program, tensors)
        self.add_all(examples)


def kind(example: Example) -> tuple[object, ...]:
    """What one example of a key stands for: an operator with operands of these dtypes."""
    return example.operator, tuple(s.dtype for s in example.specs)


def _calls(program: Program, tensors: dict[int, Any]) -> Iterator[Example]:
    """The calls of a program as examples; their results enter `tensors`."""
    for call in program.calls:
        operands = [_looked_up(o, tensors) for o in call.operands]
        result: Any = function(call.op)(*operands, **dict(call.attributes))
        results: Any = [result] if isinstance(result, Tensor) else result
        for slot, tensor in zip(call.results, results, strict=True):
            tensors[slot] = tensor
        yield bound(call.op, operands, dict(call.attributes))


def _looked_up(operand: Operand, tensors: dict[int, Any]) -> Any:
    if isinstance(operand, Slot):
        return tensors[operand.index]
    if isinstance(operand, tuple) and any(isinstance(part, Slot) for part in operand):
        return [_looked_up(part, tensors) for part in operand]
    return operand
