"""Loop nests: evaluate expressions over all elements of a shape, some lanes at a time.

A nest has levels: level 0 is the code before it, level i the body of loop i. A value is computed at the level of the
innermost loop variable that its index depends on, and remembered there, so invariant work is hoisted as it is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbxtensor.compiler.cpu.builder import Builder, Code
from nbxtensor.compiler.cpu.index import LANE, Dim, Index, lane_pattern, log2, runs, variables
from nbxtensor.compiler.cpu.ir import Value
from nbxtensor.compiler.cpu.lanes import Lane, Lanes, Number, Uniform, int_const


@dataclass(frozen=True, slots=True)
class Plan:
    """How a shape is walked: the index in terms of variables, and the loops (variable 1 is the outermost).

    Attributes
    ----------
    extents
        Size of the dimension that each variable runs through.
    steps
        Step of each variable (the lanes of its dimension).
    """

    lanes: int
    index: Index
    extents: tuple[int, ...]
    steps: tuple[int, ...]


def plan(shape: Sequence[int], lanes: int, lane_dim: int, first: int = 1, *, across: bool = False) -> Plan:
    """Walk `shape` with vectors along `lane_dim`; where that is too short, lanes spread over the dims before it.

    The loop along `lane_dim` is the innermost, or with `across` the outermost.
    """
    if not shape:
        return Plan(1, (), (), ())
    taken = [0] * len(shape)
    left = log2(lanes)
    order = [lane_dim, *(d for d in reversed(range(len(shape))) if d != lane_dim)]
    for d in order:
        taken[d] = min(left, log2(shape[d]))
        left -= taken[d]
    lanes >>= left
    lane_bit = 0
    starts: dict[int, int] = {}
    for d in order:
        starts[d] = lane_bit
        lane_bit += taken[d]
    loops = [d for d in reversed(order) if log2(shape[d]) > taken[d]]
    if lane_dim in loops:
        others = [d for d in range(len(shape)) if d in loops and d != lane_dim]
        loops = [lane_dim, *others] if across else [*others, lane_dim]
    else:
        loops.sort()
    dims: list[Dim] = []
    for d, size in enumerate(shape):
        var = first + loops.index(d) if d in loops else 0
        low = tuple((LANE, starts[d] + k) for k in range(taken[d]))
        dims.append(low + tuple((var, k) for k in range(taken[d], log2(size))))
    return Plan(lanes, tuple(dims), tuple(shape[d] for d in loops), tuple(1 << taken[d] for d in loops))


@dataclass(slots=True)
class OpenLoop:
    """A loop whose body is being emitted. `sure`: it runs at least once."""

    var: int
    header: Code
    after: Code
    counter: str
    start: int | str
    stop: int | str
    step: int
    phis: list[str]
    carried: list[tuple[str, str]]
    entry: Code
    sure: bool = False


class Nest:
    """The loops and levels of one nest."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.b = builder
        self.n = lanes
        self.lanes = Lanes(builder)
        self.levels: list[Code] = [builder.cur]
        self.memos: list[dict[tuple[Value, Index], Lane]] = [{}]
        self.bases: list[dict[Dim, Uniform]] = [{}]
        self.counters: dict[int, str] = {}
        self.steps: dict[int, int] = {}
        self.extents: dict[int, int] = {}
        self.level_of: dict[int, int] = {}

    def level(self, index: Index) -> int:
        return max((self.level_of[v] for v in variables(index)), default=0)

    # --- loops

    def open(
        self,
        var: int,
        start: int | str,
        stop: int | str,
        step: int,
        extent: int,
        carried: Sequence[tuple[str, str]] = (),
    ) -> OpenLoop:
        """Begin a loop ``for var in range(start, stop, step)``; `carried` are (type, first value)."""
        b, entry = self.b, self.levels[-1]
        header, after = b.block("loop"), b.block("out")
        phis = [b.name() for _ in carried]
        loop = OpenLoop(var, header, after, b.name(), start, stop, step, phis, list(carried), entry)
        if isinstance(start, int) and isinstance(stop, int) and start < stop:
            entry.terminator = f"br label %{header.label}"
            loop.sure = True
        else:
            with b.at(entry):
                b.branch(b.put(f"icmp slt i64 {start}, {stop}"), header, after)
        b.cur = header
        self.levels.append(header)
        self.memos.append({})
        self.bases.append({})
        self.counters[var], self.steps[var], self.extents[var] = loop.counter, step, extent
        self.level_of[var] = len(self.levels) - 1
        return loop

    def close(self, loop: OpenLoop, nexts: Sequence[str] = ()) -> list[str]:
        """End the loop; returns the carried values after it. Code goes on behind the loop."""
        b = self.b
        following = b.put(f"add nuw nsw i64 {loop.counter}, {loop.step}")
        b.branch(b.put(f"icmp slt i64 {following}, {loop.stop}"), loop.header, loop.after)
        entry, latch = loop.entry.label, b.cur.label
        phis = [f"{loop.counter} = phi i64 [ {loop.start}, %{entry} ], [ {following}, %{latch} ]"]
        results: list[str] = []
        for name, (type, init), value in zip(loop.phis, loop.carried, nexts, strict=True):
            phis.append(f"{name} = phi {type} [ {init}, %{entry} ], [ {value}, %{latch} ]")
            if loop.sure:
                results.append(value)
                continue
            results.append(b.name())
            loop.after.lines.append(f"{results[-1]} = phi {type} [ {init}, %{entry} ], [ {value}, %{latch} ]")
        loop.header.lines[0:0] = phis
        for stack in (self.levels, self.memos, self.bases):
            stack.pop()
        b.cur = self.levels[-1] = loop.after
        return results

    def narrowed(self, lanes: int) -> Nest:
        """A nest with fewer lanes at the current point of this one; the open loops are around it."""
        nest = Nest(self.b, lanes)
        for var, level in self.level_of.items():
            if level < len(self.levels):
                nest.fix(var, self.counters[var], self.extents[var], self.steps[var])
        return nest

    def settle(self) -> None:
        """Note that the current body went on in another block (after a branch)."""
        self.levels[-1] = self.b.cur

    def fix(self, var: int, counter: str, extent: int, step: int = 1) -> None:
        """Make the counter of a loop around the nest a variable of level 0."""
        self.counters[var], self.steps[var], self.extents[var], self.level_of[var] = counter, step, extent, 0

    # --- indices

    def number(self, dim: Dim, elem: str = "i64") -> Number:
        """The value of an index along one dimension (or of a linear index)."""
        base = self.base(tuple(bit if bit[0] > 0 else (0, 0) for bit in dim))
        if elem != "i64":
            base = self.lanes.ints.truncate(base, elem)
        return self.lanes.affine(base, lane_pattern(dim, self.n))

    def base(self, dim: Dim) -> Uniform:
        """The part of an index that comes from loop variables."""
        level = max((self.level_of[v] for v, _ in dim if v > 0), default=0)
        known = self.bases[level].get(dim)
        if known is not None:
            return known
        saved, self.b.cur = self.b.cur, self.levels[level]
        total = int_const(0, "i64")
        for var, first, length, position in runs(dim):
            total = self.lanes.ints.add(total, self.part(var, first, length, position))
        self.b.cur = saved
        self.bases[level][dim] = total
        return total

    def part(self, var: int, first: int, length: int, position: int) -> Uniform:
        """Bits ``first .. first + length`` of a counter, moved to `position`."""
        v, low, top = self.counters[var], log2(self.steps[var]), log2(self.extents[var])
        if first + length < top:
            v = self.b.put(f"and i64 {v}, {(1 << first + length) - 1}")
        if first > low:
            v = self.b.put(f"lshr i64 {v}, {first}")
            if position:
                v = self.b.put(f"shl nuw nsw i64 {v}, {position}")
        elif position != first:
            how, amount = ("shl nuw nsw", position - first) if position > first else ("lshr", first - position)
            v = self.b.put(f"{how} i64 {v}, {amount}")
        return Uniform("i64", v, None, 0, ((1 << length) - 1) << position, position)
