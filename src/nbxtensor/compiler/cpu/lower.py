"""Walks a kernel in program order and emits its loop nests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbxtensor.compiler.cpu.arith import ELEMENTWISE, reject
from nbxtensor.compiler.cpu.builder import Builder, memory_type
from nbxtensor.compiler.cpu.expr import Buffer, Environment, Evaluator
from nbxtensor.compiler.cpu.index import CONST, LANE, Dim, Index, flatten, log2, var_dim
from nbxtensor.compiler.cpu.ir import Block, Function, Op, Type, Value
from nbxtensor.compiler.cpu.lanes import Number, Pointer, Uniform, int_const
from nbxtensor.compiler.cpu.memory import FALSE, TRUE
from nbxtensor.compiler.cpu.nest import Nest, Plan, plan
from nbxtensor.compiler.cpu.reach import Element, Ends, is_deferred, reachable
from nbxtensor.compiler.cpu.reach import operands as parts_of
from nbxtensor.compiler.cpu.schedule import Schedule, full_index, schedule
from nbxtensor.compiler.cpu.split import Interval, Splitter

MAX_LANES = 32
MAX_SCRATCH = 4 << 20
_AXES = {"x": 0, "y": 1, "z": 2}

Handler = Callable[["Lowering", Op], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the emitter of an operation that is not a plain expression."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


class Lowering:
    """State of one function while it is emitted."""

    def __init__(self, function: Function, ids: Sequence[str], grid: Sequence[str]) -> None:
        self.function = function
        self.b = Builder()
        self.schedule: Schedule = schedule(function)
        self.env = Environment()
        self.dummy = self.b.scratch(64)
        self.filling: set[Value] = set()
        self.ids = ids
        self.grid = grid

    # --- program order

    def block(self, block: Block) -> None:
        """Emit all operations but the terminator."""
        for op in block.ops[:-1]:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.name in HANDLERS:
            HANDLERS[op.name](self, op)
        elif is_deferred(op) or op.name in ELEMENTWISE:
            for value in op.results:
                if value.type.shape:
                    if value in self.schedule.materialised:
                        self.materialise(value)
                else:
                    self.scalar(op, value)
        else:
            reject(op)

    def scalar(self, op: Op, value: Value) -> None:
        """An operation on scalars is emitted where it stands."""
        result = Evaluator(self.b, Nest(self.b, 1), self.env, self.dummy).compute(value, ())
        if isinstance(result, Pointer):
            assert isinstance(result.offset, Uniform)
            elem = "i8" if result.elem == "i1" else result.elem
            base = self.b.gep(memory_type(elem), result.base, result.offset.v)
            result = Pointer(result.elem, base, int_const(0, "i64"))
        assert isinstance(result, (Uniform, Pointer))
        self.env.scalars[value] = result

    # --- buffers

    def buffer(self, type: Type, op: Op | None = None) -> Buffer:
        """Scratch memory for a tensor."""
        buffer = Buffer(self.b.scratch(type.size * type.itemsize), type)
        if self.b.stack_bytes > MAX_SCRATCH:
            problem = f"the tensors of this kernel need more than {MAX_SCRATCH >> 20} MiB of scratch memory on the CPU"
            assert op is not None
            raise op.error(problem, "use smaller tiles")
        return buffer

    def materialise(self, value: Value) -> Buffer:
        """Evaluate an expression into memory."""
        buffer = self.buffer(value.type, value.op)
        self.fill([(value, buffer)])
        self.env.storage[value] = buffer
        return buffer

    def fill(self, pairs: Sequence[tuple[Value, Buffer]]) -> None:
        """Evaluate expressions of one shape into buffers, all in one nest."""
        shape = pairs[0][0].type.shape

        def body(ev: Evaluator, index: Index) -> None:
            values = [self.plain(ev, value, index) for value, _ in pairs]
            for (_, buffer), number in zip(pairs, values, strict=True):
                elem = "i64" if buffer.type.elem == "ptr" else buffer.type.elem
                where = Pointer(elem, buffer.address, ev.nest.number(flatten(index)))
                ev.memory.store(where, number, TRUE)

        self.filling = {value for value, _ in pairs if value not in self.env.storage}
        self.every(shape, [value for value, _ in pairs], body)
        self.filling = set()

    @staticmethod
    def plain(ev: Evaluator, value: Value, index: Index) -> Number:
        """A value as numbers; pointers become addresses."""
        result = ev.value(value, index)
        return ev.to_address(result) if isinstance(result, Pointer) else result

    # --- nests

    def is_end(self, value: Value) -> bool:
        return value not in self.filling and self.schedule.is_end(value)

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
            layout = plan(shape, self.width(shape, values), self.lane_dim(shape, [*pointers, *values]), first)
        nest = Nest(self.b, layout.lanes)
        for v, (counter, size) in enumerate(outer):
            nest.fix(v + 1, counter, size)
        index = (*(var_dim(v + 1, size) for v, (_, size) in enumerate(outer)), *layout.index)
        ev = Evaluator(self.b, nest, self.env, self.dummy)
        loops = [
            nest.open(first + v, "0", str(layout.extents[v]), layout.steps[v], layout.extents[v])
            for v in range(len(layout.extents) - 1)
        ]

        def step(carried: list[str]) -> list[str]:
            body(ev, index)
            return carried

        if layout.extents:
            own = [(m, index) for m in masks]
            elements = self.masks([(v, index) for v in values])
            elements += [e for e in own if e not in elements]
            line = Line(first + len(layout.extents) - 1, layout.extents[-1], layout.steps[-1], index)
            self.split(ev, line, elements, step, own if skip else None)
        else:
            step([])
            nest.settle()
        for loop in reversed(loops):
            nest.close(loop, "0")

    def split(
        self,
        ev: Evaluator,
        line: Line,
        masks: list[Element],
        body: Callable[[list[str]], list[str]],
        needed: list[Element] | None = None,
        carried: Sequence[tuple[str, str]] = (),
        start: int = 0,
    ) -> list[str]:
        """The innermost loop, split into parts by masks; returns the carried values after it.

        Parameters
        ----------
        needed
            If given, positions where none of these masks hold are left out.
        carried
            Type and first value of what `body` hands from one iteration to the next.
        start
            First position.
        """
        nest = ev.nest
        types = [t for t, _ in carried]
        values = [v for _, v in carried]

        def loop(first: str, last: str, known: dict[Element, Uniform]) -> None:
            nonlocal values
            if first == last:
                return
            opened = nest.open(line.var, first, last, line.step, line.extent, list(zip(types, values, strict=True)))
            ev.known = known
            nexts = body(list(opened.phis))
            ev.known = {}
            values = nest.close(opened, first, nexts)

        parts = Parts(self, ev, line, masks, start)
        end = str(line.extent)
        if not parts.intervals:
            loop(str(start), end, {})
            return values
        reach = parts.hull(needed) if needed is not None else None
        first, last = parts.whole()
        if parts.lower:
            loop(parts.down(reach.low) if reach else str(start), first, {})
        loop(first, last, dict.fromkeys(parts.intervals, TRUE))
        if reach is None and len(parts.intervals) == len(masks):
            dead = parts.up(parts.furthest())
            loop(last, dead, {})
            loop(dead, end, dict.fromkeys(parts.intervals, FALSE))
        else:
            loop(last, parts.up(reach.high) if reach else end, {})
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

    def width(self, shape: tuple[int, ...], values: Sequence[Value]) -> int:
        """Lanes: 32, or 16 where 8-byte data is in play."""
        index = full_index(shape)
        wide = False
        for value, _ in reachable([(v, index) for v in values], self):
            op = value.op
            data = op is None or op.name in ("tt.load", *_WIDE) or self.is_end(value) or value.type.elem == "f64"
            wide = wide or (data and value.type.bits == 64 and value.type.elem != "ptr")
        return 16 if wide else MAX_LANES

    def lane_dim(self, shape: tuple[int, ...], values: Sequence[Value]) -> int:
        """The dimension that lanes run along: the last, unless memory is contiguous along another only."""
        last = len(shape) - 1
        if last <= 0:
            return last
        index = full_index(shape)
        votes = [0] * len(shape)
        pointers = [(v, index) for v in values if v.type.elem == "ptr"]
        for value, at in reachable([(v, index) for v in values], self):
            if value.op is not None and value.op.name == "tt.load" and not self.is_end(value):
                pointers.append((value.op.operands[0], at))
        for pointer, at in pointers:
            for d, size in enumerate(shape):
                if size >= 8 and unit_stride(pointer, at, d + 1, self):
                    votes[d] += 1
        best = max(range(len(shape)), key=lambda d: (votes[d], d))
        return best if votes[best] > votes[last] else last


_WIDE = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"}


def unit_stride(value: Value, index: Index, var: int, ends: Ends) -> bool:
    """Whether a pointer moves by one element with variable `var` (read off the text, wrap-around aside)."""
    return _slope(value, index, var, ends) == 1


def _slope(value: Value, index: Index, var: int, ends: Ends) -> int | None:
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


class Parts:
    """The parts that masks split a loop into."""

    def __init__(self, low: Lowering, ev: Evaluator, line: Line, masks: list[Element], start: int) -> None:
        self.b = ev.b
        self.extent, self.step, self.start = line.extent, line.step, start
        self.splitter = Splitter(ev, low, line.bits(), self.extent)
        self.intervals: dict[Element, Interval] = {}
        for mask in masks:
            found = self.splitter.interval(*mask)
            if found is not None:
                self.intervals[mask] = found
        self.lower = any(i.low != "0" for i in self.intervals.values())

    def whole(self) -> tuple[str, str]:
        """First and last position between which all masks hold, in whole steps."""
        low, high = str(self.start), str(self.extent)
        for interval in self.intervals.values():
            low = self.splitter.pick("smax", low, interval.low)
            high = self.splitter.pick("smin", high, interval.high)
        first, last = self.up(low), self.down(high)
        return first, (last if first == "0" else self.splitter.pick("smax", first, last))

    def hull(self, masks: list[Element]) -> Interval:
        """Where at least one of `masks` may hold."""
        low, high = str(self.extent), "0"
        for mask in masks:
            interval = self.intervals.get(mask, Interval("0", str(self.extent)))
            low = interval.low if low == str(self.extent) else self.least("smin", low, interval.low)
            high = interval.high if high == "0" else self.least("smax", high, interval.high)
        return Interval(low, high)

    def furthest(self) -> str:
        high = "0"
        for interval in self.intervals.values():
            high = interval.high if high == "0" else self.least("smax", high, interval.high)
        return high

    def least(self, how: str, x: str, y: str) -> str:
        return x if x == y else self.b.call("i64", f"llvm.{how}.i64", ("i64", x), ("i64", y))

    def up(self, position: str) -> str:
        if self.step == 1:
            return position
        if position[0] != "%":
            return str(-(-int(position) // self.step) * self.step)
        return self.down(self.b.put(f"add i64 {position}, {self.step - 1}"))

    def down(self, position: str) -> str:
        if self.step == 1:
            return position
        if position[0] != "%":
            return str(int(position) // self.step * self.step)
        return self.b.put(f"and i64 {position}, {-self.step}")


@handles("tt.get_program_id")
def program_id(low: Lowering, op: Op) -> None:
    v = low.b.put(f"trunc i64 {low.ids[_AXES[op.attrs['head']]]} to i32")
    low.env.scalars[op.result] = Uniform("i32", v, None, 0, 2**31 - 1)


@handles("tt.get_num_programs")
def num_programs(low: Lowering, op: Op) -> None:
    v = low.b.put(f"trunc i64 {low.grid[_AXES[op.attrs['head']]]} to i32")
    low.env.scalars[op.result] = Uniform("i32", v, None, 1, 2**31 - 1)


@handles("tt.store")
def store(low: Lowering, op: Op) -> None:
    pointer = op.operands[0]
    if not pointer.type.shape:
        ev = Evaluator(low.b, Nest(low.b, 1), low.env, low.dummy)
        mask = ev.number(op.operands[2], ()) if len(op.operands) > 2 else TRUE
        where = ev.value(pointer, ())
        assert isinstance(where, Pointer)
        ev.memory.store(where, low.plain(ev, op.operands[1], ()), mask)
        return
    group = low.schedule.groups.get(op)
    if group is None:
        return  # emitted with the last store of its group

    def body(ev: Evaluator, index: Index) -> None:
        ready: list[tuple[Pointer, Number, Number]] = []
        for one in group:
            mask = ev.number(one.operands[2], index) if len(one.operands) > 2 else TRUE
            if mask == FALSE:
                continue
            where = ev.value(one.operands[0], index)
            assert isinstance(where, Pointer)
            ready.append((where, low.plain(ev, one.operands[1], index), mask))
        for where, number, mask in ready:
            ev.memory.store(where, number, mask)

    values = [o for one in group for o in one.operands]
    masks = [one.operands[2] for one in group if len(one.operands) > 2]
    pointers = [one.operands[0] for one in group]
    low.every(pointer.type.shape, values, body, masks, pointers, skip=len(masks) == len(group))


@handles("tt.return", "gpu.barrier", "ttg.barrier", "ttg.local_barrier", "llvm.intr.assume")
def nothing(low: Lowering, op: Op) -> None:
    del low, op


def zero_index(shape: tuple[int, ...]) -> Index:
    return tuple(((CONST, 0),) * log2(size) for size in shape)
