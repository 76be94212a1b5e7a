"""Poisoned, fenced memory: what a kernel leaves out, or writes or reads beyond its operands, shows."""

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from nbxtensor.base.shapes import may_overlap_itself
from nbxtensor.device.cuda_driver import call, open_driver
from nbxtensor.device.protocol import Buffer, Device
from nbxtensor.kernel.call_text import Spec
from nbxtensor.tensor.host import raw

Array: TypeAlias = np.ndarray[Any, Any]
FENCE = 1 << 16
"""Bytes before and after each block."""
PATTERNS = (0xFF, 0xAA)
"""Bytes that poison: NaN or -1 in every dtype, and a small number; a result that happens to be one is not the other."""


def set_bytes(device: Device, ptr: int, nbytes: int, value: int) -> None:
    """Fill memory of a device with one byte, in the order of its stream."""
    if device.host_accessible:
        ctypes.memset(ptr, value, nbytes)
        return
    driver = open_driver()
    stream = driver.CUstream(getattr(device, "current_stream", 1))
    call(driver, "certify", "poisoning memory", driver.cuMemsetD8Async(ptr, value, nbytes, stream))


def view_of(memory: Array, spec: Spec, shift: int) -> Array:
    """The operand that lies `shift` elements from the start of its memory."""
    low, _ = spec.span
    steps = tuple(s * spec.dtype.itemsize for s in spec.strides)
    return np.lib.stride_tricks.as_strided(memory[shift - low :], spec.shape, steps)


def host_memory(spec: Spec, array: Array, shift: int, pattern: int) -> Array:
    """The memory of an operand, `shift` elements and all gaps holding the pattern."""
    low, high = spec.span
    memory = np.full((high - low + shift) * spec.dtype.itemsize, pattern, np.uint8).view(spec.dtype.numpy)
    view_of(memory, spec, shift)[...] = array
    return memory


def settled(spec: Spec, array: Array) -> Array:
    """The values that an operand has once `array` is written to its memory: elements that share it have one value.

    Written again, they stay what they are.
    """
    if not may_overlap_itself(spec.shape, spec.strides):
        return array
    return view_of(host_memory(spec, array, 0, 0), spec, 0).copy()


class Fenced:
    """A block inside a larger one that is poisoned all over."""

    __slots__ = ("base", "nbytes", "ptr")
    readonly = False

    def __init__(self, base: Buffer, nbytes: int) -> None:
        self.base = base
        self.nbytes = nbytes
        self.ptr = base.ptr + FENCE


class Fences:
    """The blocks that were allocated since `begin`.

    Attributes
    ----------
    pattern
        The byte that memory is filled with.
    """

    def __init__(self, device: Device, allocate: Callable[[int], Buffer]) -> None:
        self._device = device
        self._allocate = allocate
        self._blocks: list[Fenced] = []
        self.pattern = PATTERNS[0]

    def begin(self, pattern: int) -> None:
        """Forget the blocks, and poison later ones with `pattern`."""
        self._blocks.clear()
        self.pattern = pattern

    def allocate(self, nbytes: int) -> Fenced:
        """A fenced block, poisoned."""
        base = self._allocate(2 * FENCE + nbytes)
        set_bytes(self._device, base.ptr, 2 * FENCE + nbytes, self.pattern)
        block = Fenced(base, nbytes)
        self._blocks.append(block)
        return block

    def broken(self) -> str:
        """What was written outside of the blocks; "" if nothing was."""
        self._device.synchronize()
        found = np.empty(FENCE, np.uint8)
        for block in self._blocks:
            for where, start in (("before", block.base.ptr), ("beyond", block.ptr + block.nbytes)):
                self._device.copy_to_host(raw(found), start)
                wrong = int(np.count_nonzero(found != self.pattern))
                if wrong:
                    return f"{wrong} bytes {where} a block of {block.nbytes} were written"
        return ""


@contextmanager
def poisoned(device: Any) -> Generator[Fences]:
    """Let everything that is allocated on `device` in the block be poisoned and fenced.

    Plans keep the allocator that they were made with: forget them before and after.
    """
    before = device.allocate
    fences = Fences(device, before)
    device.allocate = fences.allocate
    try:
        yield fences
    finally:
        device.allocate = before
