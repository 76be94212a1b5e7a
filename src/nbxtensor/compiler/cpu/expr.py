"""Evaluates tensor expressions inside a loop nest: the value of an element for every lane, pulled in on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nbxtensor.compiler.cpu.arith import ELEMENTWISE, Arith, literal, reject
from nbxtensor.compiler.cpu.builder import Builder, llvm_type
from nbxtensor.compiler.cpu.index import CONST, LANE, ONE, ZERO, Bit, Index, fixed_low, flatten
from nbxtensor.compiler.cpu.ir import Block, Op, Type, Value
from nbxtensor.compiler.cpu.lanes import Affine, Lane, Number, Pointer, Uniform, Vector, int_const
from nbxtensor.compiler.cpu.memory import FALSE, TRUE, Memory
from nbxtensor.compiler.cpu.nest import Nest
from nbxtensor.compiler.cpu.views import VIEWS, insert, is_pair_reduce, through


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor that lies in scratch memory, row-major (pointers as addresses)."""

    address: str
    type: Type


@dataclass(frozen=True, slots=True)
class Shifted:
    """A tensor equal to another plus a scalar that a loop carries."""

    origin: Value
    offset: Uniform


Storage = Buffer | Shifted


@dataclass(slots=True)
class Environment:
    """What is known of values at the current point of the function."""

    scalars: dict[Value, Uniform | Pointer] = field(default_factory=dict[Value, Uniform | Pointer])
    storage: dict[Value, Storage] = field(default_factory=dict[Value, Storage])


def constant(op: Op, elem: str, at: int = 0) -> Uniform:
    """An element of ``arith.constant``."""
    value = op.constant
    if isinstance(value, list):
        value = value[at]
    assert value is not None
    if elem[0] == "i":
        return int_const(int(value), elem)
    return Uniform(elem, literal(elem, float(value)), float(value))


class Evaluator:
    """Values of tensor elements in one nest."""

    def __init__(self, builder: Builder, nest: Nest, env: Environment, dummy: str) -> None:
        self.b = builder
        self.nest = nest
        self.n = nest.n
        self.lanes = nest.lanes
        self.env = env
        self.memory = Memory(builder, nest.n, dummy)
        self.known: dict[tuple[Value, Index], Uniform] = {}
        self.vectors = Arith(builder, nest.n)
        self.singles = Arith(builder, 0)

    def value(self, value: Value, index: Index) -> Lane:
        """Element `index` of `value` for every lane."""
        if not value.type.shape:
            return self.env.scalars[value]
        key = (value, index)
        if key in self.known:
            return self.known[key]
        level = self.nest.level(index)
        memo = self.nest.memos[level]
        found = memo.get(key)
        if found is None:
            saved, self.b.cur = self.b.cur, self.nest.levels[level]
            found = self.compute(value, index)
            self.b.cur = saved
            memo[key] = found
        return found

    def number(self, value: Value, index: Index) -> Number:
        """A value that is not a pointer."""
        result = self.value(value, index)
        assert not isinstance(result, Pointer)
        return result

    def vector(self, value: Value, index: Index) -> str:
        return self.lanes.vector(self.number(value, index), self.n)

    def compute(self, value: Value, index: Index) -> Lane:
        storage = self.env.storage.get(value)
        if storage is not None:
            return self.stored(value, storage, index)
        op = value.op
        assert op is not None, "block argument without storage"
        if op.name in VIEWS:
            return self.value(op.operands[0], through(op, value, index))
        special = _SPECIAL.get(op.name)
        if special is not None:
            return special(self, op, index)
        if op.name in ELEMENTWISE:
            return self.elementwise(op, index)
        if op.name == "tt.reduce" and is_pair_reduce(op):
            return self.pair_reduce(op, value, index)
        reject(op)
        raise AssertionError

    def stored(self, value: Value, storage: Storage, index: Index) -> Lane:
        if isinstance(storage, Shifted):
            origin = self.value(storage.origin, index)
            if isinstance(origin, Pointer):
                return self.move(origin, storage.offset)
            return self.sum(value.type.elem, origin, storage.offset, 1)
        elem = storage.type.elem
        memory_elem = "i64" if elem == "ptr" else elem
        linear = flatten(index)
        where = Pointer(memory_elem, storage.address, self.nest.number(linear))
        loaded = self.memory.load(where, TRUE, None, memory_elem, fixed_low(linear))
        return self.from_address(loaded, value.type.pointee) if elem == "ptr" else loaded

    def from_address(self, address: Number, pointee: str) -> Pointer:
        """A pointer from whole addresses."""
        scale = Type(pointee).itemsize.bit_length() - 1
        if isinstance(address, Uniform):
            base = self.b.put(f"inttoptr i64 {address.v} to ptr")
            return Pointer(pointee, base, int_const(0, "i64"))
        # elements are aligned, so an address is a whole number of elements from 0
        v = self.lanes.vector(address, self.n)
        v = self.b.put(f"ashr exact <{self.n} x i64> {v}, splat (i64 {scale})") if scale else v
        return Pointer(pointee, "null", Vector("i64", v))

    def to_address(self, pointer: Pointer) -> Number:
        """Whole addresses of a pointer."""
        base = Uniform("i64", self.b.put(f"ptrtoint ptr {pointer.base} to i64"))
        moved = self.product("i64", pointer.offset, int_const(Type(pointer.elem).itemsize, "i64"))
        return self.sum("i64", moved, base, 1)

    # --- integer arithmetic low in the lattice

    def sum(self, elem: str, x: Number, y: Number, sign: int) -> Number:
        low = self.lanes.add(x, y, sign)
        if low is not None:
            return low
        how = "add" if sign > 0 else "sub"
        a, c = self.lanes.vector(x, self.n), self.lanes.vector(y, self.n)
        return Vector(elem, self.b.put(f"{how} {llvm_type(elem, self.n)} {a}, {c}"))

    def product(self, elem: str, x: Number, y: Number) -> Number:
        low = self.lanes.mul(x, y)
        if low is not None:
            return low
        a, c = self.lanes.vector(x, self.n), self.lanes.vector(y, self.n)
        return Vector(elem, self.b.put(f"mul {llvm_type(elem, self.n)} {a}, {c}"))

    def move(self, pointer: Pointer, offset: Number) -> Pointer:
        """A pointer moved by a number of elements."""
        return Pointer(pointer.elem, pointer.base, self.sum("i64", pointer.offset, self.lanes.index(offset, self.n), 1))

    # --- operations

    def elementwise(self, op: Op, index: Index) -> Lane:
        elem = op.result.type.elem
        if elem == "ptr" or op.operands[-1].type.elem == "ptr":
            return self.pointer_op(op, index)
        if op.name == "arith.select":
            condition = self.number(op.operands[0], index)
            if isinstance(condition, Uniform):
                return self.choose(condition, op.operands[1], op.operands[2], index)
        if op.name in ("arith.andi", "arith.ori") and elem == "i1":
            return self.logic(op, index)
        args = [self.number(o, index) for o in op.operands]
        return self.apply(op, args)

    def apply(self, op: Op, args: list[Number]) -> Number:
        """An elementwise operation on lattice values."""
        elem = op.result.type.elem
        low = self.low(op, elem, args)
        if low is not None:
            return low
        if all(isinstance(a, Uniform) for a in args):
            return Uniform(elem, self.singles.emit(op, [a.v for a in args if isinstance(a, Uniform)]))
        return Vector(elem, self.vectors.emit(op, [self.lanes.vector(a, self.n) for a in args]))

    def low(self, op: Op, elem: str, args: list[Number]) -> Number | None:
        """Integer operations that keep uniform and affine values what they are."""
        if elem[0] != "i" or args[0].elem[0] != "i" or elem == "i1":
            return None
        match op.name:
            case "arith.addi":
                return self.lanes.add(args[0], args[1], 1)
            case "arith.subi":
                return self.lanes.add(args[0], args[1], -1)
            case "arith.muli":
                return self.lanes.mul(args[0], args[1])
            case "arith.shli":
                amount = args[1]
                if isinstance(amount, Uniform) and amount.const is not None and 0 <= int(amount.const) < 63:
                    return self.lanes.mul(args[0], int_const(1 << int(amount.const), elem))
                return None
            case "arith.extsi" | "arith.extui":
                if args[0].elem == "i1" and not isinstance(args[0], Uniform):
                    return None
                return self.lanes.extend(args[0], elem, op.name == "arith.extsi")
            case "arith.trunci":
                return self.lanes.truncate(args[0], elem)
            case _:
                return None

    def logic(self, op: Op, index: Index) -> Number:
        """``and``, ``or`` of conditions; a constant decides early."""
        stop = 0 if op.name == "arith.andi" else 1
        args: list[Number] = []
        for operand in op.operands:
            arg = self.number(operand, index)
            if isinstance(arg, Uniform) and arg.const is not None:
                if int(arg.const) == stop:
                    return TRUE if stop else FALSE
            else:
                args.append(arg)
        if not args:
            return FALSE if stop else TRUE
        return args[0] if len(args) == 1 else self.apply(op, args)

    def choose(self, condition: Uniform, yes: Value, no: Value, index: Index) -> Lane:
        """One of two values by a scalar condition."""
        if condition.const is not None:
            return self.value(yes if condition.const else no, index)
        a, z = self.value(yes, index), self.value(no, index)
        if isinstance(a, Pointer) and isinstance(z, Pointer):
            return self.from_address(self.pick(condition, self.to_address(a), self.to_address(z)), a.elem)
        assert not isinstance(a, Pointer)
        assert not isinstance(z, Pointer)
        return self.pick(condition, a, z)

    def pick(self, condition: Number, a: Number, z: Number) -> Number:
        if isinstance(condition, Uniform) and isinstance(a, Uniform) and isinstance(z, Uniform):
            return Uniform(a.elem, self.singles.select(condition.v, a.elem, a.v, z.v))
        type = llvm_type(a.elem, self.n)
        x, y = self.lanes.vector(a, self.n), self.lanes.vector(z, self.n)
        if isinstance(condition, Uniform):
            return Vector(a.elem, self.b.put(f"select i1 {condition.v}, {type} {x}, {type} {y}"))
        mask = self.lanes.vector(condition, self.n)
        return Vector(a.elem, self.b.put(f"select <{self.n} x i1> {mask}, {type} {x}, {type} {y}"))

    def pointer_op(self, op: Op, index: Index) -> Lane:
        if op.name == "tt.bitcast" and op.result.type.elem == "ptr":
            pointer = self.value(op.operands[0], index)
            assert isinstance(pointer, Pointer)
            pointee = op.result.type.pointee
            if Type(pointee).itemsize == Type(pointer.elem).itemsize:
                return Pointer(pointee, pointer.base, pointer.offset)
            return self.from_address(self.to_address(pointer), pointee)
        if op.name == "arith.select":
            condition = self.number(op.operands[0], index)
            a, z = self.value(op.operands[1], index), self.value(op.operands[2], index)
            assert isinstance(a, Pointer)
            assert isinstance(z, Pointer)
            return self.from_address(self.pick(condition, self.to_address(a), self.to_address(z)), a.elem)
        raise op.error("this operation on pointers is not supported on the CPU")

    def add_pointer(self, op: Op, index: Index) -> Lane:
        pointer = self.value(op.operands[0], index)
        assert isinstance(pointer, Pointer)
        return self.move(pointer, self.number(op.operands[1], index))

    def splat(self, op: Op, index: Index) -> Lane:
        del index
        return self.env.scalars[op.operands[0]]

    def constant(self, op: Op, index: Index) -> Lane:
        elem = op.result.type.elem
        if not isinstance(op.constant, list):
            return constant(op, elem)
        raise op.error("constants with several values are not supported on the CPU")

    def make_range(self, op: Op, index: Index) -> Lane:
        start = op.int_attr("start")
        low = self.lanes.add(self.nest.number(index[0], "i32"), int_const(start, "i32"))
        assert low is not None
        return low

    def load(self, op: Op, index: Index) -> Lane:
        mask = self.number(op.operands[1], index) if len(op.operands) > 1 else TRUE
        other = None
        if len(op.operands) > 2 and not (isinstance(mask, Uniform) and mask.const):
            other = self.number(op.operands[2], index)
        pointer = self.value(op.operands[0], index)
        assert isinstance(pointer, Pointer)
        if op.result.type.elem == "ptr":
            loaded = self.memory.load(pointer, mask, other, "i64")
            return self.from_address(loaded, op.result.type.pointee)
        whole = fixed_low(index[-1]) if index and len(op.operands) == 1 else (0, 0)
        return self.memory.load(pointer, mask, other, op.result.type.elem, whole)

    def by_bit(self, bit: Bit, zero: tuple[Value, Index], one: tuple[Value, Index]) -> Lane:
        """One of two values by a bit of the index."""
        if bit[0] == CONST:
            return self.value(*(one if bit[1] else zero))
        a, z = self.number(*one), self.number(*zero)
        where = self.nest.number((bit,), "i1" if bit[0] != LANE else "i64")
        if isinstance(where, Affine):
            type = llvm_type(a.elem)
            x, y = self.lanes.vector(z, self.n), self.lanes.vector(a, self.n)
            picks = [lane + self.n * p for lane, p in enumerate(where.pattern)]
            return Vector(a.elem, self.b.shuffle(type, self.n, x, y, picks))
        return self.pick(where, a, z)

    def join(self, op: Op, index: Index) -> Lane:
        rest = index[:-1]
        return self.by_bit(index[-1][0], (op.operands[0], rest), (op.operands[1], rest))

    def cat(self, op: Op, index: Index) -> Lane:
        rest = (index[0][:-1], *index[1:])
        return self.by_bit(index[0][-1], (op.operands[0], rest), (op.operands[1], rest))

    def gather(self, op: Op, index: Index) -> Lane:
        """Pick along an axis; the source is in scratch memory."""
        axis = op.int_attr("axis")
        source = op.operands[0]
        buffer = self.env.storage[source]
        assert isinstance(buffer, Buffer)
        elem = source.type.elem
        shape = source.type.shape
        stride = 1
        for size in shape[axis + 1 :]:
            stride *= size
        dims = tuple(dim if d != axis else (ZERO,) * (shape[axis].bit_length() - 1) for d, dim in enumerate(index))
        offset = self.nest.number(flatten(dims))
        picked = self.lanes.index(self.number(op.operands[1], index), self.n)
        inside = self.clamp(picked, shape[axis] - 1)
        where = self.sum("i64", self.product("i64", inside, int_const(stride, "i64")), offset, 1)
        return self.memory.load(Pointer(elem, buffer.address, where), TRUE, None, elem)

    def clamp(self, x: Number, most: int) -> Number:
        """An index kept inside the source (one outside is an error of the kernel, not of this process)."""
        if isinstance(x, Uniform):
            v = self.b.call("i64", "llvm.umin.i64", ("i64", x.v), ("i64", str(most)))
            return Uniform("i64", v, None, 0, most)
        type = llvm_type("i64", self.n)
        v = self.b.call(
            type, f"llvm.umin.v{self.n}i64", (type, self.lanes.vector(x, self.n)), (type, f"splat (i64 {most})")
        )
        return Vector("i64", v)

    # --- small regions

    def pair_reduce(self, op: Op, value: Value, index: Index) -> Lane:
        """A reduction over two elements: ``combine(first, second)``."""
        axis = op.int_attr("axis")
        low = [self.number(o, insert(index, axis, (ZERO,))) for o in op.operands]
        high = [self.number(o, insert(index, axis, (ONE,))) for o in op.operands]
        return self.region(op.regions[0], [*low, *high])[value.number]

    def region(self, block: Block, args: list[Number]) -> list[Number]:
        """The results of a combine region (scalar operations) on lattice values."""
        values: dict[Value, Number] = dict(zip(block.args, args, strict=True))

        def find(value: Value) -> Number:
            if value in values:
                return values[value]
            outside = self.env.scalars[value]
            assert not isinstance(outside, Pointer)
            return outside

        for op in block.ops[:-1]:
            if op.name == "arith.constant":
                values[op.result] = constant(op, op.result.type.elem)
            elif op.name in ELEMENTWISE:
                args = [find(o) for o in op.operands]
                if op.name == "arith.select":
                    values[op.result] = self.pick(args[0], args[1], args[2])
                else:
                    values[op.result] = self.apply(op, args)
            else:
                reject(op)
        return [find(o) for o in block.terminator.operands]


_SPECIAL: dict[str, Callable[[Evaluator, Op, Index], Lane]] = {
    "arith.constant": Evaluator.constant,
    "tt.splat": Evaluator.splat,
    "tt.make_range": Evaluator.make_range,
    "tt.addptr": Evaluator.add_pointer,
    "tt.load": Evaluator.load,
    "tt.join": Evaluator.join,
    "tt.cat": Evaluator.cat,
    "tt.gather": Evaluator.gather,
}
