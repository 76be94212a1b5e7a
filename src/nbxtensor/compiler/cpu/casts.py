"""Conversions between element types, on scalars and vectors alike (``lanes = 0`` is a scalar).

16-bit floats are kept as their bits. Rounding is to nearest even everywhere, also from types with more than 24 bits:
those first round to odd, which makes the second rounding exact.
"""

from __future__ import annotations

from nbxtensor.compiler.cpu.builder import Builder, llvm_type


class Casts:
    """Emits conversions of `lanes` values."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.b = builder
        self.n = lanes

    def type(self, elem: str) -> str:
        return llvm_type(elem, self.n)

    def raw(self, scalar: str) -> str:
        """A vector or scalar of an LLVM scalar type."""
        return f"<{self.n} x {scalar}>" if self.n else scalar

    def const(self, scalar: str, value: str) -> str:
        return f"splat ({scalar} {value})" if self.n else value

    def suffix(self, elem: str) -> str:
        """The part of an intrinsic's name for this type."""
        return (f"v{self.n}" if self.n else "") + elem

    def cast(self, how: str, source: str, v: str, target: str) -> str:
        return self.b.put(f"{how} {self.raw(source)} {v} to {self.raw(target)}")

    def widen(self, elem: str, v: str, target: str = "f32") -> str:
        """extf."""
        if elem == target:
            return v
        if elem == "bf16":
            wide = self.cast("zext", "i16", v, "i32")
            wide = self.b.put(f"shl {self.raw('i32')} {wide}, {self.const('i32', '16')}")
            v, elem = self.cast("bitcast", "i32", wide, "float"), "f32"
        elif elem == "f16":
            half = self.cast("bitcast", "i16", v, "half")
            v, elem = self.cast("fpext", "half", half, "float"), "f32"
        return v if elem == target else self.cast("fpext", "float", v, "double")

    def narrow(self, elem: str, v: str, target: str) -> str:
        """truncf."""
        if elem == target:
            return v
        if elem in ("f16", "bf16"):
            v, elem = self.widen(elem, v), "f32"
        if elem == "f64":
            if target == "f32":
                return self.cast("fptrunc", "double", v, "float")
            v = self.odd(v)
        if target == "f16":
            half = self.cast("fptrunc", "float", v, "half")
            return self.cast("bitcast", "half", half, "i16")
        return v if target == "f32" else self.to_bf16(v)

    def odd(self, v: str) -> str:
        """double to float, rounded to odd."""
        b, i32 = self.b, self.raw("i32")
        near = self.cast("fptrunc", "double", v, "float")
        back = self.cast("fpext", "float", near, "double")
        bits = self.cast("bitcast", "float", near, "i32")
        size = b.call(self.raw("double"), f"llvm.fabs.{self.suffix('f64')}", (self.raw("double"), v))
        back_size = b.call(self.raw("double"), f"llvm.fabs.{self.suffix('f64')}", (self.raw("double"), back))
        up = self.cast("zext", "i1", b.put(f"fcmp ogt {self.raw('double')} {back_size}, {size}"), "i32")
        inexact = self.cast("zext", "i1", b.put(f"fcmp one {self.raw('double')} {back}, {v}"), "i32")
        bits = b.put(f"sub {i32} {bits}, {up}")
        bits = b.put(f"or {i32} {bits}, {inexact}")
        return self.cast("bitcast", "i32", bits, "float")

    def to_bf16(self, v: str) -> str:
        """float to bf16 in integer steps: nearest even, subnormals kept, NaN made quiet."""
        b, i32 = self.b, self.raw("i32")
        bits = self.cast("bitcast", "float", v, "i32")
        high = b.put(f"lshr {i32} {bits}, {self.const('i32', '16')}")
        last = b.put(f"and {i32} {high}, {self.const('i32', '1')}")
        bias = b.put(f"add {i32} {last}, {self.const('i32', '32767')}")
        rounded = b.put(f"add {i32} {bits}, {bias}")
        rounded = b.put(f"lshr {i32} {rounded}, {self.const('i32', '16')}")
        quiet = b.put(f"or {i32} {high}, {self.const('i32', '64')}")
        nan = b.put(f"fcmp uno {self.raw('float')} {v}, {v}")
        chosen = b.put(f"select {self.raw('i1')} {nan}, {i32} {quiet}, {i32} {rounded}")
        return self.cast("trunc", "i32", chosen, "i16")

    def from_int(self, elem: str, v: str, target: str, signed: bool) -> str:
        """sitofp, uitofp."""
        how = "sitofp" if signed else "uitofp"
        if target in ("f32", "f64"):
            return self.cast(how, elem, v, "float" if target == "f32" else "double")
        if elem == "i64":
            v = self.sticky(v, signed)
        return self.narrow("f64", self.cast(how, elem, v, "double"), target)

    def sticky(self, v: str, signed: bool) -> str:
        """A 64-bit integer whose value fits a double and still rounds to 16 bits as the original does."""
        b, i64 = self.b, self.raw("i64")
        low = b.put(f"and {i64} {v}, {self.const('i64', '2047')}")
        some = self.cast("zext", "i1", b.put(f"icmp ne {i64} {low}, {self.const('i64', '0')}"), "i64")
        some = b.put(f"shl {i64} {some}, {self.const('i64', '11')}")
        coarse = b.put(f"and {i64} {v}, {self.const('i64', '-2048')}")
        coarse = b.put(f"or {i64} {coarse}, {some}")
        size = v
        if signed:
            size = b.call(i64, f"llvm.abs.{self.suffix('i64')}", (i64, v), ("i1", "false"))
        big = b.put(f"icmp ugt {i64} {size}, {self.const('i64', str(1 << 53))}")
        return b.put(f"select {self.raw('i1')} {big}, {i64} {coarse}, {i64} {v}")

    def to_int(self, elem: str, v: str, target: str, signed: bool) -> str:
        """fptosi, fptoui: saturating, NaN gives 0."""
        v = self.widen(elem, v) if elem in ("f16", "bf16") else v
        source = "f64" if elem == "f64" else "f32"
        kind = "fptosi" if signed else "fptoui"
        name = f"llvm.{kind}.sat.{self.suffix(target)}.{self.suffix(source)}"
        return self.b.call(self.type(target), name, (self.type(source), v))
