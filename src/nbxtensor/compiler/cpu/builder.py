"""Writes one LLVM function as text, block by block."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager

_LLVM = {"bf16": "i16", "f16": "i16", "f32": "float", "f64": "double"}


def llvm_type(elem: str, lanes: int = 0) -> str:
    """LLVM's type of one value (lanes = 0) or of a vector. 16-bit floats are kept as their bits."""
    scalar = _LLVM.get(elem, elem)
    return f"<{lanes} x {scalar}>" if lanes else scalar


def memory_type(elem: str, lanes: int = 0) -> str:
    """The type in memory: a bool is one byte."""
    return llvm_type("i8" if elem == "i1" else elem, lanes)


def float_literal(value: float) -> str:
    """A constant of type float or double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Code:
    """A basic block: lines, then a terminator that may be set before the lines are complete.

    `known` and `loaded` hold the results of equal instructions: of pure ones, and of loads since the last store.
    """

    __slots__ = ("known", "label", "lines", "loaded", "terminator")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.terminator = ""
        self.known: dict[str, str] = {}
        self.loaded: dict[str, str] = {}


_ONCE = ("atomicrmw", "cmpxchg", "phi")


class Builder:
    """A function under construction. `cur` is the block that instructions go to."""

    def __init__(self) -> None:
        self.count = 0
        self.declarations: dict[str, str] = {}
        self.allocas: list[str] = []
        self.stack_bytes = 0
        self.blocks: list[Code] = []
        self.cur = self.block("body")

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def block(self, hint: str) -> Code:
        """A new block, placed at the end of the function."""
        self.count += 1
        code = Code(f"{hint}{self.count}")
        self.blocks.append(code)
        return code

    def put(self, text: str) -> str:
        """Add an instruction that has a result, or find an equal one in this block; its name is returned."""
        code = self.cur
        if text.startswith(_ONCE):
            code.loaded.clear()
            known = {}
        else:
            known = code.loaded if text.startswith("load ") or "@llvm.masked" in text else code.known
        name = known.get(text)
        if name is None:
            name = known[text] = self.name()
            code.lines.append(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.cur.lines.append(text)
        self.cur.loaded.clear()

    def jump(self, target: Code) -> None:
        self.cur.terminator = f"br label %{target.label}"

    def branch(self, condition: str, yes: Code, no: Code) -> None:
        self.cur.terminator = f"br i1 {condition}, label %{yes.label}, label %{no.label}"

    @contextmanager
    def at(self, block: Code) -> Generator[None, None, None]:
        """Add instructions to `block` for a while."""
        saved, self.cur = self.cur, block
        try:
            yield
        finally:
            self.cur = saved

    def call(self, result: str, function: str, *args: tuple[str, str]) -> str:
        """Call an intrinsic: `args` are (type, value)."""
        self.declarations[function] = f"declare {result} @{function}({', '.join(t for t, _ in args)})"
        text = f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.do(text)
            return ""
        return self.put(text)

    def scratch(self, nbytes: int) -> str:
        """Memory of the running program, aligned to 64 bytes; lives as long as the call."""
        name = self.name()
        nbytes = max(64, -(-nbytes // 64) * 64)
        self.allocas.append(f"{name} = alloca [{nbytes} x i8], align 64")
        self.stack_bytes += nbytes
        return name

    def splat(self, type: str, lanes: int, value: str) -> str:
        """A vector of equal elements."""
        if value[0] != "%":
            return f"splat ({type} {value})"
        vector = f"<{lanes} x {type}>"
        first = self.put(f"insertelement {vector} poison, {type} {value}, i64 0")
        return self.put(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")

    def gep(self, type: str, base: str, offset: str) -> str:
        """`base` moved by `offset` (i64) elements of `type`."""
        if offset == "0":
            return base
        return self.put(f"getelementptr {type}, ptr {base}, i64 {offset}")

    def shuffle(self, type: str, lanes: int, a: str, b: str, picks: Sequence[int]) -> str:
        """Pick elements out of two vectors."""
        vector = f"<{lanes} x {type}>"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.put(f"shufflevector {vector} {a}, {vector} {b}, <{len(picks)} x i32> <{mask}>")

    def body_text(self) -> str:
        """The text of all blocks, in order of creation."""
        parts: list[str] = []
        for code in self.blocks:
            parts.append(f"{code.label}:")
            parts += code.lines
            parts.append(code.terminator)
        return "\n".join(parts)


def int_vector(elem: str, values: Sequence[int]) -> str:
    """A constant integer vector."""
    return "<" + ", ".join(f"{elem} {v}" for v in values) + ">"
