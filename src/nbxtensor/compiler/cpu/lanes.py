"""The lane lattice: what is known of a value across the lanes of a vector.

`Uniform` (one scalar for all lanes) < `Affine` (scalar base plus a constant pattern, maybe times a scalar) < `Vector`.
`Pointer` is a scalar base address with an offset, in elements, from the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbxtensor.compiler.cpu.builder import Builder, int_vector, llvm_type

_MAX_TZ = 62


@dataclass(frozen=True, slots=True)
class Uniform:
    """A scalar. `low`..`high` bound an integer, `zeros` is the number of low bits known to be zero."""

    elem: str
    v: str
    const: int | float | None = None
    low: int | None = None
    high: int | None = None
    zeros: int = 0


@dataclass(frozen=True, slots=True)
class Affine:
    """``base + pattern[lane] * scale`` in the arithmetic of `elem` (an integer type)."""

    elem: str
    base: Uniform
    pattern: tuple[int, ...]
    scale: Uniform | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    elem: str
    v: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """``base + offset`` elements of type `elem` (the pointee)."""

    elem: str
    base: str
    offset: Uniform | Affine | Vector


Lane = Uniform | Affine | Vector | Pointer
Number = Uniform | Affine | Vector


def int_bits(elem: str) -> int:
    return int(elem[1:])


def wrap(value: int, elem: str) -> int:
    """`value` as a signed integer of type `elem` (bool: 0 or 1)."""
    bits = int_bits(elem)
    value &= (1 << bits) - 1
    if bits == 1:
        return value
    return value - (1 << bits) if value >> (bits - 1) else value


def int_range(elem: str) -> tuple[int, int]:
    bits = int_bits(elem)
    return (0, 1) if bits == 1 else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _trailing(value: int) -> int:
    return _MAX_TZ if value == 0 else (value & -value).bit_length() - 1


def int_const(value: int, elem: str) -> Uniform:
    value = wrap(value, elem)
    return Uniform(elem, str(value), value, value, value, _trailing(value))


def bounds(value: Uniform) -> tuple[int, int]:
    low, high = int_range(value.elem)
    return (low if value.low is None else value.low, high if value.high is None else value.high)


def span(value: Number) -> tuple[int, int] | None:
    """Smallest and largest true value across lanes, if no lane wraps around; None if that is not known."""
    if isinstance(value, Uniform):
        return bounds(value)
    if isinstance(value, Vector) or value.scale is not None:
        return None
    low, high = bounds(value.base)
    small, large = min(value.pattern), max(value.pattern)
    least, most = int_range(value.elem)
    if small >= 0 and large < 1 << value.base.zeros:
        # base is a multiple of 2^zeros and the pattern stays below it: no carry, so no wrap
        return low, min(most, high + large)
    if low + small >= least and high + large <= most:
        return low + small, high + large
    return None


def _fit(elem: str, low: int, high: int) -> tuple[int | None, int | None]:
    least, most = int_range(elem)
    return (low, high) if low >= least and high <= most else (None, None)


class Integers:
    """Scalar integer arithmetic that folds constants and keeps bounds."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def add(self, x: Uniform, y: Uniform) -> Uniform:
        if x.const is not None and y.const is not None:
            return int_const(int(x.const) + int(y.const), x.elem)
        if x.const == 0:
            return y
        if y.const == 0:
            return x
        (xl, xh), (yl, yh) = bounds(x), bounds(y)
        low, high = _fit(x.elem, xl + yl, xh + yh)
        name = self.b.put(f"add {x.elem} {x.v}, {y.v}")
        return Uniform(x.elem, name, None, low, high, min(x.zeros, y.zeros))

    def sub(self, x: Uniform, y: Uniform) -> Uniform:
        if x.const is not None and y.const is not None:
            return int_const(int(x.const) - int(y.const), x.elem)
        if y.const == 0:
            return x
        (xl, xh), (yl, yh) = bounds(x), bounds(y)
        low, high = _fit(x.elem, xl - yh, xh - yl)
        name = self.b.put(f"sub {x.elem} {x.v}, {y.v}")
        return Uniform(x.elem, name, None, low, high, min(x.zeros, y.zeros))

    def mul(self, x: Uniform, y: Uniform) -> Uniform:
        if x.const is not None and y.const is not None:
            return int_const(int(x.const) * int(y.const), x.elem)
        if x.const == 1:
            return y
        if y.const == 1:
            return x
        if x.const == 0 or y.const == 0:
            return int_const(0, x.elem)
        corners = [p * q for p in bounds(x) for q in bounds(y)]
        low, high = _fit(x.elem, min(corners), max(corners))
        name = self.b.put(f"mul {x.elem} {x.v}, {y.v}")
        return Uniform(x.elem, name, None, low, high, min(_MAX_TZ, x.zeros + y.zeros))

    def extend(self, x: Uniform, elem: str, signed: bool) -> Uniform:
        """`x` in a wider type."""
        if x.elem == elem:
            return x
        low, high = bounds(x)
        if x.const is not None:
            value = int(x.const)
            if signed and x.elem == "i1":
                value = -value
            elif not signed and value < 0:
                value += 1 << int_bits(x.elem)
            return int_const(value, elem)
        name = self.b.put(f"{'sext' if signed else 'zext'} {x.elem} {x.v} to {elem}")
        if signed and x.elem == "i1":
            low, high = -1, 0
        elif not signed and low < 0:
            low, high = 0, (1 << int_bits(x.elem)) - 1
        return Uniform(elem, name, None, low, high, x.zeros)

    def truncate(self, x: Uniform, elem: str) -> Uniform:
        if x.elem == elem:
            return x
        if x.const is not None:
            return int_const(int(x.const), elem)
        low, high = _fit(elem, *bounds(x))
        name = self.b.put(f"trunc {x.elem} {x.v} to {elem}")
        return Uniform(elem, name, None, low, high, min(x.zeros, int_bits(elem)))


class Lanes:
    """Conversions along the lattice, and integer arithmetic that keeps values low in it."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.ints = Integers(builder)

    def vector(self, x: Number, lanes: int) -> str:
        """`x` as an LLVM vector."""
        if isinstance(x, Vector):
            return x.v
        type = llvm_type(x.elem)
        if isinstance(x, Uniform):
            return self.b.splat(type, lanes, x.v)
        pattern = int_vector(x.elem, [wrap(p, x.elem) for p in x.pattern])
        vector = llvm_type(x.elem, lanes)
        if x.scale is not None:
            pattern = self.b.put(f"mul {vector} {pattern}, {self.b.splat(type, lanes, x.scale.v)}")
        if x.base.const == 0:
            return pattern
        return self.b.put(f"add {vector} {pattern}, {self.b.splat(type, lanes, x.base.v)}")

    def affine(self, base: Uniform, pattern: tuple[int, ...], scale: Uniform | None = None) -> Number:
        """Base plus pattern, as low in the lattice as it goes."""
        if len(set(pattern)) == 1:
            offset = int_const(pattern[0], base.elem)
            if scale is not None:
                offset = self.ints.mul(offset, scale)
            return self.ints.add(base, offset)
        if scale is not None and scale.const is not None:
            factor = int(scale.const)
            return Affine(base.elem, base, tuple(p * factor for p in pattern))
        return Affine(base.elem, base, pattern, scale)

    def add(self, x: Number, y: Number, sign: int = 1) -> Number | None:
        """``x + y`` or ``x - y`` without going to vectors; None if that cannot be."""
        combine = self.ints.add if sign > 0 else self.ints.sub
        if isinstance(x, Uniform) and isinstance(y, Uniform):
            return combine(x, y)
        if isinstance(x, Vector) or isinstance(y, Vector):
            return None
        xb, yb = (x if isinstance(x, Uniform) else x.base), (y if isinstance(y, Uniform) else y.base)
        if isinstance(y, Uniform):
            assert isinstance(x, Affine)
            return Affine(x.elem, combine(xb, yb), x.pattern, x.scale)
        if isinstance(x, Uniform):
            return Affine(x.elem, combine(xb, yb), tuple(sign * p for p in y.pattern), y.scale)
        if x.scale == y.scale:
            pattern = tuple(p + sign * q for p, q in zip(x.pattern, y.pattern, strict=True))
            return self.affine(combine(xb, yb), pattern, x.scale)
        return None

    def mul(self, x: Number, y: Number) -> Number | None:
        if isinstance(x, Uniform) and isinstance(y, Uniform):
            return self.ints.mul(x, y)
        if isinstance(x, Uniform):
            x, y = y, x
        if not isinstance(x, Affine) or not isinstance(y, Uniform):
            return None
        base = self.ints.mul(x.base, y)
        scale = y if x.scale is None else self.ints.mul(x.scale, y)
        return self.affine(base, x.pattern, scale)

    def extend(self, x: Number, elem: str, signed: bool) -> Number | None:
        if isinstance(x, Uniform):
            return self.ints.extend(x, elem, signed)
        reach = span(x)
        if isinstance(x, Affine) and x.scale is None and reach is not None and (signed or reach[0] >= 0):
            low = bounds(x.base)[0]
            return Affine(elem, self.ints.extend(x.base, elem, signed or low < 0), x.pattern)
        return None

    def truncate(self, x: Number, elem: str) -> Number | None:
        if isinstance(x, Uniform):
            return self.ints.truncate(x, elem)
        if isinstance(x, Affine):
            scale = None if x.scale is None else self.ints.truncate(x.scale, elem)
            return Affine(elem, self.ints.truncate(x.base, elem), x.pattern, scale)
        return None

    def index(self, x: Number, lanes: int) -> Number:
        """`x` as a signed 64-bit number."""
        wide = x if x.elem == "i64" else self.extend(x, "i64", True)
        if wide is not None:
            return wide
        v = self.vector(x, lanes)
        return Vector("i64", self.b.put(f"sext {llvm_type(x.elem, lanes)} {v} to {llvm_type('i64', lanes)}"))
