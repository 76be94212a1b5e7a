"""What an expression reads: the operands of a deferred value, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nbxtensor.compiler.cpu.arith import ELEMENTWISE
from nbxtensor.compiler.cpu.index import CONST, ONE, ZERO, Index
from nbxtensor.compiler.cpu.ir import Op, Value
from nbxtensor.compiler.cpu.views import VIEWS, insert, is_pair_reduce, through

Element = tuple[Value, Index]

PURE = {
    *VIEWS,
    *ELEMENTWISE,
    "arith.constant",
    "tt.splat",
    "tt.make_range",
    "tt.addptr",
    "tt.load",
    "tt.join",
    "tt.cat",
    "tt.gather",
}


class Ends(Protocol):
    """Says where an expression ends."""

    def is_end(self, value: Value) -> bool:
        """Whether `value` lies in memory."""
        ...

    def origin(self, value: Value) -> Value | None:
        """The tensor that a loop-carried `value` is a shift of, or None."""
        ...


def is_deferred(op: Op) -> bool:
    """Whether tensor results of `op` are expressions, evaluated where they are used."""
    return op.name in PURE or is_pair_reduce(op)


def operands(value: Value, index: Index, ends: Ends) -> list[Element]:
    """The elements that element `index` of `value` is computed from."""
    if not value.type.shape or ends.is_end(value):
        return []
    origin = ends.origin(value)
    if origin is not None:
        return [(origin, index)]
    op = value.op
    if op is None:
        return []
    name = op.name
    if name in ("tt.splat", "arith.constant", "tt.make_range"):
        return []
    if name in VIEWS:
        return [(op.operands[0], through(op, value, index))]
    if name in ("tt.join", "tt.cat"):
        bit = index[-1][0] if name == "tt.join" else index[0][-1]
        rest = index[:-1] if name == "tt.join" else (index[0][:-1], *index[1:])
        both = [(op.operands[0], rest), (op.operands[1], rest)]
        return [both[bit[1]]] if bit[0] == CONST else both
    if name == "tt.gather":
        return [(op.operands[1], index)]
    if is_pair_reduce(op):
        axis = op.int_attr("axis")
        return [(o, insert(index, axis, (bit,))) for bit in (ZERO, ONE) for o in op.operands]
    if name in PURE:
        return [(o, index) for o in op.operands if o.type.shape]
    return []


def reachable(starts: list[Element], ends: Ends) -> Iterator[Element]:
    """Every element that the expressions at `starts` are made of."""
    seen: set[Element] = set()
    stack = list(starts)
    while stack:
        element = stack.pop()
        if element in seen:
            continue
        seen.add(element)
        yield element
        stack += operands(*element, ends)


def chain(value: Value, index: Index, ends: Ends) -> tuple[Value | None, tuple[Element, ...]]:
    """A pointer as the scalar it starts from and the offsets added to it."""
    offsets: list[Element] = []
    while True:
        op = value.op
        origin = ends.origin(value) if value.type.shape else None
        if origin is not None:
            offsets.append((value, index))
            value = origin
        elif op is None:
            return value, tuple(reversed(offsets))
        elif op.name == "tt.addptr":
            offset = op.operands[1]
            at = index if offset.type.shape else ()
            offsets.append((offset, at))
            value = op.operands[0]
        elif op.name == "tt.splat":
            value, index = op.operands[0], ()
        elif op.name in VIEWS:
            index = through(op, value, index)
            value = op.operands[0]
        elif op.name == "tt.bitcast" and op.result.type.elem == "ptr":
            value = op.operands[0]
        elif not value.type.shape:
            return value, tuple(reversed(offsets))
        else:
            return None, ()


def same_place(a: Element, b: Element, ends: Ends) -> bool:
    """Whether two pointers with equal bases surely point to the same element (other bases are not looked at)."""
    if a == b:
        return True
    if a[0].type.pointee != b[0].type.pointee and _size(a[0]) != _size(b[0]):
        return False
    base_a, offsets_a = chain(*a, ends)
    base_b, offsets_b = chain(*b, ends)
    if base_a is None or base_b is None:
        return False
    return [_reduced(e, ends) for e in offsets_a] == [_reduced(e, ends) for e in offsets_b]


def _size(value: Value) -> int:
    from nbxtensor.compiler.cpu.ir import Type

    return Type(value.type.pointee).itemsize


def _reduced(element: Element, ends: Ends) -> Element:
    """An element with views peeled off."""
    value, index = element
    while value.op is not None and value.op.name in VIEWS and not ends.is_end(value):
        index = through(value.op, value, index)
        value = value.op.operands[0]
    return value, index
