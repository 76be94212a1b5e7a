"""Where masks hold: splits the inner loop of a nest into parts on which every mask is all true, mixed or all false."""

from __future__ import annotations

from dataclasses import dataclass

from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.expr import Evaluator
from nbxtensor.compiler.cpu.index import CONST, Bit, Dim, Index, log2, substitute
from nbxtensor.compiler.cpu.ir import Op, Value
from nbxtensor.compiler.cpu.lanes import Pointer, Uniform, bounds, int_range
from nbxtensor.compiler.cpu.reach import Ends, operands
from nbxtensor.compiler.cpu.views import VIEWS

_MIRROR = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}


Position = str | int
"""A position along a loop: a constant, or the name of an i64."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A condition holds exactly for positions ``low <= j < high``."""

    low: Position
    high: Position


def combine(b: Builder, how: str, x: Position, y: Position, extent: int) -> Position:
    """The smaller (``smin``) or larger (``smax``) of two positions that lie between 0 and `extent`."""
    if x == y:
        return x
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y) if how == "smin" else max(x, y)
    neutral, absorbing = (extent, 0) if how == "smin" else (0, extent)
    for one, other in ((x, y), (y, x)):
        if one == neutral:
            return other
        if one == absorbing:
            return one
    return b.call("i64", f"llvm.{how}.i64", ("i64", str(x)), ("i64", str(y)))


class Splitter:
    """Analyses conditions along the inner variable `bits` (bit k of the position is ``bits[k]``)."""

    def __init__(self, ev: Evaluator, ends: Ends, bits: Dim, extent: int) -> None:
        self.ev = ev
        self.b = ev.b
        self.ends = ends
        self.bits: dict[Bit, int] = {bit: k for k, bit in enumerate(bits)}
        self.zero: dict[Bit, Bit] = dict.fromkeys(bits, (CONST, 0))
        self.extent = extent

    def at_zero(self, value: Value, index: Index) -> Uniform | None:
        """The value at position 0, if it is the same for all lanes."""
        found = self.ev.value(value, substitute(index, self.zero))
        return found if isinstance(found, Uniform) else None

    def depends(self, index: Index) -> bool:
        return any(bit in self.bits for dim in index for bit in dim)

    def slope(self, value: Value, index: Index) -> int | None:
        """How much `value` grows per position; None if it does not grow evenly."""
        if not value.type.shape or not self.depends(index):
            return 0
        if self.ends.is_end(value):
            return None
        origin = self.ends.origin(value)
        if origin is not None:
            return self.slope(origin, index)
        op = value.op
        if op is None:
            return None
        match op.name:
            case "tt.splat" | "arith.constant":
                return 0
            case "tt.make_range":
                return self.range_slope(index[0])
            case "arith.addi" | "arith.subi" | "tt.addptr":
                a, c = (self.slope(o, index) for o in op.operands)
                if a is None or c is None:
                    return None
                return a - c if op.name == "arith.subi" else a + c
            case "arith.muli":
                return self.product_slope(op, index)
            case "arith.extsi" | "arith.extui":
                grow = self.slope(op.operands[0], index)
                signed = op.name == "arith.extsi"
                return grow if grow is not None and self.no_wrap(op.operands[0], index, grow, signed) else None
            case name if name in VIEWS:
                ((source, at),) = operands(value, index, self.ends)
                return self.slope(source, at)
            case _:
                return None

    def range_slope(self, dim: Dim) -> int | None:
        shift: int | None = None
        count = 0
        for position, bit in enumerate(dim):
            k = self.bits.get(bit)
            if k is None:
                continue
            if shift is None:
                shift = position - k
            if position - k != shift or shift < 0:
                return None
            count += 1
        if shift is None:
            return 0
        return 1 << shift if count == len(self.bits) else None

    def product_slope(self, op: Op, index: Index) -> int | None:
        a, c = (self.slope(o, index) for o in op.operands)
        if a is None or c is None:
            return None
        if a == 0 and c == 0:
            return 0
        if a and c:
            return None
        factor = self.at_zero(op.operands[1] if a else op.operands[0], index)
        if factor is None or factor.const is None:
            return None
        return (a or c) * int(factor.const)

    def no_wrap(self, value: Value, index: Index, slope: int, signed: bool) -> bool:
        """Whether `value` does not wrap around between position 0 and the last."""
        base = self.at_zero(value, index)
        if base is None:
            return False
        low, high = bounds(base)
        reach = slope * (self.extent - 1)
        least, most = int_range(value.type.elem)
        if not signed and (low < 0 or low + min(0, reach) < 0):
            return False
        if 0 <= reach < 1 << base.zeros and reach <= most:
            return True
        return low + min(0, reach) >= least and high + max(0, reach) <= most

    def interval(self, mask: Value, index: Index) -> Interval | None:
        """Where `mask` holds, if that is an interval of positions; otherwise None."""
        known = self.ev.known.get((mask, index))
        if known is not None:
            return Interval(0, self.extent if known.const else 0)
        if not self.depends(index):
            return self.uniform(mask, index)
        op = mask.op
        if op is None or self.ends.is_end(mask):
            return None
        if op.name in VIEWS:
            ((source, at),) = operands(mask, index, self.ends)
            return self.interval(source, at)
        if op.name == "tt.splat" or op.name == "arith.constant":
            return self.uniform(mask, index)
        if op.name == "arith.andi":
            a, c = (self.interval(o, index) for o in op.operands)
            return None if a is None or c is None else self.intersect(a, c)
        if op.name == "arith.cmpi":
            return self.compare(op, index)
        return None

    def uniform(self, mask: Value, index: Index) -> Interval | None:
        value = self.at_zero(mask, index)
        if value is None or isinstance(value, Pointer):
            return None
        if value.const is not None:
            return Interval(0, self.extent if value.const else 0)
        return Interval(0, self.b.put(f"select i1 {value.v}, i64 {self.extent}, i64 0"))

    def intersect(self, a: Interval, c: Interval) -> Interval:
        low = combine(self.b, "smax", a.low, c.low, self.extent)
        return Interval(low, combine(self.b, "smin", a.high, c.high, self.extent))

    def compare(self, op: Op, index: Index) -> Interval | None:
        predicate = op.attrs["head"]
        left, right = op.operands
        a, c = self.slope(left, index), self.slope(right, index)
        if a is None or c is None:
            return None
        if a == c:
            same = self.at_zero(op.result, index) if a == 0 else None
            return None if same is None else self.uniform(op.result, index)
        x, y = self.at_zero(left, index), self.at_zero(right, index)
        if x is None or y is None or predicate not in _MIRROR:
            return None
        if left.type.elem != "i64":
            if not self.no_wrap(left, index, a, True) or not self.no_wrap(right, index, c, True):
                return None
            x, y = self.ev.lanes.ints.extend(x, "i64", True), self.ev.lanes.ints.extend(y, "i64", True)
        slope = a - c
        if slope < 0:
            x, y, slope, predicate = y, x, -slope, _MIRROR[predicate]
        if slope & (slope - 1):
            return None
        return self.solve(predicate, x, y, slope)

    def solve(self, predicate: str, x: Uniform, y: Uniform, slope: int) -> Interval:
        """``x + slope * j <predicate> y`` for j; `slope` is a power of two."""
        b = self.b
        gap = b.call("i64", "llvm.ssub.sat.i64", ("i64", y.v), ("i64", x.v))
        gap = b.call("i64", "llvm.smax.i64", ("i64", gap), ("i64", "-1"))
        gap = b.call("i64", "llvm.smin.i64", ("i64", gap), ("i64", str(slope * self.extent)))
        upward = predicate in ("slt", "sge")
        if slope > 1:
            if upward:
                gap = b.put(f"add i64 {gap}, {slope - 1}")
            gap = b.put(f"ashr i64 {gap}, {log2(slope)}")
        if not upward:
            gap = b.put(f"add i64 {gap}, 1")
        gap = b.call("i64", "llvm.smax.i64", ("i64", gap), ("i64", "0"))
        gap = b.call("i64", "llvm.smin.i64", ("i64", gap), ("i64", str(self.extent)))
        if predicate in ("slt", "sle"):
            return Interval(0, gap)
        return Interval(gap, self.extent)
