"""Maximum and minimum of floats, in compares and bit steps.

Both order -0.0 below 0.0. The propagating forms give NaN if an operand is NaN, the others the operand that is not.
LLVM's intrinsics of this meaning are not right in all versions, so they are not used.
"""

from __future__ import annotations

import struct

from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.casts import Casts

_INTEGER = {"f32": "i32", "f64": "i64"}
_SCALAR = {"f32": "float", "f64": "double"}


def _constant(v: str, elem: str) -> float | None:
    """The value of a literal, alone or repeated in a vector."""
    v = v.removeprefix(f"splat ({_SCALAR[elem]} ").rstrip(")")
    if not v.startswith("0x"):
        return 0.0 if v in ("0.0", "zeroinitializer") else None
    return struct.unpack("<d", struct.pack("<Q", int(v, 16)))[0]


class MinMax:
    """Emits for `lanes` values of one float type; `largest` chooses maximum or minimum."""

    def __init__(self, builder: Builder, lanes: int, elem: str, largest: bool) -> None:
        self.b = builder
        self.casts = Casts(builder, lanes)
        self.elem = elem
        self.float = self.casts.raw(_SCALAR[elem])
        self.int = self.casts.raw(_INTEGER[elem])
        self.bool = self.casts.raw("i1")
        self.beats = "ogt" if largest else "olt"
        self.largest = largest

    def emit(self, a: str, c: str, propagate: bool) -> str:
        for x, y in ((a, c), (c, a)):
            value = _constant(y, self.elem)
            if value is not None and (value != 0.0 if propagate else value == value and self.wins_ties(value)):
                if value != value:
                    break
                # the constant decides ties and, as the second choice of a compare, NaN
                return self.better(y, x) if propagate else self.better(x, y)
        return self.propagating(a, c) if propagate else self.skipping(a, c)

    def wins_ties(self, value: float) -> bool:
        """Whether `value` is the right answer against a zero of either sign."""
        if value != 0.0:
            return True
        return (str(value) == "0.0") == self.largest

    def better(self, x: str, y: str) -> str:
        """x if it is strictly better, else y."""
        wins = self.b.put(f"fcmp {self.beats} {self.float} {x}, {y}")
        return self.b.put(f"select {self.bool} {wins}, {self.float} {x}, {self.float} {y}")

    def bits(self, v: str) -> str:
        return self.casts.cast("bitcast", _SCALAR[self.elem], v, _INTEGER[self.elem])

    def back(self, v: str) -> str:
        return self.casts.cast("bitcast", _INTEGER[self.elem], v, _SCALAR[self.elem])

    def mask(self, predicate: str, x: str, y: str) -> str:
        """All bits where a comparison holds."""
        holds = self.b.put(f"fcmp {predicate} {self.float} {x}, {y}")
        return self.b.put(f"sext {self.bool} {holds} to {self.int}")

    def propagating(self, a: str, c: str) -> str:
        # between equal operands the two picks differ: their bits agree in all but the sign of a zero
        both = "and" if self.largest else "or"
        one, other = self.bits(self.better(a, c)), self.bits(self.better(c, a))
        result = self.b.put(f"{both} {self.int} {one}, {other}")
        nan = self.mask("uno", a, c)
        return self.back(self.b.put(f"or {self.int} {result}, {nan}"))

    def skipping(self, a: str, c: str) -> str:
        missing = self.b.put(f"fcmp uno {self.float} {c}, {c}")
        c = self.b.put(f"select {self.bool} {missing}, {self.float} {a}, {self.float} {c}")
        result = self.bits(self.better(a, c))  # c where they are equal, or where a is NaN
        sign = self.bits(a)
        if self.largest:
            other = self.mask("une", a, c)
            sign = self.b.put(f"or {self.int} {sign}, {other}")
            return self.back(self.b.put(f"and {self.int} {result}, {sign}"))
        same = self.mask("oeq", a, c)
        sign = self.b.put(f"and {self.int} {sign}, {same}")
        return self.back(self.b.put(f"or {self.int} {result}, {sign}"))
