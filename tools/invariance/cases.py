"""Calls that have rows, found from the operators' declarations, for `tools.invariance`.

A row is what the answer of a call should not depend on beyond itself: a row of the operand, an image of a batch, a line
of indices. Elementwise operators and those along an axis are recognised by their parameters; what needs other operands
is in `FORMS`, and what has no rows in `NO_ROWS`. An operator in none of them is an error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from nbxtensor.base.dtypes import DType, bfloat16, float32, int32, int64
from nbxtensor.base.dtypes import bool as boolean
from nbxtensor.kernel.call_text import Example, Spec, bound, plain, signature
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.dispatch import table

BATCHES = (1, 2, 7, 64, 1000)
FEW = (1, 2, 7)
LENGTHS = (5, 257, 1000, 4097)
USUAL = 257
LONG = 70_001
"""Beyond one group of a sum, and beyond what one program sorts."""
DTYPES = (float32, bfloat16, int32)

NO_ROWS = dict.fromkeys(
    ("arange", "full", "linspace", "ones", "zeros"), "makes a tensor from numbers: no operand has rows"
)
_OPTIONS = ("safe", "descending", "include_initial")
"""Switches of operators along an axis that choose other code."""


@dataclass(frozen=True, slots=True)
class Part:
    """An operand: the shape of its row, or its whole shape where all rows share it.

    Attributes
    ----------
    strides
        Of the whole operand, where it is not contiguous.
    """

    shape: tuple[int, ...]
    dtype: DType = float32
    batched: bool = True
    strides: tuple[int, ...] | None = None

    def spec(self, batch: int, columns: bool) -> Spec:
        """The operand of so many rows."""
        shape = self.shape
        if self.batched:
            shape = (*shape, batch) if columns else (batch, *shape)
        return plain(shape, self.dtype) if self.strides is None else Spec(shape, self.strides, self.dtype)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of call, for any number of rows.

    Attributes
    ----------
    operands
        `Part`, a tuple of them, or a value.
    batches
        Numbers of rows, the first of them 1.
    columns
        The rows are the columns of the operands: they run along the last axis, and the operator goes along the first.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    batches: tuple[int, ...] = BATCHES
    columns: bool = False

    @property
    def parts(self) -> list[Part]:
        """The tensors, those in lists included."""
        flat = (p for o in self.operands for p in (cast("tuple[Any, ...]", o) if isinstance(o, tuple) else (o,)))
        return [p for p in flat if isinstance(p, Part)]

    @property
    def is_usual(self) -> bool:
        """Whether the rows are of the length that is repeated in full, or of none of those that vary."""
        others = {*LENGTHS, LONG} - {USUAL}
        return not any(p.batched and p.shape[-1:] and p.shape[-1] in others for p in self.parts)

    @property
    def as_rows(self) -> "Case":
        """The same call of rows along the last axis."""
        if not self.columns:
            return self
        attributes = tuple((n, -1 if n == "axis" else v) for n, v in self.attributes)
        return replace(self, attributes=attributes, columns=False)

    def example(self, batch: int) -> Example:
        """The call for so many rows."""

        def spec(operand: Any) -> Any:
            if isinstance(operand, Part):
                return operand.spec(batch, self.columns)
            if isinstance(operand, tuple):
                return tuple(spec(o) for o in cast("tuple[Any, ...]", operand))
            return operand

        return bound(self.operator, map(spec, self.operands), dict(self.attributes))

    def __str__(self) -> str:
        return str(self.example(self.batches[0]))


Cases = Iterator[Case]


@dataclass(frozen=True, slots=True)
class Extent:
    """Which lengths and dtypes are tried.

    Attributes
    ----------
    long
        Whether rows of more than 65,536 elements are among them.
    """

    lengths: tuple[int, ...] = LENGTHS
    dtypes: tuple[DType, ...] = DTYPES
    long: bool = True

    def sizes(self) -> Iterator[tuple[int, DType]]:
        """Lengths and dtypes: all lengths of the first dtype, a short and a long one of the others."""
        for number, dtype in enumerate(self.dtypes):
            for n in self.lengths if number == 0 else [n for n in self.lengths if n in (USUAL, max(self.lengths))]:
                yield n, dtype


QUICK = Extent((USUAL,), (float32, int32), long=False)


def elementwise(name: str, extent: Extent, count: int, attributes: Sequence[tuple[str, Any]] = ()) -> Cases:
    """`count` operands of one shape; two operands also with one that all rows share."""
    fixed = tuple(attributes)
    for n, dtype in extent.sizes():
        yield Case(name, (Part((n,), dtype),) * count, fixed)
    if count == 2:
        for dtype in extent.dtypes if extent.long else extent.dtypes[:1]:
            operands = Part((USUAL,), dtype), Part((USUAL,), dtype, False)
            yield Case(name, operands, fixed)


def along_axis(op: Operator, extent: Extent) -> Cases:
    """One operand, along its last axis or its first."""
    parameters, axis = signature(op.function), ("axis", -1)
    for n, dtype in extent.sizes():
        yield Case(op.name, (Part((n,), dtype),), (axis,))
    row = Part((USUAL,), extent.dtypes[0])
    for option in _OPTIONS:
        if option in parameters:
            yield Case(op.name, (row,), (axis, (option, True)))
    if "weight" in parameters:
        shared = tuple(Part((USUAL,), row.dtype, False) for p in ("weight", "bias") if p in parameters)
        yield Case(op.name, (row, *shared), (axis,))
    yield Case(op.name, (row,), (("axis", 0),), columns=True)
    if extent.long:
        yield Case(op.name, (Part((LONG,), row.dtype),), (axis,), FEW)


def where(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        yield Case(name, (Part((n,), boolean), Part((n,), dtype), Part((n,), dtype)))


def casts(name: str, extent: Extent) -> Cases:
    for n in extent.lengths:
        for dtype in extent.dtypes:
            for other in (*DTYPES, int64):
                if other is not dtype:
                    yield Case(name, (Part((n,), dtype), other))


def clip(name: str, extent: Extent) -> Cases:
    return elementwise(name, extent, 1, (("max", 2), ("min", -1)))


def approximate(name: str, extent: Extent) -> Cases:
    yield from elementwise(name, extent, 1)
    yield from elementwise(name, extent, 1, (("approximate", "tanh"),))


def topk(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        for largest in (True, False):
            attributes = (("axis", -1), ("largest", largest))
            yield Case(name, (Part((n,), dtype), 5), attributes)
    if extent.long:
        yield Case(name, (Part((LONG,)), 50), (("axis", -1),), FEW)


def products(name: str, extent: Extent) -> Cases:
    """A row of the left operand, alone or some of them together, times one matrix or one each."""
    shared = name == "linear"
    for n, dtype in extent.sizes():
        matrix = Part((33, n) if shared else (n, 33), dtype, False)
        bias = (Part((33,), dtype, False),) if shared else ()
        yield Case(name, (Part((n,), dtype), matrix, *bias))
        few = tuple(b for b in BATCHES if b * n <= 300_000)
        yield Case(name, (Part((3, n), dtype), matrix, *bias), batches=few)
        if not shared and n == USUAL:
            operands = Part((4, n), dtype), Part((n, 9), dtype)
            yield Case(name, operands, batches=(1, 2, 7, 64))


def convolutions(name: str, extent: Extent) -> Cases:
    for dtype in (d for d in extent.dtypes if d.is_float):
        bias = Part((6,), dtype, False)

        def weights(*shape: int, dtype: DType = dtype) -> Part:
            return Part(shape, dtype, False)

        line = Part((5, 37), dtype), weights(6, 5, 3), bias
        yield Case(name, line, (("padding", 1),))
        image = Part((3, 9, 11), dtype), weights(6, 3, 3, 3), bias
        yield Case(name, image, (("padding", 1), ("stride", (2, 1))))
        yield Case(name, image, (("dilation", 2), ("padding", 2)), FEW)
        deep = Part((6, 10, 13), dtype), weights(6, 1, 3, 3), bias
        yield Case(name, deep, (("groups", 6),))
        wide = Part((70, 6, 7), dtype), weights(20, 70, 1, 1)
        yield Case(name, wide, (), (1, 2, 7, 64))


def pools(name: str, extent: Extent) -> Cases:
    for dtype in extent.dtypes:
        yield Case(name, (Part((5, 37), dtype), 3), (("padding", 1), ("stride", 2)))
        yield Case(name, (Part((4, 9, 11), dtype), (3, 2)), (("stride", (2, 1)),))
        yield Case(name, (Part((2, 30, 31), dtype), (9, 8)), (("padding", 3),), (1, 2, 7, 64))


def global_pools(name: str, extent: Extent) -> Cases:
    for dtype in extent.dtypes:
        yield Case(name, (Part((4, 9, 11), dtype),))
        yield Case(name, (Part((2, 50, 51), dtype),), batches=(1, 2, 7, 64))


def triangles(name: str, extent: Extent) -> Cases:
    for dtype in extent.dtypes:
        yield Case(name, (Part((17, 19), dtype),), (("k", 1),))


def looked_up(name: str, extent: Extent) -> Cases:
    """A row is one line of indices, of the tensor that is looked into, or of both."""
    for n, dtype in extent.sizes():
        if name == "embedding":
            yield Case(name, (Part((3,), int64), Part((50, n), dtype, False)))
        elif name == "take":
            indices = Part((20,), int64, False)
            yield Case(name, (Part((n,), dtype), indices), (("axis", 1),))
        elif name == "take_along_axis":
            yield Case(name, (Part((n,), dtype), Part((30,), int64)), (("axis", -1),))
        else:
            yield Case(name, (Part((8, n), dtype), Part((5, 1), int64)), (("batch_dims", 1),))


def joined(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        lengths = (n, n, n) if name == "stack" else (n, 1, 7)
        yield Case(name, (tuple(Part((m,), dtype) for m in lengths),), (("axis", 1),))


def repeated(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        if name == "tile":
            yield Case(name, (Part((n,), dtype), (1, 3)))
        else:
            yield Case(name, (Part((n,), dtype), 3), (("axis", 1),))


def padded(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        for mode in ("constant", "reflect", "edge", "wrap"):
            yield Case(name, (Part((n,), dtype), ((0, 0), (2, 3))), (("mode", mode),))


def written(name: str, extent: Extent) -> Cases:
    for n, dtype in extent.sizes():
        yield Case(name, (Part((n,), dtype),) * 2)
        yield Case(name, (Part((n,), dtype), Part((n,), dtype, False)))


Form = Callable[[str, Extent], Cases]
FORMS: dict[str, Form] = {
    "astype": casts,
    "avg_pool": pools,
    "clip": clip,
    "concat": joined,
    "conv": convolutions,
    "copy_into": written,
    "embedding": looked_up,
    "gather_nd": looked_up,
    "gelu": approximate,
    "global_avg_pool": global_pools,
    "global_max_pool": global_pools,
    "linear": products,
    "matmul": products,
    "max_pool": pools,
    "pad": padded,
    "repeat": repeated,
    "stack": joined,
    "take": looked_up,
    "take_along_axis": looked_up,
    "tile": repeated,
    "topk": topk,
    "tril": triangles,
    "triu": triangles,
    "where": where,
}
_ELEMENTWISE: dict[tuple[str, ...], int] = {("x",): 1, ("x1", "x2"): 2}


def is_elementwise(op: Operator) -> bool:
    """Whether the parameters say that every element is a row of its own."""
    return op.name not in FORMS and "axis" not in signature(op.function) and form_of(op) is not None


def form_of(op: Operator) -> Form | None:
    """What makes an operator's cases; None: nothing does."""
    if op.name in FORMS:
        return FORMS[op.name]
    parameters = signature(op.function)
    needed = tuple(n for n, p in parameters.items() if p.default is p.empty)
    if "axis" in parameters:
        return (lambda _, extent: along_axis(op, extent)) if needed == ("x",) else None
    count = _ELEMENTWISE.get(needed)
    return None if count is None else lambda name, extent: elementwise(name, extent, count)


def without_cases() -> list[str]:
    """Operators that have neither cases nor a reason to have none."""
    table["add"]  # loads every operator
    return sorted(n for n, op in operators.items() if n not in NO_ROWS and form_of(op) is None)


def all_cases(extent: Extent, only: Sequence[str] = ()) -> dict[str, list[Case]]:
    """The cases of every operator that has rows, or of those named."""
    table["add"]
    found: dict[str, list[Case]] = {}
    for name in only or sorted(operators):
        form = None if name in NO_ROWS else form_of(operators[name])
        if form is not None:
            found[name] = list(form(name, extent))
    return found
