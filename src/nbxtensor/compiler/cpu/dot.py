"""``tt.dot``: per output element one ascending chain of fused multiply-adds along K, starting from the accumulator.

Both operands are packed into scratch memory (which also widens 16-bit inputs and evaluates masks): A row by row, B in
panels of a few vectors' width. A microkernel keeps a block of the accumulator in registers for the whole of K. Blocking
differs between CPU levels, the order of additions to one element does not.
"""

from __future__ import annotations

from collections.abc import Callable

from nbxtensor.compiler.cpu.builder import Builder, llvm_type
from nbxtensor.compiler.cpu.casts import Casts
from nbxtensor.compiler.cpu.control import uses
from nbxtensor.compiler.cpu.expr import Buffer, Evaluator
from nbxtensor.compiler.cpu.index import Dim, Index, log2
from nbxtensor.compiler.cpu.ir import Op, Type, Value
from nbxtensor.compiler.cpu.lanes import Number, Pointer, Uniform, Vector
from nbxtensor.compiler.cpu.lower import Lowering, handles
from nbxtensor.compiler.cpu.memory import TRUE
from nbxtensor.compiler.cpu.nest import plan

_ROWS = 4
_UNROLL = 4
_PANEL_BYTES = 64


@handles("tt.dot")
def dot(low: Lowering, op: Op) -> None:
    Dot(low, op).run()


class Counter:
    """A counted loop outside of any nest."""

    def __init__(self, b: Builder, stop: int, step: int = 1) -> None:
        self.b = b
        self.step = step
        self.entry = b.cur
        self.header, inside, self.after = b.block("loop"), b.block("in"), b.block("out")
        self.name = b.name()
        b.jump(self.header)
        b.cur = self.header
        b.branch(b.put(f"icmp ult i64 {self.name}, {stop}"), inside, self.after)
        b.cur = inside

    def close(self, carried: list[tuple[str, str, str, str]] | None = None) -> None:
        """End the loop; `carried` are (name, type, first, next)."""
        following = self.b.put(f"add nuw nsw i64 {self.name}, {self.step}")
        latch = self.b.cur
        self.b.jump(self.header)
        self.header.lines[0:0] = [
            f"{name} = phi {type} [ {first}, %{self.entry.label} ], [ {value}, %{latch.label} ]"
            for name, type, first, value in [(self.name, "i64", "0", following), *(carried or [])]
        ]
        self.b.cur = self.after


class Dot:
    def __init__(self, low: Lowering, op: Op) -> None:
        self.low, self.op, self.b = low, op, low.b
        a, b, _ = op.operands
        *batch, self.m, self.k = a.type.shape
        self.n = b.type.shape[-1]
        self.batch = batch[0] if batch else 0
        self.elem = op.result.type.elem
        inputs = {a.type.elem, b.type.elem}
        good = {"f32": {"f32", "f16", "bf16"}, "f64": {"f64"}, "i32": {"i8", "i32"}}
        if not inputs <= good.get(self.elem, set()):
            problem = f"a product of {a.type.elem} and {b.type.elem} into {self.elem} is not supported on the CPU"
            raise op.error(problem)
        self.size = Type(self.elem).itemsize
        self.panel = min(self.n, _PANEL_BYTES // self.size)
        self.rows = min(self.m, _ROWS)

    def accumulator(self) -> Buffer:
        """The accumulator in memory, ready to be updated in place."""
        low, start = self.low, self.op.operands[2]
        stored = low.env.storage.get(start)
        if isinstance(stored, Buffer) and uses(low, start) == 1:
            return low.adopt(stored)
        buffer = low.buffer(start.type, self.op)
        low.fill([(start, buffer)])
        return buffer

    def run(self) -> None:
        low = self.low
        result = self.accumulator()
        left = low.buffer(Type(self.elem, (self.m, self.k)), self.op)
        right = low.buffer(Type(self.elem, (self.k, self.n)), self.op)
        loop = Counter(self.b, self.batch) if self.batch else None
        outer = [(loop.name, self.batch)] if loop else []
        self.pack(self.op.operands[0], left, outer, self.rows_first)
        self.pack(self.op.operands[1], right, outer, self.panels)
        address = result.address
        if loop:
            offset = self.b.put(f"mul i64 {loop.name}, {self.m * self.n}")
            address = self.b.gep(llvm_type(self.elem), address, offset)
        self.multiply(address, left.address, right.address)
        if loop:
            loop.close()
        low.release(left)
        low.release(right)
        low.env.storage[self.op.result] = result

    # --- packing

    def rows_first(self, index: Index) -> Dim:
        return (*index[-1], *index[-2])

    def panels(self, index: Index) -> Dim:
        """Panels of `panel` columns; in a panel, row after row."""
        k, n = index[-2], index[-1]
        cut = log2(self.panel)
        return (*n[:cut], *k, *n[cut:])

    def pack(self, value: Value, buffer: Buffer, outer: list[tuple[str, int]], order: Callable[[Index], Dim]) -> None:
        """Evaluate an operand into scratch memory, widened."""
        low = self.low
        shape = value.type.shape[-2:]
        first = len(outer) + 1
        lane_dim = low.lane_dim(value.type.shape, [value])
        lanes = min(low.width(value.type.shape, [value], lane_dim), 128 // self.size)
        if order == self.panels:
            lanes = min(lanes, self.panel)
        across = low.strided(value.type.shape, [value], lane_dim)
        layout = plan(shape, lanes, max(lane_dim - len(outer), 0), first, across=across)
        elem = value.type.elem

        def body(ev: Evaluator, index: Index) -> None:
            number = self.widen(ev, ev.number(value, index), elem)
            ev.memory.store(Pointer(self.elem, buffer.address, ev.nest.number(order(index))), number, TRUE)

        low.every(shape, [value], body, outer=outer, layout=layout)

    def widen(self, ev: Evaluator, number: Number, elem: str) -> Number:
        if elem == self.elem:
            return number
        n = 0 if isinstance(number, Uniform) else ev.n
        v = number.v if isinstance(number, Uniform) else ev.lanes.vector(number, ev.n)
        casts = Casts(self.b, n)
        v = casts.cast("sext", elem, v, self.elem) if elem[0] == "i" else casts.widen(elem, v, self.elem)
        return Vector(self.elem, v) if n else Uniform(self.elem, v)

    # --- the product

    def multiply(self, out: str, left: str, right: str) -> None:
        """``out += left @ right`` on packed operands."""
        b, type = self.b, llvm_type(self.elem)
        vector = llvm_type(self.elem, self.panel)
        columns = Counter(b, self.n, self.panel)
        panel = b.gep(type, right, b.put(f"mul nuw nsw i64 {columns.name}, {self.k}"))
        rows = Counter(b, self.m, self.rows)
        a = b.gep(type, left, b.put(f"mul nuw nsw i64 {rows.name}, {self.k}"))
        offset = b.put(f"add i64 {b.put(f'mul nuw nsw i64 {rows.name}, {self.n}')}, {columns.name}")
        corner = b.gep(type, out, offset)
        places = [b.gep(type, corner, str(r * self.n)) for r in range(self.rows)]
        firsts = [b.put(f"load {vector}, ptr {p}, align {self.size}") for p in places]
        unroll = min(_UNROLL, self.k)
        depth = Counter(b, self.k, unroll)
        names = [b.name() for _ in firsts]
        totals = list(names)
        at_b = b.gep(type, panel, b.put(f"mul nuw nsw i64 {depth.name}, {self.panel}"))
        at_a = b.gep(type, a, depth.name)
        for k in range(unroll):
            row = b.put(f"load {vector}, ptr {b.gep(type, at_b, str(k * self.panel))}, align {self.size}")
            for r in range(self.rows):
                one = b.put(f"load {type}, ptr {b.gep(type, at_a, str(r * self.k + k))}, align {self.size}")
                totals[r] = self.step(b.splat(type, self.panel, one), row, totals[r])
        depth.close([(n, vector, f, t) for n, f, t in zip(names, firsts, totals, strict=True)])
        for name, place in zip(names, places, strict=True):
            b.do(f"store {vector} {name}, ptr {place}, align {self.size}")
        rows.close()
        columns.close()

    def step(self, a: str, row: str, total: str) -> str:
        vector = llvm_type(self.elem, self.panel)
        if self.elem == "i32":
            return self.b.put(f"add {vector} {total}, {self.b.put(f'mul {vector} {a}, {row}')}")
        name = f"llvm.fma.v{self.panel}{self.elem}"
        return self.b.call(vector, name, (vector, a), (vector, row), (vector, total))
