"""Runs a body over all elements of a shape: picks lanes, opens the loops, splits the innermost by masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.expr import Environment, Evaluator
from nbxtensor.compiler.cpu.index import Index, var_dim
from nbxtensor.compiler.cpu.ir import Value
from nbxtensor.compiler.cpu.lanes import Uniform
from nbxtensor.compiler.cpu.memory import FALSE, TRUE
from nbxtensor.compiler.cpu.nest import Nest, Plan, plan
from nbxtensor.compiler.cpu.parts import Line, Parts, Position
from nbxtensor.compiler.cpu.reach import Element, Ends, reachable
from nbxtensor.compiler.cpu.reach import operands as parts_of
from nbxtensor.compiler.cpu.schedule import Schedule, full_index

MAX_LANES = 32
NARROW = 8
_LARGE = 60

Step = Callable[[Evaluator, Index, list[str]], list[str]]


class Walker:
    """Emits loop nests. As `Ends` it says where expressions end at this point of the function."""

    def __init__(self, builder: Builder, schedule: Schedule) -> None:
        self.b = builder
        self.schedule = schedule
        self.env = Environment()
        self.dummy = builder.scratch(64)
        self.filling: set[Value] = set()
        self.held: set[Value] = set()
        self.rare = False

    def is_end(self, value: Value) -> bool:
        return value in self.held or (value not in self.filling and self.schedule.is_end(value))

    def origin(self, value: Value) -> Value | None:
        return self.schedule.origin(value)

    def every(
        self,
        shape: tuple[int, ...],
        values: Sequence[Value],
        body: Callable[[Evaluator, Index], None],
        masks: Sequence[Value] = (),
        pointers: Sequence[Value] = (),
        *,
        skip: bool = False,
        outer: Sequence[tuple[str, int]] = (),
        layout: Plan | None = None,
    ) -> None:
        """Run `body` for all elements of `shape`.

        Parameters
        ----------
        values
            What `body` evaluates, at the element itself.
        masks
            Conditions that `body` depends on besides those of loads.
        pointers
            Addresses that are written; they decide along which dimension the lanes run.
        skip
            Whether elements where none of `masks` hold need not be visited at all.
        outer
            Counter and size of loops around the nest; their dimensions come before those of `shape`.
        layout
            How to walk `shape`, if the caller knows.
        """
        first = len(outer) + 1
        if layout is None:
            lane_dim = self.lane_dim(shape, [*pointers, *values])
            across = self.strided(shape, values, lane_dim)
            layout = plan(shape, self.width(shape, values, lane_dim), lane_dim, first, across=across)
        nest = Nest(self.b, layout.lanes)
        for v, (counter, size) in enumerate(outer):
            nest.fix(v + 1, counter, size)
        index = (*(var_dim(v + 1, size) for v, (_, size) in enumerate(outer)), *layout.index)
        ev = Evaluator(self.b, nest, self.env, self.dummy)
        loops = [
            nest.open(first + v, 0, layout.extents[v], layout.steps[v], layout.extents[v])
            for v in range(len(layout.extents) - 1)
        ]

        def step(inner: Evaluator, at: Index, carried: list[str]) -> list[str]:
            body(inner, at)
            return carried

        if layout.extents:
            own = [(m, index) for m in masks]
            elements = self.masks([(v, index) for v in values])
            elements += [e for e in own if e not in elements]
            line = Line(first + len(layout.extents) - 1, layout.extents[-1], layout.steps[-1], index)
            self.split(ev, line, elements, step, own if skip else None)
        else:
            body(ev, index)
            nest.settle()
        for loop in reversed(loops):
            nest.close(loop)

    def split(
        self,
        ev: Evaluator,
        line: Line,
        masks: list[Element],
        body: Step,
        needed: list[Element] | None = None,
        carried: Sequence[tuple[str, str]] = (),
        start: int = 0,
    ) -> list[str]:
        """The innermost loop, split into parts by masks; returns the carried values after it.

        Parameters
        ----------
        body
            Called with evaluator, index and carried values; returns the next carried values.
        needed
            If given, positions where none of these masks hold are left out.
        carried
            Type and first value of what `body` hands from one iteration to the next.
        start
            First position.
        """
        types = [t for t, _ in carried]
        values = [v for _, v in carried]

        def loop(first: Position, last: Position, known: dict[Element, Uniform], at: Evaluator, where: Line) -> None:
            nonlocal values
            if first == last:
                return
            opened = at.nest.open(line.var, first, last, where.step, line.extent, list(zip(types, values, strict=True)))
            at.known = known
            nexts = body(at, where.index, list(opened.phis))
            at.known = {}
            values = at.nest.close(opened, nexts)
            if at is not ev:
                ev.nest.settle()

        def mixed(first: Position, last: Position) -> None:
            """A part where masks differ among lanes: few positions, so it is kept small by fewer lanes."""
            if types or line.step != ev.n or ev.n <= NARROW:
                loop(first, last, {}, ev, line)
            elif first != last:
                inner = Evaluator(self.b, ev.nest.narrowed(NARROW), self.env, self.dummy)
                loop(first, last, {}, inner, line.narrowed(NARROW))

        parts = Parts(self, ev, line, masks, start)
        end = line.extent
        if not parts.intervals:
            loop(start, end, {}, ev, line)
            return values
        reach = parts.hull(needed) if needed is not None else None
        first, last = parts.whole()
        if parts.lower:
            mixed(parts.down(reach.low) if reach else start, first)
        loop(first, last, dict.fromkeys(parts.intervals, TRUE), ev, line)
        if reach is None and len(parts.intervals) == len(masks):
            dead = parts.least("smax", parts.up(parts.furthest()), last)
            mixed(last, dead)
            loop(dead, end, dict.fromkeys(parts.intervals, FALSE), ev, line)
        else:
            mixed(last, parts.up(reach.high) if reach else end)
        return values

    def masks(self, starts: list[Element]) -> list[Element]:
        """The masks of all loads in some expressions."""
        found: list[Element] = []
        for value, index in reachable(starts, self):
            op = value.op
            if op is not None and op.name == "tt.load" and len(op.operands) > 1 and not self.is_end(value):
                element = (op.operands[1], index)
                if element not in found:
                    found.append(element)
        return found

    def width(self, shape: tuple[int, ...], values: Sequence[Value], lane_dim: int) -> int:
        """Lanes: 32 as a rule.

        16 where 8-byte data is in play or the expression is large (it would spill registers); 8 where lanes stride
        through memory (their cache lines would push one another out before the next step uses them) and where the
        code is to be small.
        """
        index = full_index(shape)
        wide, large = False, 0
        for value, _ in reachable([(v, index) for v in values], self):
            op = value.op
            data = op is None or op.name in ("tt.load", *_WIDE) or self.is_end(value) or value.type.elem == "f64"
            wide = wide or (data and value.type.bits == 64 and value.type.elem != "ptr")
            large += 1
        if self.strided(shape, values, lane_dim):
            return NARROW
        if self.rare:
            return NARROW
        return 16 if wide or large > _LARGE else MAX_LANES

    def strided(self, shape: tuple[int, ...], values: Sequence[Value], lane_dim: int) -> bool:
        """Whether lanes along `lane_dim` would stride through memory."""
        return any(_slope(p, at, lane_dim + 1, self) not in (0, 1) for p, at in self.pointers(shape, values))

    def pointers(self, shape: tuple[int, ...], values: Sequence[Value]) -> list[Element]:
        """Where loads and stores of some expressions go, at the element itself."""
        index = full_index(shape)
        found = [(v, index) for v in values if v.type.elem == "ptr"]
        for value, at in reachable([(v, index) for v in values], self):
            if value.op is not None and value.op.name == "tt.load" and not self.is_end(value):
                found.append((value.op.operands[0], at))
        return found

    def lane_dim(self, shape: tuple[int, ...], values: Sequence[Value]) -> int:
        """The dimension that lanes run along: the last, unless memory is contiguous along another only."""
        last = len(shape) - 1
        if last <= 0:
            return last
        votes = [0] * len(shape)
        for pointer, at in self.pointers(shape, values):
            for d, size in enumerate(shape):
                if size >= NARROW and _slope(pointer, at, d + 1, self) == 1:
                    votes[d] += 1
        best = max(range(len(shape)), key=lambda d: (votes[d], d))
        return best if votes[best] > votes[last] else last


_WIDE = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"}


def _slope(value: Value, index: Index, var: int, ends: Ends) -> int | None:
    """How far a pointer moves with variable `var`: 0, 1 or more (None), read off the text, wrap-around aside."""
    if not value.type.shape or not any(v == var for dim in index for v, _ in dim):
        return 0
    origin = ends.origin(value)
    if origin is not None:
        return _slope(origin, index, var, ends)
    op = value.op
    if op is None or ends.is_end(value):
        return None
    if op.name in ("tt.splat", "arith.constant"):
        return 0
    if op.name == "tt.make_range":
        return 1 if index[0] and index[0][0] == (var, 0) else None
    below = [_slope(v, i, var, ends) for v, i in parts_of(value, index, ends)]
    if any(s is None for s in below):
        return None
    total = [s for s in below if s is not None]
    if op.name in ("arith.addi", "tt.addptr"):
        return sum(total)
    if op.name == "arith.muli":
        return None if any(total) else 0
    return total[0] if len(total) == 1 else None
