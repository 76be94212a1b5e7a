"""What an hsaco needs, read from the note in the binary itself (no GPU, no tool).

The note is MessagePack: a map whose entry ``amdhsa.kernels`` lists a map of facts per kernel.
"""

import struct
from dataclasses import dataclass
from typing import cast

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.resources import elf_sections

_METADATA = 32  # type of the note
_FIXED = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_SIZED = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
_CONSTANT: dict[int, object] = {0xC0: None, 0xC2: False, 0xC3: True}


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What one kernel of an hsaco needs.

    Attributes
    ----------
    vector_registers
        32-bit registers per thread, accumulation registers among them.
    scalar_registers
        Registers that a wave shares.
    spilled
        Registers of either kind that did not fit.
    scratch_bytes
        Private memory per thread.
    shared_bytes
        Shared memory that the binary reserves; Triton reserves none, its launches say how much.
    argument_bytes
        Size of the block of arguments.
    wave
        Threads that run in step.
    """

    vector_registers: int
    scalar_registers: int
    spilled: int
    scratch_bytes: int
    shared_bytes: int
    argument_bytes: int
    wave: int


class _Reader:
    """The part of MessagePack that occurs in notes: maps, arrays, texts, integers, booleans, nil."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _number(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def _text(self, size: int) -> str:
        raw = self._data[self._at : self._at + size]
        if len(raw) < size:
            raise ValueError("the note ends early")
        self._at += size
        return raw.decode()

    def _map(self, size: int) -> dict[object, object]:
        return {self.value(): self.value() for _ in range(size)}

    def value(self) -> object:
        """The next value."""
        tag = self._number(">B")
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 0x100
        if tag < 0x90:
            return self._map(tag & 0xF)
        if tag < 0xA0:
            return [self.value() for _ in range(tag & 0xF)]
        if tag < 0xC0:
            return self._text(tag & 0x1F)
        if tag in _CONSTANT:
            return _CONSTANT[tag]
        if tag in _FIXED:
            return self._number(_FIXED[tag])
        if tag not in _SIZED:
            raise ValueError(f"unexpected tag {tag:#x}")
        size = self._number(_SIZED[tag])
        if tag <= 0xDB:
            return self._text(size)
        return [self.value() for _ in range(size)] if tag <= 0xDD else self._map(size)


def _metadata(notes: bytes) -> bytes:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + -(-name_size // 4) * 4
        if kind == _METADATA and notes[at + 12 : at + 12 + name_size] == b"AMDGPU\0":
            return notes[start : start + size]
        at = start + -(-size // 4) * 4
    raise ValueError("there is no note about kernels")


def kernel_facts(hsaco: bytes, symbol: str) -> KernelFacts:
    """What the kernel `symbol` needs.

    Raises `CompileError` if the file is not an hsaco or says nothing about `symbol`.
    """
    try:
        note = cast("dict[str, list[dict[str, int | str]]]", _Reader(_metadata(elf_sections(hsaco)[".note"])).value())
        for facts in note["amdhsa.kernels"]:
            if facts[".name"] == symbol:
                return KernelFacts(
                    vector_registers=int(facts[".vgpr_count"]),
                    scalar_registers=int(facts[".sgpr_count"]),
                    spilled=int(facts[".vgpr_spill_count"]) + int(facts[".sgpr_spill_count"]),
                    scratch_bytes=int(facts[".private_segment_fixed_size"]),
                    shared_bytes=int(facts[".group_segment_fixed_size"]),
                    argument_bytes=int(facts[".kernarg_segment_size"]),
                    wave=int(facts[".wavefront_size"]),
                )
    except (struct.error, KeyError, IndexError, ValueError, TypeError, RecursionError) as error:
        raise CompileError("kernel_facts", f"the binary of {symbol} is not a readable hsaco ({error})") from error
    raise CompileError("kernel_facts", f"the binary has no facts about {symbol}")
