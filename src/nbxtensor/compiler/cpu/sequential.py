"""Operations that run one element after the other: scan, atomics, histogram."""

from __future__ import annotations

from nbxtensor.compiler.cpu.builder import llvm_type, memory_type
from nbxtensor.compiler.cpu.expr import Evaluator
from nbxtensor.compiler.cpu.index import Index, flatten, log2
from nbxtensor.compiler.cpu.ir import Op, Type
from nbxtensor.compiler.cpu.lanes import Number, Pointer, Uniform, Vector
from nbxtensor.compiler.cpu.lower import Lowering, handles
from nbxtensor.compiler.cpu.memory import TRUE
from nbxtensor.compiler.cpu.nest import Nest, plan
from nbxtensor.compiler.cpu.parts import Line
from nbxtensor.compiler.cpu.views import insert


@handles("tt.scan")
def scan(low: Lowering, op: Op) -> None:
    """Along the axis in ascending order (descending if reversed), with the lanes across."""
    axis = op.int_attr("axis")
    shape = op.operands[0].type.shape
    extent = shape[axis]
    rest = shape[:axis] + shape[axis + 1 :]
    backward = op.attrs["reverse"].startswith("true")
    buffers = [low.buffer(v.type, op) for v in op.results]
    lanes = 16 if any(o.type.bits == 64 for o in op.operands) else 32
    layout = plan(rest, lanes if rest else 1, len(rest) - 1)
    nest = Nest(low.b, layout.lanes)
    ev = Evaluator(low.b, nest, low.env, low.dummy)
    loops = [nest.open(v + 1, 0, e, layout.steps[v], e) for v, e in enumerate(layout.extents)]
    var = len(loops) + 1
    dim = tuple((var, k) for k in range(log2(extent)))
    elems = [o.type.elem for o in op.operands]
    wide = ev.n > 1
    types = [llvm_type(e, ev.n if wide else 0) for e in elems]

    def unpack(names: list[str]) -> list[Number]:
        return [(Vector if wide else Uniform)(e, v) for e, v in zip(elems, names, strict=True)]

    def pack(values: list[Number]) -> list[str]:
        return [ev.lanes.vector(v, ev.n) if wide else _scalar(v) for v in values]

    def place(index: Index, values: list[Number]) -> None:
        where = nest.number(flatten(index))
        for buffer, value in zip(buffers, values, strict=True):
            ev.memory.store(Pointer(value.elem, buffer.address, where), value, TRUE)

    edge = extent - 1 if backward else 0
    first = insert(layout.index, axis, tuple((-1, edge >> k & 1) for k in range(log2(extent))))
    start = pack([ev.number(o, first) for o in op.operands])
    place(first, unpack(start))

    def body(_: Evaluator, at: Index, carried: list[str]) -> list[str]:
        values = [ev.number(o, at) for o in op.operands]
        result = pack(ev.region(op.regions[0], [*unpack(carried), *values]))
        place(at, unpack(result))
        return result

    if extent > 1:
        index = insert(layout.index, axis, dim)
        carried = list(zip(types, start, strict=True))
        if backward:
            opened = nest.open(var, 1, extent, 1, extent, carried)
            back = low.b.put(f"sub i64 {extent - 1}, {opened.counter}")
            nest.counters[var] = back
            nest.close(opened, body(ev, index, list(opened.phis)))
        else:
            masks = low.masks([(o, index) for o in op.operands])
            low.split(ev, Line(var, extent, 1, index), masks, body, None, carried, 1)
    nest.settle()
    for loop in reversed(loops):
        nest.close(loop)
    for value, buffer in zip(op.results, buffers, strict=True):
        low.env.storage[value] = buffer


def _scalar(value: Number) -> str:
    assert isinstance(value, Uniform)
    return value.v


_RMW = {
    "add": "add",
    "fadd": "fadd",
    "max": "max",
    "min": "min",
    "umax": "umax",
    "umin": "umin",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
}


@handles("tt.atomic_rmw", "tt.atomic_cas")
def atomic(low: Lowering, op: Op) -> None:
    """Element by element, in order; the old values are the result."""
    result = op.result
    shape = result.type.shape
    buffer = low.buffer(result.type, op) if shape else None
    nest = Nest(low.b, 1)
    ev = Evaluator(low.b, nest, low.env, low.dummy)
    layout = plan(shape, 1, len(shape) - 1)
    loops = [nest.open(v + 1, 0, e, 1, e) for v, e in enumerate(layout.extents)]
    old = _atomic_element(low, op, ev, layout.index)
    if buffer is not None:
        where = nest.number(flatten(layout.index))
        ev.memory.store(Pointer(old.elem, buffer.address, where), old, TRUE)
    nest.settle()
    for loop in reversed(loops):
        nest.close(loop)
    if buffer is not None:
        low.env.storage[result] = buffer
    else:
        low.env.scalars[result] = old


def _atomic_element(low: Lowering, op: Op, ev: Evaluator, index: Index) -> Uniform:
    b = low.b
    pointer = ev.value(op.operands[0], index)
    assert isinstance(pointer, Pointer)
    assert isinstance(pointer.offset, Uniform)
    elem = op.result.type.elem
    type = llvm_type(elem)
    address = b.gep(memory_type(pointer.elem), pointer.base, pointer.offset.v)
    values = [_scalar(ev.number(o, index)) for o in op.operands[1:3]]
    if op.name == "tt.atomic_cas":
        if elem not in ("i16", "i32", "i64"):
            raise op.error(f"compare-and-swap of {elem} is not supported on the CPU")
        pair = b.put(f"cmpxchg ptr {address}, {type} {values[0]}, {type} {values[1]} acq_rel monotonic")
        return Uniform(elem, b.put(f"extractvalue {{ {type}, i1 }} {pair}, 0"))
    kind = op.attrs["head"].split(",")[0].strip()
    if kind not in _RMW or elem in ("f16", "bf16", "i1"):
        raise op.error(f"atomic {kind} of {elem} is not supported on the CPU")
    text = f"atomicrmw {_RMW[kind]} ptr {address}, {type} {values[0]} acq_rel"
    if len(op.operands) < 3:
        return Uniform(elem, b.put(text))
    before, then, after = b.cur, b.block("then"), b.block("after")
    b.branch(values[1], then, after)
    b.cur = then
    old = b.put(text)
    last = b.cur
    b.jump(after)
    b.cur = after
    zero = "0.0" if elem in ("f32", "f64") else "0"
    return Uniform(elem, b.put(f"phi {type} [ {zero}, %{before.label} ], [ {old}, %{last.label} ]"))


@handles("tt.histogram")
def histogram(low: Lowering, op: Op) -> None:
    """Counts of 0 .. bins - 1; other values are not counted."""
    b = low.b
    source = op.operands[0]
    bins, elem = op.result.type.size, op.result.type.elem
    buffer = low.buffer(op.result.type, op)
    nbytes = bins * op.result.type.itemsize
    b.declarations["llvm.memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    b.do(f"call void @llvm.memset.p0.i64(ptr {buffer.address}, i8 0, i64 {nbytes}, i1 false)")
    nest = Nest(b, 1)
    ev = Evaluator(b, nest, low.env, low.dummy)
    layout = plan(source.type.shape, 1, 0)
    loops = [nest.open(v + 1, 0, e, 1, e) for v, e in enumerate(layout.extents)]
    value = _scalar(ev.lanes.index(ev.number(source, layout.index), 1))
    counted = b.put(f"icmp ult i64 {value}, {bins}")
    if len(op.operands) > 1:
        counted = b.put(f"and i1 {counted}, {_scalar(ev.number(op.operands[1], layout.index))}")
    address = b.put(f"getelementptr {elem}, ptr {buffer.address}, i64 {value}")
    address = b.put(f"select i1 {counted}, ptr {address}, ptr {low.dummy}")
    old = b.put(f"load {elem}, ptr {address}, align {Type(elem).itemsize}")
    b.do(f"store {elem} {b.put(f'add {elem} {old}, 1')}, ptr {address}, align {Type(elem).itemsize}")
    for loop in reversed(loops):
        nest.close(loop)
    low.env.storage[op.result] = buffer
