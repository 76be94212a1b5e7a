"""The parts that masks split an inner loop into."""

from __future__ import annotations

from dataclasses import dataclass

from nbxtensor.compiler.cpu.expr import Evaluator
from nbxtensor.compiler.cpu.index import LANE, Dim, Index, log2, substitute
from nbxtensor.compiler.cpu.reach import Element, Ends
from nbxtensor.compiler.cpu.split import Interval, Position, Splitter, combine

__all__ = ["Line", "Parts", "Position"]


@dataclass(frozen=True, slots=True)
class Line:
    """The innermost loop: its variable, and the index of the element that its body computes."""

    var: int
    extent: int
    step: int
    index: Index

    def bits(self) -> Dim:
        """The bits of the position: lanes of the variable's dimension, then the counter."""
        for dim in self.index:
            if any(v == self.var for v, _ in dim):
                return tuple(bit for bit in dim if bit[0] in (LANE, self.var))
        raise AssertionError

    def narrowed(self, lanes: int) -> Line:
        """The same loop with fewer lanes, all of them in the loop's own dimension."""
        cut = log2(lanes)
        table = {(LANE, k): (self.var, k) for k in range(cut, log2(self.step))}
        return Line(self.var, self.extent, lanes, substitute(self.index, table))


class Parts:
    """The parts that masks split a loop into."""

    def __init__(self, ends: Ends, ev: Evaluator, line: Line, masks: list[Element], start: int) -> None:
        self.b = ev.b
        self.extent, self.step, self.start = line.extent, line.step, start
        splitter = Splitter(ev, ends, line.bits(), self.extent)
        self.intervals: dict[Element, Interval] = {}
        for mask in masks:
            found = splitter.interval(*mask)
            if found is not None:
                self.intervals[mask] = found
        self.lower = any(i.low != 0 for i in self.intervals.values())

    def whole(self) -> tuple[Position, Position]:
        """First and last position between which all masks hold, in whole steps."""
        low: Position = self.start
        high: Position = self.extent
        for interval in self.intervals.values():
            low = self.least("smax", low, interval.low)
            high = self.least("smin", high, interval.high)
        first, last = self.up(low), self.down(high)
        return first, self.least("smax", first, last)

    def hull(self, masks: list[Element]) -> Interval:
        """Where at least one of `masks` may hold."""
        low: Position = self.extent
        high: Position = 0
        for mask in masks:
            interval = self.intervals.get(mask, Interval(0, self.extent))
            low = self.least("smin", low, interval.low)
            high = self.least("smax", high, interval.high)
        return Interval(low, high)

    def furthest(self) -> Position:
        """Behind this position no mask holds."""
        high: Position = 0
        for interval in self.intervals.values():
            high = self.least("smax", high, interval.high)
        return high

    def least(self, how: str, x: Position, y: Position) -> Position:
        """The smaller (``smin``) or larger (``smax``) of two positions from 0 to the extent."""
        return combine(self.b, how, x, y, self.extent)

    def up(self, position: Position) -> Position:
        if self.step == 1:
            return position
        if isinstance(position, int):
            return -(-position // self.step) * self.step
        return self.down(self.b.put(f"add i64 {position}, {self.step - 1}"))

    def down(self, position: Position) -> Position:
        if self.step == 1:
            return position
        if isinstance(position, int):
            return position // self.step * self.step
        return self.b.put(f"and i64 {position}, {-self.step}")
