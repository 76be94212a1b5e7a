"""Loads and stores of vectors and scalars, by what is known of the address and the mask."""

from __future__ import annotations

from nbxtensor.compiler.cpu.builder import Builder, llvm_type, memory_type
from nbxtensor.compiler.cpu.ir import Type
from nbxtensor.compiler.cpu.lanes import Affine, Lanes, Number, Pointer, Uniform, Vector

TRUE = Uniform("i1", "true", 1, 1, 1)
FALSE = Uniform("i1", "false", 0, 0, 0)


class Memory:
    """Emits memory access of `lanes` lanes (1: scalars only)."""

    def __init__(self, builder: Builder, lanes: int, dummy: str) -> None:
        self.b = builder
        self.n = lanes
        self.lanes = Lanes(builder)
        self.dummy = dummy

    def load(
        self, pointer: Pointer, mask: Number, other: Number | None, elem: str, fixed: tuple[int, int] = (0, 0)
    ) -> Number:
        """What lies at `pointer` where `mask` holds, else `other` (or 0). Memory is read only where `mask` holds.

        `fixed` says that the lanes are every 2^k-th of a run of elements that may all be read: (k, position of the
        first lane in its 2^k elements).
        """
        if isinstance(mask, Uniform) and mask.const == 0:
            return other if other is not None else self.zero(elem)
        result = self.raw_load(pointer, mask, other, "i8" if elem == "i1" else elem, fixed)
        if elem != "i1":
            return result
        if isinstance(result, Uniform):
            return Uniform("i1", self.b.put(f"icmp ne i8 {result.v}, 0"))
        v = self.lanes.vector(result, self.n)
        return Vector("i1", self.b.put(f"icmp ne {llvm_type('i8', self.n)} {v}, zeroinitializer"))

    def zero(self, elem: str) -> Uniform:
        return Uniform(elem, "0.0" if elem in ("f32", "f64") else "0", 0)

    def raw_load(
        self, pointer: Pointer, mask: Number, other: Number | None, elem: str, fixed: tuple[int, int]
    ) -> Number:
        offset = pointer.offset
        if isinstance(offset, Uniform) and isinstance(mask, Uniform):
            return self.scalar_load(pointer, mask, other, elem)
        if isinstance(offset, Affine) and offset.scale is None and isinstance(mask, Uniform) and mask.const:
            step = 1 << fixed[0]
            if 1 < step <= 8 and offset.pattern == tuple(offset.pattern[0] + step * i for i in range(self.n)):
                return Vector(elem, self.every_nth(pointer.base, offset, elem, fixed))
            return Vector(elem, self.pattern_load(pointer.base, offset, elem))
        if self.contiguous(offset) and Type(elem).itemsize >= 4:
            assert isinstance(offset, Affine)
            return Vector(elem, self.masked_load(pointer.base, offset, mask, other, elem))
        return Vector(elem, self.gather(pointer, mask, other, elem))

    @staticmethod
    def contiguous(offset: Number) -> bool:
        if not isinstance(offset, Affine) or offset.scale is not None:
            return False
        first = offset.pattern[0]
        return all(p == first + i for i, p in enumerate(offset.pattern))

    def address(self, base: str, offset: Affine | Uniform, extra: int, elem: str) -> str:
        """The scalar address of ``base + offset.base + extra``."""
        type = memory_type(elem)
        start = offset if isinstance(offset, Uniform) else offset.base
        return self.b.gep(type, self.b.gep(type, base, start.v), str(extra))

    def scalar_load(self, pointer: Pointer, mask: Uniform, other: Number | None, elem: str) -> Number:
        assert isinstance(pointer.offset, Uniform)
        type = memory_type(elem)
        address = self.b.gep(memory_type(pointer.elem), pointer.base, pointer.offset.v)
        if mask.const:
            return Uniform(elem, self.b.put(f"load {type}, ptr {address}, align {Type(elem).itemsize}"))
        address = self.b.put(f"select i1 {mask.v}, ptr {address}, ptr {self.dummy}")
        value = self.b.put(f"load {type}, ptr {address}, align {Type(elem).itemsize}")
        other = other if other is not None else self.zero(elem)
        if isinstance(other, Uniform):
            return Uniform(elem, self.b.put(f"select i1 {mask.v}, {type} {value}, {type} {other.v}"))
        v, no = self.b.splat(type, self.n, value), self.lanes.vector(other, self.n)
        vector = llvm_type(elem, self.n)
        return Vector(elem, self.b.put(f"select i1 {mask.v}, {vector} {v}, {vector} {no}"))

    def pattern_load(self, base: str, offset: Affine, elem: str) -> str:
        """An unmasked load at constant distances: one vector load per run of neighbours, then a shuffle."""
        type, size = memory_type(elem), Type(elem).itemsize
        wanted = sorted(set(offset.pattern))
        if wanted == list(range(wanted[0], wanted[0] + len(wanted))):
            count = len(wanted)
            address = self.address(base, offset, wanted[0], elem)
            v = self.b.put(f"load <{count} x {type}>, ptr {address}, align {size}")
            picks = [p - wanted[0] for p in offset.pattern]
            if picks == list(range(count)):
                return v
            return self.b.shuffle(type, count, v, "poison", picks)
        loaded: dict[int, str] = {}
        for p in wanted:
            address = self.address(base, offset, p, elem)
            loaded[p] = self.b.put(f"load {type}, ptr {address}, align {size}")
        return self.collect(type, [loaded[p] for p in offset.pattern])

    def every_nth(self, base: str, offset: Affine, elem: str, fixed: tuple[int, int]) -> str:
        """Load a whole run and pick every 2^k-th element, halving k times; equal steps of other picks are shared."""
        (k, position), type, n = fixed, memory_type(elem), self.n
        start = offset.pattern[0] - position
        parts: list[str] = []
        for i in range(1 << k):
            address = self.address(base, offset, start + i * n, elem)
            parts.append(self.b.put(f"load <{n} x {type}>, ptr {address}, align {Type(elem).itemsize}"))
        if k == 2 and Type(elem).itemsize == 4 and n >= 8:
            return self.every_fourth(type, parts, position)
        for bit in range(k):
            picks = [2 * lane + (position >> bit & 1) for lane in range(n)]
            parts = [self.b.shuffle(type, n, a, z, picks) for a, z in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def every_fourth(self, type: str, parts: list[str], position: int) -> str:
        """Every fourth 32-bit element of four vectors: two steps that stay inside 128 bits, then one permutation.

        Where several such are combined, LLVM does the permutation once, on the result.
        """
        n = self.n
        for bit in range(2):
            first = position >> bit & 1
            inside = [(start + first, start + 2 + first) for start in range(0, n, 4)]
            picks = [i for a, b in inside for i in (a, b, n + a, n + b)]
            parts = [self.b.shuffle(type, n, a, z, picks) for a, z in zip(parts[::2], parts[1::2], strict=True)]
        order = [i % (n // 4) * 4 + i // (n // 4) for i in range(n)]
        return self.b.shuffle(type, n, parts[0], "poison", order)

    def collect(self, type: str, scalars: list[str]) -> str:
        v = "poison"
        for i, s in enumerate(scalars):
            v = self.b.put(f"insertelement <{len(scalars)} x {type}> {v}, {type} {s}, i64 {i}")
        return v

    def masked_load(self, base: str, offset: Affine, mask: Number, other: Number | None, elem: str) -> str:
        n, type = self.n, memory_type(elem)
        vector, size = f"<{n} x {type}>", Type(elem).itemsize
        address = self.address(base, offset, offset.pattern[0], elem)
        m = self.lanes.vector(mask, n)
        no = self.lanes.vector(other, n) if other is not None else "zeroinitializer"
        name = f"llvm.masked.load.v{n}{_suffix(type)}.p0"
        self.b.declarations[name] = f"declare {vector} @{name}(ptr, i32, <{n} x i1>, {vector})"
        return self.b.put(f"call {vector} @{name}(ptr {address}, i32 {size}, <{n} x i1> {m}, {vector} {no})")

    def addresses(self, pointer: Pointer) -> list[str]:
        """One scalar address per lane."""
        type, offset = memory_type(pointer.elem), pointer.offset
        if isinstance(offset, Uniform):
            return [self.b.gep(type, pointer.base, offset.v)] * self.n
        if isinstance(offset, Affine):
            start = self.b.gep(type, pointer.base, offset.base.v)
            if offset.scale is None:
                return [self.b.gep(type, start, str(p)) for p in offset.pattern]
            moves = {p: self.b.put(f"mul i64 {offset.scale.v}, {p}") for p in sorted(set(offset.pattern))}
            return [self.b.gep(type, start, moves[p]) for p in offset.pattern]
        lanes = [self.b.put(f"extractelement <{self.n} x i64> {offset.v}, i64 {i}") for i in range(self.n)]
        return [self.b.gep(type, pointer.base, o) for o in lanes]

    def gather(self, pointer: Pointer, mask: Number, other: Number | None, elem: str) -> str:
        """One scalar load per lane; lanes that are masked off read a dummy."""
        type, size, n = memory_type(elem), Type(elem).itemsize, self.n
        addresses = self.addresses(pointer)
        if not (isinstance(mask, Uniform) and mask.const):
            m = self.lanes.vector(mask, n)
            for i, address in enumerate(addresses):
                bit = self.b.put(f"extractelement <{n} x i1> {m}, i64 {i}")
                addresses[i] = self.b.put(f"select i1 {bit}, ptr {address}, ptr {self.dummy}")
        v = self.collect(type, [self.b.put(f"load {type}, ptr {a}, align {size}") for a in addresses])
        if isinstance(mask, Uniform) and mask.const:
            return v
        no = self.lanes.vector(other, n) if other is not None else "zeroinitializer"
        m = self.lanes.vector(mask, n)
        return self.b.put(f"select <{n} x i1> {m}, <{n} x {type}> {v}, <{n} x {type}> {no}")

    def store(self, pointer: Pointer, value: Number, mask: Number) -> None:
        """Write `value` where `mask` holds. Lanes are written in order where addresses meet."""
        if isinstance(mask, Uniform) and mask.const == 0:
            return
        elem = value.elem
        if elem == "i1":
            value, elem = self.to_byte(value), "i8"
        offset, type, size = pointer.offset, memory_type(elem), Type(elem).itemsize
        whole = isinstance(mask, Uniform) and bool(mask.const)
        if self.n == 1 or (isinstance(offset, Uniform) and isinstance(value, Uniform) and isinstance(mask, Uniform)):
            assert isinstance(offset, Uniform)
            assert isinstance(value, Uniform)
            assert isinstance(mask, Uniform)
            address = self.b.gep(memory_type(pointer.elem), pointer.base, offset.v)
            self.guarded(mask, f"store {type} {value.v}, ptr {address}, align {size}")
            return
        v, n = self.lanes.vector(value, self.n), self.n
        vector = f"<{n} x {type}>"
        if self.contiguous(offset):
            assert isinstance(offset, Affine)
            address = self.address(pointer.base, offset, offset.pattern[0], elem)
            if whole:
                self.b.do(f"store {vector} {v}, ptr {address}, align {size}")
                return
            name = f"llvm.masked.store.v{n}{_suffix(type)}.p0"
            self.b.declarations[name] = f"declare void @{name}({vector}, ptr, i32, <{n} x i1>)"
            m = self.lanes.vector(mask, n)
            self.b.do(f"call void @{name}({vector} {v}, ptr {address}, i32 {size}, <{n} x i1> {m})")
            return
        addresses = self.addresses(pointer)
        m = "" if whole else self.lanes.vector(mask, n)
        for i, address in enumerate(addresses):
            s = self.b.put(f"extractelement {vector} {v}, i64 {i}")
            if not whole:
                bit = self.b.put(f"extractelement <{n} x i1> {m}, i64 {i}")
                address = self.b.put(f"select i1 {bit}, ptr {address}, ptr {self.dummy}")
            self.b.do(f"store {type} {s}, ptr {address}, align {size}")

    def to_byte(self, value: Number) -> Number:
        if isinstance(value, Uniform):
            if value.const is not None:
                return Uniform("i8", str(int(value.const)), value.const)
            return Uniform("i8", self.b.put(f"zext i1 {value.v} to i8"))
        v = self.lanes.vector(value, self.n)
        return Vector("i8", self.b.put(f"zext <{self.n} x i1> {v} to <{self.n} x i8>"))

    def guarded(self, mask: Uniform, text: str) -> None:
        """`text` only where `mask` holds."""
        if mask.const:
            self.b.do(text)
            return
        then, after = self.b.block("then"), self.b.block("after")
        self.b.branch(mask.v, then, after)
        self.b.cur = then
        self.b.do(text)
        self.b.jump(after)
        self.b.cur = after


def _suffix(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)
