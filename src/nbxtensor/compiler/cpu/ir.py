"""The small IR of the CPU compiler: what the TTIR text says, as Python objects.

Scalars are values of shape ``()``. Sizes are powers of two (Triton's rule), which `index` relies on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from nbxtensor.base.errors import CompileError

_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "ptr": 8}


@dataclass(frozen=True, slots=True)
class Type:
    """An element type and a shape; `pointee` is set for pointers (``elem == "ptr"``)."""

    elem: str
    shape: tuple[int, ...] = ()
    pointee: str = ""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return _BYTES[self.elem]

    @property
    def bits(self) -> int:
        """Bits of one element in a register."""
        return 1 if self.elem == "i1" else 8 * _BYTES[self.elem]

    @property
    def is_int(self) -> bool:
        return self.elem[0] == "i"

    @property
    def is_float(self) -> bool:
        return self.elem[0] in "fb"

    @property
    def scalar(self) -> Type:
        return Type(self.elem, (), self.pointee)

    def with_elem(self, elem: str) -> Type:
        return Type(elem, self.shape)


def known_elem(elem: str) -> bool:
    return elem in _BYTES


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value: a result of `op`, or an argument of `block` (then `op` is None)."""

    type: Type
    op: Op | None = None
    number: int = 0
    block: Block | None = None

    @property
    def name(self) -> str:
        return self.op.name if self.op is not None else "argument"


Constant = int | float | list[int] | list[float]


@dataclass(eq=False, slots=True)
class Op:
    """One operation. `attrs` holds what the text says besides operands (parsed where the compiler needs it)."""

    name: str
    operands: list[Value]
    results: list[Value]
    attrs: dict[str, str] = field(default_factory=dict[str, str])
    regions: list[Block] = field(default_factory=list["Block"])
    loc: str = ""
    parent: Block | None = None
    position: int = 0
    constant: Constant | None = None

    @property
    def result(self) -> Value:
        return self.results[0]

    def int_attr(self, name: str) -> int:
        return int(self.attrs[name].split(":")[0])

    def error(self, problem: str, mend: str = "") -> CompileError:
        """The error for this operation, with its source line where the text has one."""
        return CompileError("compile for cpu", f"{self.name}: {problem}", got=self.loc or None, mend=mend)


@dataclass(eq=False, slots=True)
class Block:
    """A straight list of operations with arguments; every region of TTIR is one block."""

    args: list[Value]
    ops: list[Op]
    owner: Op | None = None

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Every operation in here, outer before inner, in program order."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Block

    @property
    def args(self) -> list[Value]:
        return self.body.args
