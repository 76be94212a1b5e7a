"""Reads relocatable ELF objects for x86-64 and links one of them to an address.

Only what compilers emit for freestanding code is understood: code and constants, a handful of relocation kinds,
calls to named outside functions. Everything else is refused by name, as is an object whose tables point outside it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from nbxtensor.base.errors import DeviceError
from nbxtensor.base.text import counted

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 1, 2, 4, 8
_SHF_WRITE, _SHF_ALLOC = 1, 2
_SHN_UNDEF, _SHN_ABS, _SHN_COMMON = 0, 0xFFF1, 0xFFF2
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_GOT = frozenset((_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX))
_PC32 = frozenset((_R_PC32, _R_PLT32))
_STUB = 16
_PAGE = 4096
_UNWIND = (".eh_frame", ".debug", ".note", ".comment", ".llvm_addrsig")


@dataclass(frozen=True, slots=True)
class Section:
    """A section header; `offset` and `size` lie inside the object."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int

    @property
    def loaded(self) -> bool:
        return bool(self.flags & _SHF_ALLOC) and self.size > 0 and not self.name.startswith(_UNWIND)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: `value` is an offset into section number `section` (0: defined elsewhere)."""

    name: str
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in section number `section` that depends on addresses."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


def _bad(problem: str, got: object = None) -> DeviceError:
    return DeviceError("load", problem, got=got, mend="the artifact is damaged: remove it from the cache and recompile")


class ElfObject:
    """A relocatable x86-64 object.

    Parameters
    ----------
    data
        The whole file.

    Raises
    ------
    DeviceError
        If it is not such an object, is cut short, or needs something that is not supported here.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            self._parse()
        except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise _bad("the object's tables point outside it", counted(len(data), "byte")) from error

    def _parse(self) -> None:
        data = self._data
        if data[:6] != b"\x7fELF\x02\x01":
            raise _bad("not a little-endian 64-bit ELF object", repr(data[:6]))
        kind, machine = struct.unpack_from("<HH", data, 16)
        if (kind, machine) != (1, 62):
            raise _bad("not a relocatable x86-64 object", f"type {kind}, machine {machine}")
        (table,) = struct.unpack_from("<Q", data, 40)
        entry, count, names = struct.unpack_from("<HHH", data, 58)
        if entry != 64:
            raise _bad("section headers have an unknown size", entry)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry) for i in range(count)]
        strings = raw[names][4]
        self.sections: list[Section] = []
        for name, kind, flags, _, offset, size, link, info, align, _ in raw:
            if kind != _SHT_NOBITS and offset + size > len(data):
                raise _bad("the object is cut short", f"{counted(len(data), 'byte')} of at least {offset + size}")
            text = self._string(strings + name)
            self.sections.append(Section(text, kind, flags, offset, size, link, info, max(align, 1)))
        table_of = {i: self._symbols(s) for i, s in enumerate(self.sections) if s.kind == _SHT_SYMTAB}
        self.symbols = {s.name: s for table in table_of.values() for s in table if s.name and s.section}
        self.relocations = [r for s in self.sections if s.kind == _SHT_RELA for r in self._relocations(s, table_of)]

    def _string(self, at: int) -> str:
        end = self._data.find(b"\0", at)
        if end < 0:
            raise IndexError
        return self._data[at:end].decode()

    def _symbols(self, section: Section) -> list[Symbol]:
        strings = self.sections[section.link].offset
        found: list[Symbol] = []
        for at in range(section.offset, section.offset + section.size, 24):
            name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", self._data, at)
            if index == _SHN_COMMON or (index >= len(self.sections) and index != _SHN_ABS):
                raise _bad("a symbol is in an unsupported section", f"section {index:#x}")
            found.append(Symbol("" if info & 15 == 3 else self._string(strings + name), index, value))
        return found

    def _relocations(self, section: Section, tables: Mapping[int, list[Symbol]]) -> list[Relocation]:
        target = self.sections[section.info]
        if not target.loaded:
            return []
        found: list[Relocation] = []
        symbols = tables.get(section.link, [])
        for at in range(section.offset, section.offset + section.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", self._data, at)
            found.append(Relocation(section.info, offset, info & 0xFFFFFFFF, symbols[info >> 32], addend))
        return found

    def section(self, name: str) -> bytes:
        """Content of the section called `name`."""
        for s in self.sections:
            if s.name == name:
                return self._data[s.offset : s.offset + s.size]
        raise _bad("the object has no such section", name)

    def link(self, externals: Mapping[str, int]) -> "LinkedImage":
        """Lay the object out for loading.

        Parameters
        ----------
        externals
            Name -> address of each function that the object may call outside itself.
        """
        return LinkedImage(self, self._data, externals)


class LinkedImage:
    """An object laid out as one block: sections, jump stubs to outside functions, their addresses.

    Attributes
    ----------
    size
        Bytes of memory the block needs.
    """

    def __init__(self, image: ElfObject, data: bytes, externals: Mapping[str, int]) -> None:
        self._image = image
        self._data = data
        self._base: dict[int, int] = {}
        end = 0
        for i, s in enumerate(image.sections):
            if not s.loaded:
                continue
            if s.flags & _SHF_WRITE and not s.name.startswith(".data.rel.ro"):
                raise _bad("kernels may not have writable data", s.name)
            if s.kind != _SHT_PROGBITS or s.align > _PAGE:
                raise _bad("a section is unsupported", f"{s.name} of kind {s.kind}, aligned to {s.align}")
            end = -(-end // s.align) * s.align
            self._base[i] = end
            end += s.size
        end = -(-end // _STUB) * _STUB
        self._stubs: dict[str, int] = {}
        self._slots: dict[Symbol, int] = {}
        self._addresses: dict[str, int] = {}
        for r in image.relocations:
            name = r.symbol.name
            if r.symbol.section == _SHN_UNDEF and name not in self._stubs:
                if name not in externals:
                    raise _bad("the kernel calls an unknown function", name or "a symbol without a name")
                self._stubs[name] = end
                self._addresses[name] = externals[name]
                end += _STUB
            if r.kind in _GOT and r.symbol not in self._slots:
                self._slots[r.symbol] = end
                end += 8
                end = -(-end // _STUB) * _STUB
        self.size = max(end, 1)

    def place(self, address: int) -> bytearray:
        """The bytes to put at `address`."""
        block = bytearray(self.size)
        for i, base in self._base.items():
            s = self._image.sections[i]
            block[base : base + s.size] = self._data[s.offset : s.offset + s.size]
        for name, at in self._stubs.items():
            block[at : at + 6] = b"\xff\x25\x02\x00\x00\x00"  # jmp [rip + 2]: the address 8 bytes into the stub
            struct.pack_into("<Q", block, at + 8, self._addresses[name])
        for symbol, at in self._slots.items():
            struct.pack_into("<Q", block, at, self._target(symbol, address, direct=True))
        for r in self._image.relocations:
            self._relocate(block, r, address)
        return block

    def offset(self, name: str) -> int:
        """Where the symbol `name` lies in the block."""
        symbol = self._image.symbols.get(name)
        if symbol is None or symbol.section not in self._base:
            raise _bad("the object does not define the kernel", name)
        if symbol.value >= self._image.sections[symbol.section].size:
            raise _bad("the kernel lies outside its section", name)
        return self._base[symbol.section] + symbol.value

    def _target(self, symbol: Symbol, address: int, *, direct: bool = False) -> int:
        if symbol.section == _SHN_UNDEF:
            return self._addresses[symbol.name] if direct else address + self._stubs[symbol.name]
        if symbol.section == _SHN_ABS:
            return symbol.value
        if symbol.section not in self._base:
            raise _bad("a relocation refers to a section that is not loaded", self._image.sections[symbol.section].name)
        return address + self._base[symbol.section] + symbol.value

    def _relocate(self, block: bytearray, r: Relocation, address: int) -> None:
        size = self._image.sections[r.section].size
        at = self._base[r.section] + r.offset
        width = 8 if r.kind in (_R_64, _R_PC64) else 4
        if r.offset + width > size:
            raise _bad("a relocation lies outside its section", f"offset {r.offset} of {size}")
        place = address + at
        if r.kind == _R_64:
            struct.pack_into("<Q", block, at, (self._target(r.symbol, address, direct=True) + r.addend) & (1 << 64) - 1)
        elif r.kind == _R_PC64:
            struct.pack_into("<q", block, at, self._target(r.symbol, address) + r.addend - place)
        elif r.kind in _PC32 or r.kind in _GOT:
            to = address + self._slots[r.symbol] if r.kind in _GOT else self._target(r.symbol, address)
            distance = to + r.addend - place
            if not -(1 << 31) <= distance < 1 << 31:
                raise _bad("a relocation reaches too far", f"{distance} bytes")
            struct.pack_into("<i", block, at, distance)
        else:
            raise _bad("a relocation is of an unsupported kind", f"R_X86_64 number {r.kind}")
