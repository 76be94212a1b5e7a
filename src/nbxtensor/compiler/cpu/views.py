"""View operations: which element of which operand an element of the result is."""

from __future__ import annotations

import re

from nbxtensor.compiler.cpu.index import ONE, ZERO, Index, broadcast, flatten, unflatten
from nbxtensor.compiler.cpu.ir import Op, Value

VIEWS = {"tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.split"}


def order(op: Op) -> list[int]:
    """The permutation of ``tt.trans``."""
    return [int(n) for n in re.findall(r"\d+", op.attrs["order"].split(":", 1)[1])]


def through(op: Op, value: Value, index: Index) -> Index:
    """Index into the operand of view `op` for element `index` of its result `value`."""
    source = op.operands[0].type
    if op.name == "tt.broadcast":
        return broadcast(index, source.shape)
    if op.name == "tt.expand_dims":
        axis = op.int_attr("axis")
        return index[:axis] + index[axis + 1 :]
    if op.name == "tt.reshape":
        return unflatten(flatten(index), source.shape)
    if op.name == "tt.trans":
        dims: list[tuple[tuple[int, int], ...]] = [()] * len(index)
        for position, dim in enumerate(order(op)):
            dims[dim] = index[position]
        return tuple(dims)
    assert op.name == "tt.split"
    return (*index, (ONE if value.number else ZERO,))


def insert(index: Index, axis: int, dim: tuple[tuple[int, int], ...]) -> Index:
    """`index` with a dimension put in at `axis`."""
    return (*index[:axis], dim, *index[axis:])


def is_pair_reduce(op: Op) -> bool:
    """A reduction over two elements is a plain expression."""
    return op.name == "tt.reduce" and op.operands[0].type.shape[op.int_attr("axis")] == 2
