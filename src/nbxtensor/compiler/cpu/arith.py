"""Elementwise operations: a table from TTIR names to LLVM, on scalars and vectors alike."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nbxtensor.compiler.cpu.builder import Builder, float_literal, llvm_type
from nbxtensor.compiler.cpu.casts import Casts
from nbxtensor.compiler.cpu.ir import Op, Type
from nbxtensor.compiler.cpu.lanes import int_range
from nbxtensor.compiler.cpu.minmax import MinMax

_INT = {
    "arith.addi": "add",
    "arith.subi": "sub",
    "arith.muli": "mul",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
}
_INT_CALL = {
    "arith.minsi": "smin",
    "arith.maxsi": "smax",
    "arith.minui": "umin",
    "arith.maxui": "umax",
}
_SHIFT = {"arith.shli": "shl", "arith.shrui": "lshr", "arith.shrsi": "ashr"}
_DIVIDE = {"arith.divsi": "sdiv", "arith.divui": "udiv", "arith.remsi": "srem", "arith.remui": "urem"}
_FLOAT = {
    "arith.addf": "fadd",
    "arith.subf": "fsub",
    "arith.mulf": "fmul",
    "arith.divf": "fdiv",
    "tt.precise_divf": "fdiv",
}
_FLOAT_CALL = {
    "math.fma": "fma",
    "math.absf": "fabs",
    "math.floor": "floor",
    "math.ceil": "ceil",
    "math.trunc": "trunc",
    "math.roundeven": "roundeven",
    "math.copysign": "copysign",
    "math.sqrt": "sqrt",
    "tt.precise_sqrt": "sqrt",
}
_MIN_MAX = {"arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf"}
_CASTS = {
    "arith.extf",
    "arith.truncf",
    "arith.fptosi",
    "arith.fptoui",
    "arith.sitofp",
    "arith.uitofp",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.bitcast",
    "tt.bitcast",
    "tt.fp_to_fp",
}
_FORBIDDEN = {
    "math.exp",
    "math.exp2",
    "math.expm1",
    "math.log",
    "math.log2",
    "math.log10",
    "math.log1p",
    "math.sin",
    "math.cos",
    "math.tan",
    "math.tanh",
    "math.erf",
    "math.rsqrt",
    "math.powf",
    "math.pow",
    "tt.extern_elementwise",
}
_OTHER = {
    "arith.cmpi",
    "arith.cmpf",
    "arith.select",
    "arith.negf",
    "arith.remf",
    "math.absi",
    "math.ctpop",
    "math.ctlz",
    "math.cttz",
    "tt.clampf",
    "tt.mulhiui",
}
ELEMENTWISE = {*_INT, *_INT_CALL, *_SHIFT, *_DIVIDE, *_FLOAT, *_FLOAT_CALL, *_MIN_MAX, *_CASTS, *_OTHER} - {
    "arith.remf"
}


def reject(op: Op) -> None:
    """Raise the error for an operation that is not lowered."""
    if op.name in _FORBIDDEN:
        raise op.error(
            "this operation has no one answer on all devices, so it is not compiled for the CPU",
            "use the functions of nbxtensor.kernel.math",
        )
    if op.name == "arith.remf":
        raise op.error(
            "the remainder of floats has no one answer on all devices", "use the functions of nbxtensor.kernel.math"
        )
    raise op.error("this operation is not supported on the CPU")


class Arith:
    """Emits elementwise operations on `lanes` values (0: scalars)."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.b = builder
        self.n = lanes
        self.casts = Casts(builder, lanes)

    def emit(self, op: Op, args: Sequence[str]) -> str:
        """`op` on LLVM operands of its operand types; the result's name."""
        source, target = op.operands[0].type, op.result.type
        name = op.name
        if name in _CASTS:
            return self.convert(name, source, args[0], target)
        if name == "arith.select":
            return self.select(args[0], target.elem, args[1], args[2])
        if source.elem in ("f16", "bf16"):
            return self.narrow_float(op, source, args)
        return self.wide(op, source, args)

    def narrow_float(self, op: Op, source: Type, args: Sequence[str]) -> str:
        """Arithmetic on 16-bit floats goes through fp32; changes of sign keep all other bits."""
        n, type = self.n, llvm_type(source.elem, self.n)
        if op.name == "arith.negf":
            return self.b.put(f"xor {type} {args[0]}, {self.casts.const('i16', '-32768')}")
        if op.name == "math.absf":
            return self.b.put(f"and {type} {args[0]}, {self.casts.const('i16', '32767')}")
        wide = [self.casts.widen(source.elem, a) for a in args]
        result = self.wide(op, Type("f32", source.shape), wide)
        if op.result.type.elem == source.elem:
            return Casts(self.b, n).narrow("f32", result, source.elem)
        return result

    def wide(self, op: Op, source: Type, args: Sequence[str]) -> str:
        name, b = op.name, self.b
        type = llvm_type(source.elem, self.n)
        both = ", ".join(args[:2])
        if name in _INT:
            return b.put(f"{_INT[name]} {type} {both}")
        if name in _FLOAT:
            return b.put(f"{_FLOAT[name]} {type} {both}")
        if name in _INT_CALL:
            return self.intrinsic(_INT_CALL[name], source.elem, args)
        if name in _FLOAT_CALL:
            return self.intrinsic(_FLOAT_CALL[name], source.elem, args)
        if name in _MIN_MAX:
            return self.min_max(source.elem, args, largest=name[6:9] == "max", propagate="num" not in name)
        if name in _DIVIDE:
            return self.divide(_DIVIDE[name], source, args[0], args[1])
        if name in _SHIFT:
            return self.shift(_SHIFT[name], source, args[0], args[1])
        if name == "arith.cmpi":
            return b.put(f"icmp {op.attrs['head']} {type} {both}")
        if name == "arith.cmpf":
            return b.put(f"fcmp {_PREDICATES[op.attrs['head']]} {type} {both}")
        if name == "arith.negf":
            return b.put(f"fneg {type} {args[0]}")
        if name == "tt.clampf":
            whole = "all" in op.attrs.get("propagateNan", "")
            low = self.min_max(source.elem, args[:2], largest=True, propagate=whole)
            return self.min_max(source.elem, [low, args[2]], largest=False, propagate=whole)
        if name == "tt.mulhiui":
            return self.high_product(source, args)
        if name == "math.absi":
            return b.call(type, f"llvm.abs.{self.casts.suffix(source.elem)}", (type, args[0]), ("i1", "false"))
        if name in ("math.ctlz", "math.cttz"):
            return b.call(type, f"llvm.{name[5:]}.{self.casts.suffix(source.elem)}", (type, args[0]), ("i1", "false"))
        if name == "math.ctpop":
            return self.intrinsic("ctpop", source.elem, args)
        raise op.error("this operation is not supported on the CPU")

    def min_max(self, elem: str, args: Sequence[str], *, largest: bool, propagate: bool) -> str:
        return MinMax(self.b, self.n, elem, largest).emit(args[0], args[1], propagate)

    def intrinsic(self, name: str, elem: str, args: Sequence[str]) -> str:
        type = llvm_type(elem, self.n)
        return self.b.call(type, f"llvm.{name}.{self.casts.suffix(elem)}", *((type, a) for a in args))

    def select(self, mask: str, elem: str, yes: str, no: str) -> str:
        type = llvm_type(elem, self.n)
        return self.b.put(f"select {self.casts.raw('i1')} {mask}, {type} {yes}, {type} {no}")

    def high_product(self, source: Type, args: Sequence[str]) -> str:
        """The upper half of an unsigned product."""
        bits = source.bits
        wide = [self.casts.cast("zext", f"i{bits}", a, f"i{2 * bits}") for a in args]
        product = self.b.put(f"mul {self.casts.raw(f'i{2 * bits}')} {wide[0]}, {wide[1]}")
        amount = self.casts.const(f"i{2 * bits}", str(bits))
        high = self.b.put(f"lshr {self.casts.raw(f'i{2 * bits}')} {product}, {amount}")
        return self.casts.cast("trunc", f"i{2 * bits}", high, f"i{bits}")

    def divide(self, how: str, source: Type, x: str, y: str) -> str:
        """Integer division that never traps: lanes that are masked off may hold any divisor.

        A divisor of zero counts as one, and so does -1 under the smallest number (their quotient wraps to itself).
        """
        b, type, elem = self.b, llvm_type(source.elem, self.n), source.elem
        zero, one = self.casts.const(elem, "0"), self.casts.const(elem, "1")
        bad = b.put(f"icmp eq {type} {y}, {zero}")
        if how[0] == "s" and elem != "i1":
            least = b.put(f"icmp eq {type} {x}, {self.casts.const(elem, str(int_range(elem)[0]))}")
            minus = b.put(f"icmp eq {type} {y}, {self.casts.const(elem, '-1')}")
            mask = self.casts.raw("i1")
            overflow = b.put(f"and {mask} {least}, {minus}")
            bad = b.put(f"or {mask} {bad}, {overflow}")
        safe = self.select(bad, elem, one, y)
        if self.n and source.bits <= 32 and elem != "i1" and y[0] == "%":
            return self.divide_by_double(how, elem, x, safe)
        return b.put(f"{how} {type} {x}, {safe}")

    def divide_by_double(self, how: str, elem: str, x: str, y: str) -> str:
        """Vectors of up to 32 bits have no integer division; a quotient of doubles is exact once it is truncated."""
        b, c, type = self.b, self.casts, llvm_type(elem, self.n)
        wide, narrow = ("sitofp", "fptosi") if how[0] == "s" else ("uitofp", "fptoui")
        ratio = b.put(f"fdiv {c.raw('double')} {c.cast(wide, elem, x, 'double')}, {c.cast(wide, elem, y, 'double')}")
        quotient = c.cast(narrow, "double", ratio, elem)
        if how.endswith("div"):
            return quotient
        product = b.put(f"mul {type} {quotient}, {y}")
        return b.put(f"sub {type} {x}, {product}")

    def shift(self, how: str, source: Type, x: str, y: str) -> str:
        """A shift by the width or more gives 0, or the sign."""
        b, type, elem, bits = self.b, llvm_type(source.elem, self.n), source.elem, source.bits
        if y.startswith(f"splat ({elem} ") or y[0] != "%":
            amount = int(y.removeprefix(f"splat ({elem} ").rstrip(")"))
            if 0 <= amount < bits:
                return b.put(f"{how} {type} {x}, {y}")
        if how == "ashr":
            most = self.casts.const(elem, str(bits - 1))
            y = self.intrinsic("umin", elem, [y, most])
            return b.put(f"ashr {type} {x}, {y}")
        inside = b.put(f"icmp ult {type} {y}, {self.casts.const(elem, str(bits))}")
        amount = self.select(inside, elem, y, self.casts.const(elem, "0"))
        return self.select(inside, elem, b.put(f"{how} {type} {x}, {amount}"), self.casts.const(elem, "0"))

    def convert(self, name: str, source: Type, v: str, target: Type) -> str:
        c, kind = self.casts, name.split(".")[1]
        if kind in ("extf", "truncf", "fp_to_fp"):
            wider = target.bits > source.bits
            return (c.widen if wider else c.narrow)(source.elem, v, target.elem)
        if kind in ("fptosi", "fptoui"):
            return c.to_int(source.elem, v, target.elem, kind == "fptosi")
        if kind in ("sitofp", "uitofp"):
            return c.from_int(source.elem, v, target.elem, kind == "sitofp")
        if kind == "bitcast":
            a, z = llvm_type(source.elem), llvm_type(target.elem)
            return v if a == z else c.cast("bitcast", a, v, z)
        how = {"extsi": "sext", "extui": "zext", "trunci": "trunc"}[kind]
        return c.cast(how, source.elem, v, target.elem)


_PREDICATES = {
    p: p for p in ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
} | {"false": "false", "true": "true"}


def literal(elem: str, value: float) -> str:
    """A float constant of any float type as an LLVM operand."""
    if elem in ("f32", "f64"):
        return float_literal(value)
    return str(half_bits(elem, value))


def half_bits(elem: str, value: float) -> int:
    """The bits of a 16-bit float constant (its text may be shorter than its value, so it is rounded)."""
    if elem == "f16":
        return int.from_bytes(struct.pack("<e", value), "little")
    bits = int.from_bytes(struct.pack("<f", value), "little")
    if value != value:
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
