"""``tt.reduce``: reductions in a fixed order.

Along the last axis (or where the result has few elements) the axis is cut into vectors of L elements, L fixed by
the element size alone: lane l combines elements l, l + L, l + 2 L, ... in ascending order, then the lanes are
combined, first half with second half, until one is left. Along other axes each result combines its elements in
ascending order.
Reductions over two elements are plain expressions and do not come here.
"""

from __future__ import annotations

from nbxtensor.compiler.cpu.builder import Builder, float_literal, llvm_type
from nbxtensor.compiler.cpu.expr import Evaluator
from nbxtensor.compiler.cpu.index import CONST, LANE, Dim, Index, flatten, log2
from nbxtensor.compiler.cpu.ir import Block, Op, Value
from nbxtensor.compiler.cpu.lanes import Lanes, Number, Pointer, Uniform, Vector, int_range
from nbxtensor.compiler.cpu.lower import Lowering, handles
from nbxtensor.compiler.cpu.memory import TRUE
from nbxtensor.compiler.cpu.nest import Nest, plan
from nbxtensor.compiler.cpu.parts import Line
from nbxtensor.compiler.cpu.views import insert, is_pair_reduce

_MIN_RESULTS = 8


def lanes_for(op: Op) -> int:
    """Lanes of a reduction along its vector axis: fixed by the widest operand, never by the machine."""
    return 16 if any(o.type.bits == 64 for o in op.operands) else 32


def identity(block: Block) -> str | None:
    """The neutral element of a combine region of one operation, as an LLVM literal."""
    if len(block.ops) != 2 or len(block.args) != 2 or list(block.terminator.operands) != [block.ops[0].result]:
        return None
    op = block.ops[0]
    if set(op.operands) != set(block.args):
        return None
    elem = block.args[0].type.elem
    if elem in ("f32", "f64"):
        value = _FLOAT.get(op.name)
        return None if value is None else float_literal(value)
    if elem[0] != "i" or elem == "i1":
        return None
    least, most = int_range(elem)
    integers = {"arith.maxsi": least, "arith.minsi": most, "arith.maxui": 0, "arith.minui": -1, **_INT}
    value = integers.get(op.name)
    return None if value is None else str(value)


_FLOAT = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": float("-inf"),
    "arith.minimumf": float("inf"),
    "arith.maxnumf": float("nan"),
    "arith.minnumf": float("nan"),
}
_INT = {"arith.addi": 0, "arith.ori": 0, "arith.xori": 0, "arith.andi": -1, "arith.muli": 1}


@handles("tt.reduce")
def reduce(low: Lowering, op: Op) -> None:
    if is_pair_reduce(op) and op.results[0].type.shape:
        for value in op.results:
            if value in low.schedule.materialised:
                low.materialise(value)
        return
    Reduction(low, op).run()


class Reduction:
    def __init__(self, low: Lowering, op: Op) -> None:
        self.low = low
        self.op = op
        self.b: Builder = low.b
        self.axis = op.int_attr("axis")
        self.shape = op.operands[0].type.shape
        self.extent = self.shape[self.axis]
        self.rest = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        self.elems = [o.type.elem for o in op.operands]
        self.buffers = [low.buffer(v.type, op) for v in op.results] if self.rest else []

    def run(self) -> None:
        results = 1
        for size in self.rest:
            results *= size
        lanes = lanes_for(self.op)
        last = self.axis == len(self.shape) - 1
        if results < _MIN_RESULTS or (last and self.extent >= lanes):
            with self.low.in_memory([o for o in self.op.operands if self.turned(o)]):
                self.along(min(lanes, self.extent))
        else:
            self.across(lanes)
        for value, buffer in zip(self.op.results, self.buffers, strict=False):
            self.low.env.storage[value] = buffer

    def turned(self, operand: Value) -> bool:
        """Whether an operand is contiguous along another dimension; then it is better transposed first."""
        low, shape = self.low, self.shape
        if low.is_end(operand) or not low.strided(shape, [operand], self.axis):
            return False
        return low.lane_dim(shape, [operand]) != self.axis

    def along(self, lanes: int) -> None:
        """Vectors along the reduced axis, one result at a time."""
        nest = Nest(self.b, lanes)
        ev = Evaluator(self.b, nest, self.low.env, self.low.dummy)
        outer = [nest.open(d + 1, 0, size, 1, size) for d, size in enumerate(self.rest) if size > 1]
        position: Index = tuple(tuple((d + 1, k) for k in range(log2(size))) for d, size in enumerate(self.rest))
        vector = tuple((LANE, k) for k in range(log2(lanes)))
        totals = self.accumulate(ev, position, vector, len(self.rest) + 1, lanes)
        while lanes > 1:
            half = lanes // 2
            smaller = Evaluator(self.b, Nest(self.b, half), self.low.env, self.low.dummy)
            args = [self.half(t, lanes, side) for side in (0, half) for t in totals]
            totals = [self.flat(v, half) for v in smaller.region(self.op.regions[0], args)]
            lanes = half
        self.finish(nest, position, totals)
        for loop in reversed(outer):
            nest.close(loop)

    def half(self, total: Vector | Uniform, lanes: int, start: int) -> Number:
        half = lanes // 2
        type = llvm_type(total.elem)
        if half == 1:
            return Uniform(total.elem, self.b.put(f"extractelement <2 x {type}> {total.v}, i64 {start}"))
        return Vector(total.elem, self.b.shuffle(type, lanes, total.v, "poison", range(start, start + half)))

    def flat(self, value: Number, lanes: int) -> Vector | Uniform:
        if lanes == 1:
            assert isinstance(value, Uniform)
            return value
        return Vector(value.elem, Lanes(self.b).vector(value, lanes))

    def finish(self, nest: Nest, position: Index, totals: list[Vector | Uniform]) -> None:
        """Write one result, or make it a scalar."""
        if not self.rest:
            for value, total in zip(self.op.results, totals, strict=True):
                assert isinstance(total, Uniform)
                self.low.env.scalars[value] = total
            return
        single = Nest.number(nest, flatten(position))
        ev = Evaluator(self.b, Nest(self.b, 1), self.low.env, self.low.dummy)
        for buffer, total in zip(self.buffers, totals, strict=True):
            ev.memory.store(Pointer(total.elem, buffer.address, single), total, TRUE)

    def across(self, lanes: int) -> None:
        """Vectors of results, one element of the axis at a time."""
        layout = plan(self.rest, lanes, len(self.rest) - 1)
        nest = Nest(self.b, layout.lanes)
        ev = Evaluator(self.b, nest, self.low.env, self.low.dummy)
        loops = [nest.open(v + 1, 0, extent, layout.steps[v], extent) for v, extent in enumerate(layout.extents)]
        totals = self.accumulate(ev, layout.index, (), len(loops) + 1, 1)
        where = nest.number(flatten(layout.index))
        for buffer, total in zip(self.buffers, totals, strict=True):
            ev.memory.store(Pointer(total.elem, buffer.address, where), total, TRUE)
        nest.settle()
        for loop in reversed(loops):
            nest.close(loop)

    def accumulate(self, ev: Evaluator, position: Index, vector: Dim, var: int, step: int) -> list[Vector | Uniform]:
        """Combine along the axis, `step` elements at a time; what is left has the lanes of `ev`."""
        bits = log2(self.extent)
        whole = vector + tuple((var, k) for k in range(len(vector), bits))
        index = insert(position, self.axis, whole)
        types = [llvm_type(e, ev.n if ev.n > 1 else 0) for e in self.elems]

        def pack(values: list[Number]) -> list[str]:
            if ev.n == 1:
                return [v.v for v in values if isinstance(v, Uniform)]
            return [ev.lanes.vector(v, ev.n) for v in values]

        def unpack(names: list[str]) -> list[Number]:
            kind = Uniform if ev.n == 1 else Vector
            return [kind(e, v) for e, v in zip(self.elems, names, strict=True)]

        neutral = identity(self.op.regions[0])
        first = 0
        if step == self.extent:
            totals = pack(self.read(ev, index))
        else:
            if neutral is not None:
                elem = llvm_type(self.elems[0])
                totals = [neutral if ev.n == 1 else f"splat ({elem} {neutral})"]
            else:
                start = vector + tuple((CONST, 0) for _ in range(len(vector), bits))
                totals = pack(self.read(ev, insert(position, self.axis, start)))
                first = step

            def body(_: Evaluator, at: Index, carried: list[str]) -> list[str]:
                values = self.read(ev, at)
                return pack(ev.region(self.op.regions[0], [*unpack(carried), *values]))

            masks = self.low.masks([(o, index) for o in self.op.operands])
            line = Line(var, self.extent, step, index)
            totals = self.low.split(ev, line, masks, body, None, list(zip(types, totals, strict=True)), first)
        return [v for v in unpack(totals) if isinstance(v, (Vector, Uniform))]

    def read(self, ev: Evaluator, index: Index) -> list[Number]:
        return [ev.number(o, index) for o in self.op.operands]
