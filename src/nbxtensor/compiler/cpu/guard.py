"""Run-time checks that a nest does not overwrite memory that it has yet to read.

Triton loads a whole block before it stores. A load may be left to the nest that stores only where both touch the same
element at the same time, or where the two blocks lie apart. The latter is checked at run time: interval arithmetic on
the offsets gives the first and last byte that a block can touch, whatever its masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.expr import Environment, Shifted, constant
from nbxtensor.compiler.cpu.index import Index
from nbxtensor.compiler.cpu.ir import Op, Type, Value
from nbxtensor.compiler.cpu.lanes import Integers, Pointer, Uniform, int_const, int_range
from nbxtensor.compiler.cpu.reach import Ends, chain
from nbxtensor.compiler.cpu.views import VIEWS

_SIMPLE = {"arith.addi", "arith.subi", "arith.muli", "arith.minsi", "arith.maxsi", "arith.select"}
_BY_SCALAR = {"arith.remsi", "arith.divsi"}
_CONVERSIONS = {"arith.extsi", "arith.trunci"}


def can_bound(value: Value, ends: Ends) -> bool:
    """Whether `Intervals` can bound an integer tensor or scalar."""
    if not value.type.shape:
        return True
    if ends.origin(value) is not None:
        origin = ends.origin(value)
        return origin is not None and can_bound(origin, ends)
    op = value.op
    if op is None or ends.is_end(value):
        return False
    if op.name in ("tt.splat", "tt.make_range"):
        return True
    if op.name == "arith.constant":
        return not isinstance(op.constant, list)
    if op.name in VIEWS or op.name in _CONVERSIONS or op.name in _BY_SCALAR:
        return can_bound(op.operands[0], ends)
    if op.name in _SIMPLE:
        return all(can_bound(o, ends) for o in op.operands[-2:])
    return False


def can_bound_pointer(pointer: Value, index: Index, ends: Ends) -> bool:
    """Whether the addresses of a block can be bounded."""
    base, offsets = chain(pointer, index, ends)
    return base is not None and all(value.type.elem == "ptr" or can_bound(value, ends) for value, _ in offsets)


@dataclass(frozen=True, slots=True)
class Span:
    """Bounds of an integer as 64-bit scalars."""

    low: Uniform
    high: Uniform


class Intervals:
    """Emits interval arithmetic at the current point. `unsure` collects conditions under which bounds may be wrong."""

    def __init__(self, builder: Builder, env: Environment, ends: Ends) -> None:
        self.b = builder
        self.env = env
        self.ends = ends
        self.ints = Integers(builder)
        self.memo: dict[Value, Span] = {}
        self.unsure: list[str] = []

    def least(self, how: str, x: Uniform, y: Uniform) -> Uniform:
        if x.const is not None and y.const is not None:
            values = (int(x.const), int(y.const))
            return int_const(min(values) if how == "smin" else max(values), "i64")
        if x.v == y.v:
            return x
        return Uniform("i64", self.b.call("i64", f"llvm.{how}.i64", ("i64", x.v), ("i64", y.v)))

    def scalar(self, value: Value) -> Span:
        known = self.env.scalars[value]
        assert isinstance(known, Uniform)
        wide = self.ints.extend(known, "i64", True)
        return Span(wide, wide)

    def span(self, value: Value) -> Span:
        """Bounds of all elements of `value`."""
        found = self.memo.get(value)
        if found is None:
            found = self.memo[value] = self.compute(value)
        return found

    def compute(self, value: Value) -> Span:
        if not value.type.shape:
            return self.scalar(value)
        origin = self.ends.origin(value)
        if origin is not None:
            return self.checked(value, self.add(self.span(origin), self.shift(value)))
        op = value.op
        assert op is not None
        if op.name == "tt.splat":
            return self.scalar(op.operands[0])
        if op.name == "arith.constant":
            wide = self.ints.extend(constant(op, value.type.elem), "i64", True)
            return Span(wide, wide)
        if op.name == "tt.make_range":
            first, last = op.int_attr("start"), op.int_attr("end") - 1
            return Span(int_const(first, "i64"), int_const(last, "i64"))
        if op.name in VIEWS or op.name in _CONVERSIONS:
            return self.checked(value, self.span(op.operands[0]))
        return self.checked(value, self.arithmetic(op))

    def shift(self, value: Value) -> Span:
        """What a loop added to a carried tensor."""
        stored = self.env.storage[value]
        assert isinstance(stored, Shifted)
        wide = self.ints.extend(stored.offset, "i64", True)
        return Span(wide, wide)

    def checked(self, value: Value, span: Span) -> Span:
        """Note where a narrower type would have wrapped around."""
        if value.type.elem not in ("i64", "ptr"):
            least, most = int_range(value.type.elem)
            for bound, sign, limit in ((span.low, "slt", least), (span.high, "sgt", most)):
                if bound.const is None:
                    self.unsure.append(self.b.put(f"icmp {sign} i64 {bound.v}, {limit}"))
                elif not least <= int(bound.const) <= most:
                    self.unsure.append("true")
        return span

    def add(self, x: Span, y: Span) -> Span:
        return Span(self.ints.add(x.low, y.low), self.ints.add(x.high, y.high))

    def hull(self, candidates: list[Uniform]) -> Span:
        low = high = candidates[0]
        for other in candidates[1:]:
            low, high = self.least("smin", low, other), self.least("smax", high, other)
        return Span(low, high)

    def arithmetic(self, op: Op) -> Span:
        zero = int_const(0, "i64")
        x = self.span(op.operands[-2])
        if op.name == "arith.divsi":
            return Span(self.least("smin", x.low, zero), self.least("smax", x.high, zero))
        if op.name == "arith.remsi":
            y = self.span(op.operands[1]) if not op.operands[1].type.shape else self.uniform(op.operands[1])
            size = self.hull([y.low, y.high, self.ints.sub(zero, y.low), self.ints.sub(zero, y.high)]).high
            size = self.least("smax", self.ints.sub(size, int_const(1, "i64")), zero)
            low = self.least("smax", self.least("smin", x.low, zero), self.ints.sub(zero, size))
            return Span(low, self.least("smin", self.least("smax", x.high, zero), size))
        y = self.span(op.operands[-1])
        match op.name:
            case "arith.addi":
                return self.add(x, y)
            case "arith.subi":
                return Span(self.ints.sub(x.low, y.high), self.ints.sub(x.high, y.low))
            case "arith.muli":
                if x.low == x.high:
                    x, y = y, x
                if y.low == y.high:
                    return self.hull([self.ints.mul(x.low, y.low), self.ints.mul(x.high, y.low)])
                return self.hull([self.ints.mul(a, b) for a in (x.low, x.high) for b in (y.low, y.high)])
            case "arith.minsi":
                return Span(self.least("smin", x.low, y.low), self.least("smin", x.high, y.high))
            case "arith.maxsi":
                return Span(self.least("smax", x.low, y.low), self.least("smax", x.high, y.high))
            case _:
                return Span(self.least("smin", x.low, y.low), self.least("smax", x.high, y.high))

    def uniform(self, value: Value) -> Span:
        """Bounds of a divisor; without any, the dividend alone bounds the remainder."""
        if can_bound(value, self.ends):
            return self.span(value)
        least, most = int_range("i64")
        return Span(int_const(least + 1, "i64"), int_const(most, "i64"))

    def block(self, pointer: Value, index: Index) -> Span:
        """First byte, and the byte after the last, that a block of pointers can reach."""
        base, offsets = chain(pointer, index, self.ends)
        assert base is not None
        start = self.env.scalars[base]
        assert isinstance(start, Pointer)
        total = Span(int_const(0, "i64"), int_const(0, "i64"))
        for value, _ in offsets:
            moved = self.shift(value) if value.type.elem == "ptr" else self.span(value)
            total = self.add(total, moved)
        size = int_const(Type(pointer.type.pointee).itemsize, "i64")
        address = Uniform("i64", self.b.put(f"ptrtoint ptr {start.base} to i64"))
        low = self.ints.add(address, self.ints.mul(total.low, size))
        high = self.ints.add(address, self.ints.mul(self.ints.add(total.high, int_const(1, "i64")), size))
        return Span(low, high)

    def meet(self, a: Span, b: Span) -> str:
        """Whether two blocks may overlap."""
        left = self.b.put(f"icmp slt i64 {a.low.v}, {b.high.v}")
        right = self.b.put(f"icmp slt i64 {b.low.v}, {a.high.v}")
        return self.b.put(f"and i1 {left}, {right}")

    def any(self, conditions: list[str]) -> str:
        """Whether one of some conditions, or of `unsure`, holds."""
        total = "false"
        for condition in [*conditions, *self.unsure]:
            total = condition if total == "false" else self.b.put(f"or i1 {total}, {condition}")
        return total
