"""Running an example with values, in poisoned memory."""

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from nbxtensor.certify.contents import content, declared_specials
from nbxtensor.certify.memory import Fences, host_memory, settled
from nbxtensor.certify.variants import Case
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, Spec
from nbxtensor.tensor.create import to_numpy
from nbxtensor.tensor.host import raw
from nbxtensor.tensor.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
PERIOD = 1_000_003
"""Elements after which the content of large operands repeats; a prime, so that no two rows are alike."""


def values_for(case: Case, fill: str, seed: int = 0) -> list[Array]:
    """The values of every tensor of a call; of a huge one the memory of each, flat."""
    example = case.example
    if case.size == "huge":
        return content(example, fill, seed, PERIOD)
    arrays = content(example, fill, seed)
    specials = declared_specials(example) if fill == "special" else None
    if specials is not None and arrays[0].size:
        arrays[0] = arrays[0].copy()
        flat = arrays[0].reshape(-1)
        flat[: specials.size] = specials[: flat.size]
    return [settled(s, a) for a, s in zip(arrays, example.specs, strict=True)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a call, and what it did to memory that is not its own ("": nothing)."""

    results: list[Array]
    damage: str


def numpy_operands(example: Example, arrays: list[Array]) -> list[Any]:
    """The operands as NumPy arrays and Python values."""
    left = iter(arrays)
    return example.map(lambda spec: next(left))


def run(case: Case, arrays: list[Array], device: Device, fences: Fences, pattern: int, shift: int) -> Outcome:
    """Call the operator on operands that lie in poisoned memory, `shift` elements from its start."""
    fences.begin(pattern)
    left = iter(arrays)
    held: list[tuple[Tensor, Array]] = []

    def placed(spec: Spec) -> Tensor:
        low, _ = spec.span
        array = next(left)
        memory = array if case.size == "huge" else host_memory(spec, array, shift, pattern)
        buffer = device.allocate(memory.nbytes)
        device.copy_from_host(buffer.ptr, raw(memory.reshape(-1)))
        tensor = Tensor(buffer, spec.shape, spec.strides, shift - low, spec.dtype, device)
        held.append((tensor, memory))
        return tensor

    operands = case.example.map(placed)
    more = {"out": held[0][0]} if case.in_place else {}
    found: Any = case.example.call(operands, device, **more)
    tensors = cast("tuple[Tensor, ...]", found if isinstance(found, tuple) else (found,))
    results = [to_numpy(r) for r in tensors]
    damage = fences.broken()
    if not damage and case.size != "huge" and not case.in_place and case.example.operator != "copy_into":
        damage = _changed(held, device)
    return Outcome(results, damage)


def _changed(held: list[tuple[Tensor, Array]], device: Device) -> str:
    """Whether an operand was written."""
    for position, (tensor, memory) in enumerate(held):
        found = np.empty(memory.nbytes, np.uint8)
        device.copy_to_host(raw(found), tensor.buffer.ptr)
        if not np.array_equal(found, memory.view(np.uint8).reshape(-1)):
            return f"operand {position} was written"
    return ""


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same bits; any NaN equals any NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    unsigned = f"u{a.dtype.itemsize}"
    equal = np.asarray(a.view(unsigned) == b.view(unsigned))
    if equal.all():
        return True
    if a.dtype.kind in "biu":
        return False
    return bool((equal | (np.isnan(a) & np.isnan(b))).all())
