"""``scf.for``, ``scf.if``, ``scf.while``: scalars become phis, tensors live in scratch memory across the edges."""

from __future__ import annotations

from collections.abc import Sequence

from nbxtensor.compiler.cpu.builder import Code, llvm_type
from nbxtensor.compiler.cpu.expr import Buffer, Shifted, constant
from nbxtensor.compiler.cpu.ir import Op, Value
from nbxtensor.compiler.cpu.lanes import Pointer, Uniform, int_const
from nbxtensor.compiler.cpu.lower import Lowering, handles
from nbxtensor.compiler.cpu.reach import reachable
from nbxtensor.compiler.cpu.schedule import full_index, uniform_scalar


def scalar_type(value: Value) -> str:
    return "ptr" if value.type.elem == "ptr" else llvm_type(value.type.elem)


def operand(low: Lowering, value: Value) -> str:
    """A scalar as an LLVM operand."""
    known = low.env.scalars[value]
    return known.base if isinstance(known, Pointer) else known.v


def bind(low: Lowering, value: Value, name: str) -> None:
    """Make `name` the scalar `value`."""
    if value.type.elem == "ptr":
        low.env.scalars[value] = Pointer(value.type.pointee, name, int_const(0, "i64"))
    else:
        low.env.scalars[value] = Uniform(value.type.elem, name)


def fill_all(low: Lowering, pairs: Sequence[tuple[Value, Buffer]]) -> None:
    """Evaluate expressions into buffers that none of them reads, one nest for each shape."""
    by_shape: dict[tuple[int, ...], list[tuple[Value, Buffer]]] = {}
    for value, buffer in pairs:
        by_shape.setdefault(value.type.shape, []).append((value, buffer))
    for group in by_shape.values():
        low.fill(group)


def assign(low: Lowering, pairs: Sequence[tuple[Value, Buffer]], op: Op) -> None:
    """Evaluate expressions into buffers that they may read: all read the old contents."""
    pairs = [(v, b) for v, b in pairs if low.env.storage.get(v) != b]
    if not pairs:
        return
    if clash(low, pairs):
        fresh = [(v, b, low.buffer(v.type, op)) for v, b in pairs]
        fill_all(low, [(v, t) for v, _, t in fresh])
        for value, buffer, temporary in fresh:
            nbytes = value.type.size * value.type.itemsize
            low.b.declarations["llvm.memcpy.p0.p0.i64"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
            moved = f"ptr {buffer.address}, ptr {temporary.address}, i64 {nbytes}, i1 false"
            low.b.do(f"call void @llvm.memcpy.p0.p0.i64({moved})")
            low.release(temporary)
    else:
        fill_all(low, pairs)


def clash(low: Lowering, pairs: Sequence[tuple[Value, Buffer]]) -> bool:
    """Whether an expression reads a buffer elsewhere than where the same nest writes it."""
    shapes = {buffer.address: buffer.type.shape for _, buffer in pairs}
    for value, _ in pairs:
        index = full_index(value.type.shape)
        for part, at in reachable([(value, index)], low):
            stored = low.env.storage.get(part)
            if isinstance(stored, Buffer) and stored.address in shapes:
                if at != index or shapes[stored.address] != value.type.shape:
                    return True
            elif part.op is not None and part.op.name == "tt.gather":
                source = low.env.storage.get(part.op.operands[0])
                if isinstance(source, Buffer) and source.address in shapes:
                    return True
    return False


def uses(low: Lowering, value: Value) -> int:
    return sum(o is value for op in low.function.body.walk() for o in op.operands)


class Carried:
    """What a loop hands from one iteration to the next."""

    def __init__(self, low: Lowering, op: Op, args: Sequence[Value], inits: Sequence[Value]) -> None:
        self.low = low
        self.op = op
        self.phis: list[tuple[Value, str, str]] = []
        self.offsets: list[tuple[int, str, str, list[Value]]] = []
        self.buffers: list[tuple[int, Buffer]] = []
        fresh: list[tuple[Value, Buffer]] = []
        for i, (arg, init) in enumerate(zip(args, inits, strict=True)):
            if not arg.type.shape:
                self.phis.append((arg, low.b.name(), operand(low, init)))
            elif arg in low.schedule.inductive:
                elem = "i64" if arg.type.elem == "ptr" else arg.type.elem
                origin, steps = low.schedule.inductive[arg]
                name = low.b.name()
                self.offsets.append((i, name, elem, list(steps)))
                low.env.storage[arg] = Shifted(origin, Uniform(elem, name))
            else:
                stored = low.env.storage.get(init)
                if isinstance(stored, Buffer) and uses(low, init) == 1:
                    buffer = low.adopt(stored)
                else:
                    buffer = low.buffer(arg.type, op)
                    fresh.append((init, buffer))
                self.buffers.append((i, buffer))
                low.env.storage[arg] = buffer
        fill_all(low, fresh)
        self.scalar_positions = [i for i, a in enumerate(args) if not a.type.shape]
        for arg, name, _ in self.phis:
            bind(low, arg, name)

    def step(self, value: Value, elem: str) -> Uniform:
        """A step of an inductive tensor, in the type of its offset."""
        uniform = uniform_scalar(value)
        assert uniform is not None
        assert uniform.op is not None
        if uniform.op.name == "arith.constant":
            scalar = constant(uniform.op, uniform.type.elem)
        else:
            found = self.low.env.scalars[uniform.op.operands[0]]
            assert isinstance(found, Uniform)
            scalar = found
        from nbxtensor.compiler.cpu.lanes import Integers

        ints = Integers(self.low.b)
        return ints.extend(scalar, elem, True)

    def advance(self, yields: Sequence[Value]) -> list[tuple[str, str, str, str]]:
        """At the end of the body: the phis as (name, type, first, next)."""
        assign(self.low, [(yields[i], buffer) for i, buffer in self.buffers], self.op)
        found: list[tuple[str, str, str, str]] = []
        for i, (arg, name, first) in zip(self.scalar_positions, self.phis, strict=True):
            found.append((name, scalar_type(arg), first, operand(self.low, yields[i])))
        for _, name, elem, steps in self.offsets:
            total = name
            for value in steps:
                total = self.low.b.put(f"add {elem} {total}, {self.step(value, elem).v}")
            found.append((name, elem, "0", total))
        return found

    def results(self, values: Sequence[Value]) -> None:
        """Bind the results of the loop."""
        for i, (_, name, _) in zip(self.scalar_positions, self.phis, strict=True):
            bind(self.low, values[i], name)
        for i, name, elem, _ in self.offsets:
            origin, _ = self.low.schedule.inductive[values[i]]
            self.low.env.storage[values[i]] = Shifted(origin, Uniform(elem, name))
        for i, buffer in self.buffers:
            self.low.env.storage[values[i]] = buffer


def write_phis(header: Code, entry: Code, latch: Code, phis: Sequence[tuple[str, str, str, str]]) -> None:
    header.lines[0:0] = [
        f"{name} = phi {type} [ {first}, %{entry.label} ], [ {value}, %{latch.label} ]"
        for name, type, first, value in phis
    ]


@handles("scf.for")
def scf_for(low: Lowering, op: Op) -> None:
    b, body = low.b, op.regions[0]
    counter_value = body.args[0]
    elem = counter_value.type.elem
    start, stop, step = (operand(low, o) for o in op.operands[:3])
    carried = Carried(low, op, body.args[1:], op.operands[3:])
    entry, header, inside, after = b.cur, b.block("for"), b.block("do"), b.block("done")
    counter = b.name()
    b.jump(header)
    b.cur = header
    compare = "ult" if op.attrs["unsigned"] else "slt"
    b.branch(b.put(f"icmp {compare} {elem} {counter}, {stop}"), inside, after)
    b.cur = inside
    low.env.scalars[counter_value] = counter_facts(low, op, counter)
    low.block(body)
    phis = carried.advance(body.terminator.operands)
    following = b.put(f"add {elem} {counter}, {step}")
    latch = b.cur
    b.jump(header)
    write_phis(header, entry, latch, [(counter, elem, start, following), *phis])
    b.cur = after
    carried.results(op.results)


def counter_facts(low: Lowering, op: Op, name: str) -> Uniform:
    """Bounds and low zero bits of a loop counter."""
    start, _, step = (low.env.scalars[o] for o in op.operands[:3])
    assert isinstance(start, Uniform)
    assert isinstance(step, Uniform)
    from nbxtensor.compiler.cpu.lanes import bounds

    least = bounds(start)[0] if not op.attrs["unsigned"] else None
    return Uniform(start.elem, name, None, least, None, min(start.zeros, step.zeros))


@handles("scf.if")
def scf_if(low: Lowering, op: Op) -> None:
    b = low.b
    condition = operand(low, op.operands[0])
    buffers = {i: low.buffer(v.type, op) for i, v in enumerate(op.results) if v.type.shape}
    yes, no, after = b.block("then"), b.block("else"), b.block("fi")
    b.branch(condition, yes, no)
    ends: list[tuple[Code, list[str]]] = []
    for code, block in zip((yes, no), [*op.regions, None][:2], strict=True):
        b.cur = code
        yielded: Sequence[Value] = ()
        if block is not None:
            low.block(block)
            yielded = block.terminator.operands
            fill_all(low, [(yielded[i], buffer) for i, buffer in buffers.items()])
        b.jump(after)
        ends.append((b.cur, [operand(low, v) for v in yielded if not v.type.shape]))
    b.cur = after
    at = 0
    for i, value in enumerate(op.results):
        if value.type.shape:
            low.env.storage[value] = buffers[i]
            continue
        sources = ", ".join(f"[ {values[at]}, %{code.label} ]" for code, values in ends)
        bind(low, value, b.put(f"phi {scalar_type(value)} {sources}"))
        at += 1


@handles("scf.while")
def scf_while(low: Lowering, op: Op) -> None:
    b = low.b
    before, inside = op.regions
    carried = Carried(low, op, before.args, op.operands)
    entry, header, body, after = b.cur, b.block("while"), b.block("do"), b.block("done")
    b.jump(header)
    b.cur = header
    low.block(before)
    condition = before.terminator
    forwarded = condition.operands[1:]
    pairs: list[tuple[Value, Buffer]] = []
    for argument, result, value in zip(inside.args, op.results, forwarded, strict=True):
        if argument.type.shape:
            buffer = low.buffer(argument.type, op)
            pairs.append((value, buffer))
            low.env.storage[argument] = low.env.storage[result] = buffer
        else:
            low.env.scalars[argument] = low.env.scalars[result] = low.env.scalars[value]
    fill_all(low, pairs)
    b.branch(operand(low, condition.operands[0]), body, after)
    b.cur = body
    low.block(inside)
    phis = carried.advance(inside.terminator.operands)
    latch = b.cur
    b.jump(header)
    write_phis(header, entry, latch, phis)
    b.cur = after
