"""What a cubin needs, read from the binary itself (no GPU, no tool)."""

import struct
from collections.abc import Iterator

from nbxtensor.base.errors import CompileError

_REGISTERS = 0x2F
_FRAME = 0x11
_MIN_STACK = 0x12
_PARAMETER = 0x17
_SIZED = 0x04  # format of an attribute whose value field is the length of the data that follows


def elf_sections(elf: bytes) -> dict[str, bytes]:
    """Sections of a 64-bit little-endian ELF file by name."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table, entry_size, count, names_index = struct.unpack_from("<Q10xHHH", elf, 40)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names_at, names_size = headers[names_index][4:6]
    names = elf[names_at : names_at + names_size]
    found: dict[str, bytes] = {}
    for name_at, kind, _flags, _address, offset, size in headers:
        name = names[name_at : names.index(b"\0", name_at)].decode()
        found[name] = b"" if kind == 8 else elf[offset : offset + size]
    return found


def _symbols(sections: dict[str, bytes]) -> dict[int, str]:
    names = sections[".strtab"]
    found: dict[int, str] = {}
    for index, (name_at, *_rest) in enumerate(struct.iter_unpack("<IBBHQQ", sections[".symtab"])):
        found[index] = names[name_at : names.index(b"\0", name_at)].decode()
    return found


def _attributes(notes: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(notes):
        layout, attribute, value = struct.unpack_from("<BBH", notes, at)
        at += 4
        if layout == _SIZED:
            yield attribute, notes[at : at + value]
            at += value


def cubin_usage(cubin: bytes, symbol: str) -> tuple[int, int]:
    """Registers per thread and bytes of stack per thread of the entry point `symbol`.

    Raises `CompileError` if the file is not a cubin or says nothing about `symbol`.
    """
    registers: int | None = None
    stack = 0
    try:
        sections = elf_sections(cubin)
        symbols = _symbols(sections)
        for attribute, data in _attributes(sections[".nv.info"]):
            if attribute not in (_REGISTERS, _FRAME, _MIN_STACK):
                continue
            index, value = struct.unpack("<II", data)
            if symbols.get(index) != symbol:
                continue
            if attribute == _REGISTERS:
                registers = value
            else:
                stack = max(stack, value)
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise CompileError("cubin_usage", f"the binary of {symbol} is not a readable cubin ({error})") from error
    if registers is None:
        raise CompileError("cubin_usage", f"the binary has no register count for {symbol}")
    return registers, stack


def cubin_parameters(cubin: bytes, symbol: str) -> list[tuple[int, int]]:
    """(offset, bytes) of each parameter of the entry point `symbol`, Triton's own ones at the end included."""
    found: list[tuple[int, int, int]] = []
    for attribute, data in _attributes(elf_sections(cubin).get(f".nv.info.{symbol}", b"")):
        if attribute == _PARAMETER:
            _, ordinal, offset, facts = struct.unpack("<IHHI", data)
            found.append((ordinal, offset, facts >> 18))
    return [(offset, size) for _, offset, size in sorted(found)]
