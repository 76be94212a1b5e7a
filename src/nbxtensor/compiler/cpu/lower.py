"""Walks a kernel in program order and emits its loop nests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from nbxtensor.compiler.cpu.arith import ELEMENTWISE, reject
from nbxtensor.compiler.cpu.builder import Builder, memory_type
from nbxtensor.compiler.cpu.expr import Buffer, Evaluator
from nbxtensor.compiler.cpu.index import Index, flatten
from nbxtensor.compiler.cpu.ir import Block, Function, Op, Type, Value
from nbxtensor.compiler.cpu.lanes import Number, Pointer, Uniform, int_const
from nbxtensor.compiler.cpu.memory import TRUE
from nbxtensor.compiler.cpu.nest import Nest
from nbxtensor.compiler.cpu.reach import is_deferred
from nbxtensor.compiler.cpu.schedule import schedule
from nbxtensor.compiler.cpu.walk import Walker

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


class Lowering(Walker):
    """State of one function while it is emitted."""

    def __init__(self, function: Function, ids: Sequence[str], grid: Sequence[str]) -> None:
        super().__init__(Builder(), schedule(function))
        self.function = function
        self.free: dict[int, list[str]] = {}
        self.adopted: set[str] = set()
        self.ids = ids
        self.grid = grid

    # --- program order

    def block(self, block: Block) -> None:
        """Emit all operations but the terminator."""
        for op in block.ops[:-1]:
            self.op(op)
            for value in self.schedule.last_uses.get(op, ()):
                stored = self.env.storage.get(value)
                if isinstance(stored, Buffer):
                    self.release(stored)

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
        """Scratch memory for a tensor; what was released is used again."""
        nbytes = type.size * type.itemsize
        free = self.free.get(nbytes)
        if free:
            return Buffer(free.pop(), type)
        buffer = Buffer(self.b.scratch(nbytes), type)
        if self.b.stack_bytes > MAX_SCRATCH:
            problem = f"the tensors of this kernel need more than {MAX_SCRATCH >> 20} MiB of scratch memory on the CPU"
            assert op is not None
            raise op.error(problem, "use smaller tiles")
        return buffer

    def adopt(self, buffer: Buffer) -> Buffer:
        """Let another value take over `buffer`: the end of its first owner no longer releases it."""
        self.adopted.add(buffer.address)
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Nothing reads `buffer` any more."""
        if buffer.address not in self.adopted:
            self.free.setdefault(buffer.type.size * buffer.type.itemsize, []).append(buffer.address)

    def materialise(self, value: Value) -> Buffer:
        """Evaluate an expression into memory."""
        buffer = self.buffer(value.type, value.op)
        self.fill([(value, buffer)])
        self.env.storage[value] = buffer
        return buffer

    @contextmanager
    def in_memory(self, values: Sequence[Value], *, rare: bool = False) -> Generator[None, None, None]:
        """Have expressions in scratch memory for a while. Code that is `rare` is kept small."""
        saved = dict(self.env.storage), set(self.held), self.rare
        buffers = [self.materialise(value) for value in values]
        self.held.update(values)
        self.rare = rare or self.rare
        yield
        for buffer in buffers:
            self.release(buffer)
        self.env.storage, self.held, self.rare = saved

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


@handles("tt.get_program_id")
def program_id(low: Lowering, op: Op) -> None:
    v = low.b.put(f"trunc i64 {low.ids[_AXES[op.attrs['head']]]} to i32")
    low.env.scalars[op.result] = Uniform("i32", v, None, 0, 2**31 - 1)


@handles("tt.get_num_programs")
def num_programs(low: Lowering, op: Op) -> None:
    v = low.b.put(f"trunc i64 {low.grid[_AXES[op.attrs['head']]]} to i32")
    low.env.scalars[op.result] = Uniform("i32", v, None, 1, 2**31 - 1)


@handles("tt.return", "gpu.barrier", "ttg.barrier", "ttg.local_barrier", "llvm.intr.assume")
def nothing(low: Lowering, op: Op) -> None:
    del low, op
