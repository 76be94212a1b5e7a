"""``tt.store``: the stores of a group share one loop nest, in which loads come before stores."""

from __future__ import annotations

from nbxtensor.compiler.cpu.expr import Evaluator
from nbxtensor.compiler.cpu.guard import Intervals
from nbxtensor.compiler.cpu.index import Index
from nbxtensor.compiler.cpu.ir import Op, Value
from nbxtensor.compiler.cpu.lanes import Number, Pointer
from nbxtensor.compiler.cpu.lower import Lowering, handles
from nbxtensor.compiler.cpu.memory import FALSE, TRUE
from nbxtensor.compiler.cpu.nest import Nest
from nbxtensor.compiler.cpu.reach import same_place
from nbxtensor.compiler.cpu.schedule import full_index


@handles("tt.store")
def store(low: Lowering, op: Op) -> None:
    if not op.operands[0].type.shape:
        single(low, op)
        return
    group = low.schedule.groups.get(op)
    if group is None:
        return  # emitted with the last store of its group
    loads = [v for v in low.schedule.guarded.get(op, ()) if v not in low.schedule.materialised]
    if not loads:
        nest(low, group)
        return
    b = low.b
    meet = guard(low, group, loads)
    apart, mixed, after = b.block("apart"), b.block("meet"), b.block("stored")
    b.branch(meet, mixed, apart)
    b.cur = apart
    nest(low, group)
    b.jump(after)
    b.cur = mixed
    with low.in_memory(loads, rare=True):
        nest(low, group)
    b.jump(after)
    b.cur = after


def single(low: Lowering, op: Op) -> None:
    """A store of one scalar."""
    ev = Evaluator(low.b, Nest(low.b, 1), low.env, low.dummy)
    mask = ev.number(op.operands[2], ()) if len(op.operands) > 2 else TRUE
    where = ev.value(op.operands[0], ())
    assert isinstance(where, Pointer)
    ev.memory.store(where, low.plain(ev, op.operands[1], ()), mask)


def nest(low: Lowering, group: list[Op]) -> None:
    """The loop nest of a group."""

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
    low.every(pointers[0].type.shape, values, body, masks, pointers, skip=len(masks) == len(group))


def guard(low: Lowering, group: list[Op], loads: list[Value]) -> str:
    """Whether what `loads` read and what `group` writes may overlap."""
    intervals = Intervals(low.b, low.env, low)
    conditions: list[str] = []
    stores = [store.operands[0] for store in group]
    for value in loads:
        assert value.op is not None
        pointer = value.op.operands[0]
        mine, index = (pointer, full_index(pointer.type.shape)), full_index(stores[0].type.shape)
        for other in stores:
            if not same_place(mine, (other, index), low):
                blocks = intervals.block(*mine), intervals.block(other, index)
                conditions.append(intervals.meet(*blocks))
    return intervals.any(conditions)
