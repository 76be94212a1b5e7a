"""Making a program: operators called on values that have a shape and a dtype, and perhaps a known content.

Every call runs once on a device that computes nothing, which tells the shape, the layout and the kernels of its
result. Small known values are computed on the host instead. Calls on constants alone are kept apart, to be run once.
Equal calls are made once: operators are pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from nbxtensor.base.dtypes import DType
from nbxtensor.base.dtypes import dtype as as_dtype
from nbxtensor.device.protocol import Device
from nbxtensor.program.calls import Call, Literal, Operand, Program, Slot, View
from nbxtensor.program.host import Array, evaluate
from nbxtensor.tensor.names import VIEWS, function
from nbxtensor.tensor.tensor import Tensor, empty

SCALAR_OPERANDS = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow", "minimum", "maximum"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where"),
    )
)
"""Operators that take a Python scalar in place of a known value of one element."""


class Interner:
    """Numbers for structural keys: equal values get one number.

    Values that depend on named constants alone keep theirs in every trace that shares `named`.
    """

    def __init__(self, named: dict[object, int] | None = None) -> None:
        self._named = {} if named is None else named
        self._own: dict[object, int] = {}

    def number(self, key: object, shared: bool = False) -> int:
        if shared:
            return self._named.setdefault(key, len(self._named))
        return self._own.setdefault(key, ~len(self._own))


@dataclass(eq=False, slots=True)
class Value:
    """One value of a trace.

    Attributes
    ----------
    array
        Its content, where it is known on the host.
    number
        The same for equal values of one trace; that of a `shared` value is the same in all traces of a model.
    constant
        Whether it depends on no input.
    shared
        Whether it depends on named constants alone, whatever the shapes of the inputs.
    roots
        Names of the inputs that its content depends on.
    slot
        Where a program keeps it; -1 until a call needs it there.
    """

    shape: tuple[int, ...]
    dtype: DType
    number: int
    array: Array | None = None
    constant: bool = False
    shared: bool = False
    roots: frozenset[str] = frozenset()
    slot: int = -1
    tensor: Tensor | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


CallOperand = Value | Sequence[Value] | Literal


@dataclass(frozen=True, slots=True)
class Traced:
    """What a trace gives.

    Attributes
    ----------
    program
        The calls of every run. Slots in `arrays` and `folded` are filled beforehand.
    folds
        The calls on constants alone, to be run once: from `arrays` to the slots in `folded`.
    arrays
        Constant slot -> its value.
    folded
        Slot -> the value that `folds` computes.
    launches
        What a recording device noted for the calls of both programs.
    """

    program: Program
    folds: Program
    arrays: dict[int, Value]
    folded: dict[int, Value]
    launches: tuple[object, ...]


class Tracer:
    """Builds one program; see the module.

    Parameters
    ----------
    device
        A device that computes nothing and imitates the target.
    recorded
        The list in which `device` notes launches.
    named
        Numbers of shared constants, the same object for all traces of a model.
    """

    def __init__(self, device: Device, recorded: list[Any], named: dict[object, int] | None = None) -> None:
        self.device = device
        self.source = ""
        self._interner = Interner(named)
        self._recorded = recorded
        self._slots = 0
        self._inputs: list[int] = []
        self._calls: list[Call] = []
        self._launches: list[tuple[int, int]] = []
        self._seen: dict[int, list[Value]] = {}
        self._arrays: dict[int, Value] = {}
        self._placed: dict[int, Value] = {}
        self._by_slot: dict[int, Value] = {}

    def input(self, name: str, shape: tuple[int, ...], dtype: DType) -> Value:
        """An input; its slot is filled before each run."""
        value = Value(shape, dtype, self._interner.number(("input", name)), roots=frozenset((name,)))
        value.tensor = empty(shape, dtype, self.device)
        self._place(value)
        self._inputs.append(value.slot)
        return value

    def constant(self, array: Array, name: str | None = None) -> Value:
        """A known value; `name` identifies it among the traces of a model."""
        shared = name is not None
        key = (
            ("constant", name) if shared else ("array", array.dtype.str, array.shape, sha256(array.tobytes()).digest())
        )
        dtype = as_dtype(array.dtype)
        number = self._interner.number(key, shared)
        return Value(array.shape, dtype, number, array=array, constant=True, shared=shared)

    def call(self, op: str, *operands: CallOperand, **attributes: Literal) -> Value:
        """The result of `op`, which has one."""
        return self.calls(op, operands, attributes)[0]

    def calls(self, op: str, operands: Sequence[CallOperand], attributes: dict[str, Literal]) -> list[Value]:
        """All results of `op`."""
        values = [v for o in operands for v in _values_of(o)]
        if values and all(v.array is not None for v in values):
            known = evaluate(op, [_array_of(o) for o in operands], attributes)
            if known is not None:
                return [self.constant(known)]
        if op in SCALAR_OPERANDS:
            operands = _with_scalars(op, operands)
            values = [v for o in operands for v in _values_of(o)]
        constant = all(v.constant for v in values)
        shared = constant and all(v.shared for v in values)
        named = tuple((n, _key_of(a)) for n, a in sorted(attributes.items()))
        number = self._interner.number((op, tuple(_key_of(o) for o in operands), named), shared)
        seen = self._seen.get(number)
        if seen is not None:
            return seen
        results = self._seen[number] = self._emit(op, operands, attributes, number, constant, shared)
        return results

    def _emit(
        self,
        op: str,
        operands: Sequence[CallOperand],
        attributes: dict[str, Literal],
        number: int,
        constant: bool,
        shared: bool,
    ) -> list[Value]:
        placed = tuple(self._operand(o) for o in operands)
        before = len(self._recorded)
        result: Any = function(op)(*[_tensor_of(o) for o in operands], **attributes)
        tensors: list[Tensor] = [result] if isinstance(result, Tensor) else list(result)
        roots = frozenset[str]().union(*(v.roots for o in operands for v in _values_of(o)))
        results: list[Value] = []
        for i, tensor in enumerate(tensors):
            part = self._interner.number((number, i), shared)
            value = Value(tensor.shape, tensor.dtype, part, None, constant, shared, roots, tensor=tensor)
            self._place(value)
            results.append(value)
        view = _view(operands, tensors) if op in VIEWS else None
        named = tuple(sorted(attributes.items()))
        self._calls.append(Call(op, placed, named, tuple(v.slot for v in results), self.source, view))
        self._launches.append((before, len(self._recorded)))
        return results

    def finish(self, outputs: Sequence[Value]) -> Traced:
        """The programs that compute `outputs`; no output shares memory with an input or a constant."""
        placed: list[int] = []
        foreign = {id(_buffer(self._by_slot[i])) for i in self._inputs}
        for value in outputs:
            self._materialise(value)
            if value.constant or id(_buffer(value)) in foreign:
                value = self._emit("copy", [value], {}, self._interner.number(("output", len(placed))), False, False)[0]
            placed.append(value.slot)
        live = Program(
            tuple(self._inputs),
            tuple(c for c in self._calls if not self._by_slot[c.results[0]].constant),
            tuple(placed),
            self._slots,
        ).pruned()
        wanted = {s for c in live.calls for s in c.reads if self._by_slot[s].constant}
        folded = {s: self._by_slot[s] for s in sorted(wanted) if s not in self._arrays}
        folds = Program(
            tuple(self._arrays),
            tuple(c for c in self._calls if self._by_slot[c.results[0]].constant),
            tuple(folded),
            self._slots,
        ).pruned()
        kept = {id(c) for c in (*live.calls, *folds.calls)}
        launches = [
            self._recorded[i]
            for call, (start, stop) in zip(self._calls, self._launches, strict=True)
            if id(call) in kept
            for i in range(start, stop)
        ]
        used = wanted | {s for c in folds.calls for s in c.reads}
        arrays = {s: v for s, v in self._arrays.items() if s in used}
        folds = Program(tuple(arrays), folds.calls, folds.outputs, folds.slots)
        return Traced(live, folds, arrays, folded, tuple(launches))

    def _place(self, value: Value) -> None:
        value.slot = self._slots
        self._by_slot[value.slot] = value
        self._slots += 1

    def _materialise(self, value: Value) -> None:
        """Give a known value a slot: a program reads it as a tensor."""
        if value.slot >= 0:
            return
        twin = self._placed.setdefault(value.number, value)
        if twin is value:
            value.tensor = empty(value.shape, value.dtype, self.device)
            self._place(value)
            self._arrays[value.slot] = value
        else:
            value.tensor, value.slot = twin.tensor, twin.slot

    def _operand(self, operand: CallOperand) -> Operand:
        if isinstance(operand, Value):
            self._materialise(operand)
            return Slot(operand.slot)
        if isinstance(operand, list):
            return tuple(self._operand(o) for o in operand)
        return cast(Operand, operand)


def _view(operands: Sequence[CallOperand], results: list[Tensor]) -> View | None:
    """What a call of a view comes to; None where it copies."""
    source = _tensor_of(operands[0])
    (result,) = results
    if result.buffer is not source.buffer:
        return None
    return View(source.strides, result.shape, result.strides, result.offset - source.offset)


def _buffer(value: Value) -> object:
    return None if value.tensor is None else value.tensor.buffer


def _values_of(operand: CallOperand) -> list[Value]:
    if isinstance(operand, Value):
        return [operand]
    return list(operand) if isinstance(operand, list) else []


def _array_of(operand: CallOperand) -> Any:
    if isinstance(operand, Value):
        return operand.array
    return [_array_of(o) for o in operand] if isinstance(operand, list) else operand


def _tensor_of(operand: CallOperand) -> Any:
    if isinstance(operand, Value):
        return operand.tensor
    return [_tensor_of(o) for o in operand] if isinstance(operand, list) else operand


def _key_of(operand: CallOperand) -> object:
    if isinstance(operand, Value):
        return ("value", operand.number)
    if isinstance(operand, list):
        return ("values", *(v.number for v in operand))
    if isinstance(operand, float):
        return ("float", operand.hex())
    return (type(operand).__name__, operand)


def _with_scalars(op: str, operands: Sequence[CallOperand]) -> list[CallOperand]:
    """Known values of one element as Python scalars, where a tensor of the same dtype and no lower rank remains."""
    result = list(operands)
    for i, operand in enumerate(operands):
        if i == 0 and op == "where":
            continue
        if not isinstance(operand, Value) or operand.array is None or operand.size != 1:
            continue
        others = [o for j, o in enumerate(result) if j != i and isinstance(o, Value)]
        if any(o.dtype is operand.dtype and o.ndim >= operand.ndim for o in others):
            result[i] = operand.array.item()
    return result
