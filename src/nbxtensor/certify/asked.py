"""Calls that a command line asks for: ``--op layer_norm --shapes 65536x1024 --shapes 1024:bfloat16 --attr eps=1``."""

import json
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError
from nbxtensor.certify.example import WITHOUT_TENSORS, Example, Spec, parse_spec, plain, signature
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.dispatch import table

FUNCTION = "nbxtensor certify"
SYNTAX = (
    "sizes as 65536x1024, then @STRIDES and :DTYPE if wanted, as in 64x1024@2048x1:bfloat16; =2.5 is a Python scalar"
)
_NEEDED: dict[str, Any] = {
    "k": 8, "kernel": 3, "pad_width": 1, "repeats": 2, "repetitions": (2,), "fill_value": 0, "dtype": dtypes.float32,
}  # fmt: skip
"""What stands for required arguments that are no tensors."""
_PACKS = frozenset(("concat", "stack"))
SCALAR = 2.0


def operator_named(name: str) -> Operator:
    """The declared operator of this name.

    Raises
    ------
    ArgumentError
        There is none.
    """
    table["add"]  # loads every operator
    if name not in operators:
        import difflib  # for a typing error

        close = difflib.get_close_matches(name, operators, 3)
        mend = (
            f"did you mean {' or '.join(close)}?" if close else "nbxtensor certify --list shows calls of all operators"
        )
        raise ArgumentError(FUNCTION, "there is no such operator", got=name, mend=mend)
    return operators[name]


def operand(text: str, default: DType) -> Any:
    """The operand that a text describes; see `SYNTAX`."""
    if text == "-":
        return SCALAR
    if text.startswith("="):
        return parse_value(text[1:])
    spec = parse_spec(text, default)
    if spec is None:
        raise ArgumentError(FUNCTION, "not a shape", got=text, allowed=SYNTAX)
    return spec


def parse_value(text: str) -> Any:
    """The value of an attribute: JSON, a dtype's name, or a text; lists become tuples."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return getattr(dtypes, text, text)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def sample_dtypes(op: Operator) -> list[DType | None]:
    """Dtypes of the operands of the operator's first sample that are no floats (indices, conditions), else None."""
    if op.samples is None:
        return []
    found: list[DType | None] = []
    for operand in next(iter(op.samples(np.random.default_rng(0)))):
        if isinstance(operand, np.ndarray):
            array = cast("np.ndarray[Any, Any]", operand)
            found.append(None if array.dtype.kind not in "iub" else dtypes.of_numpy(array.dtype))
    return found


def tensors_needed(op: Operator) -> list[str]:
    """Names of the parameters that must be tensors."""
    parameters = signature(op.function).values()
    return [p.name for p in parameters if p.default is p.empty and "Tensor" in str(p.annotation)]


def example_of(
    name: str, shapes: Sequence[str], dtype: DType | None = None, attributes: Sequence[tuple[str, str]] = ()
) -> Example:
    """A call of an operator.

    Parameters
    ----------
    shapes
        One for each tensor; operands without one are as the first.
    dtype
        Of operands that do not say; by default float32, or what the operator's samples have.
    attributes
        Names and values of other arguments.

    Raises
    ------
    ArgumentError
        The operator does not exist, or a text is wrong.
    """
    op = operator_named(name)
    parameters = signature(op.function)
    given = {
        key: operand(value, dtype or dtypes.float32) if key == "out" else parse_value(value)
        for key, value in attributes
    }
    for key in given:
        if key not in parameters:
            raise ArgumentError(FUNCTION, f"{name} has no such argument", got=key, allowed=list(parameters))
    needed = ["arrays"] if name in _PACKS else tensors_needed(op)
    usual = sample_dtypes(op)
    specs: list[Any] = []
    for position, text in enumerate(shapes):
        own = usual[position] if position < len(usual) else None
        specs.append(operand(text, own or dtype or dtypes.float32))
    if name in WITHOUT_TENSORS:
        return _without_tensors(op, specs, dtype, given)
    same = specs[0].dtype if specs and isinstance(specs[0], Spec) and not any(usual[:1]) else dtypes.float32
    while specs and len(specs) < len(needed) and isinstance(specs[0], Spec):
        own = usual[len(specs)] if len(specs) < len(usual) else None
        specs.append(plain(specs[0].shape, own or dtype or same))
    if len(specs) < max(1, len(needed)):
        raise ArgumentError(FUNCTION, f"{name} needs shapes", got=f"{len(specs)}", allowed=", ".join(needed))
    operands = (tuple(specs),) if name in _PACKS else tuple(specs)
    rank = next((len(s.shape) for s in specs if isinstance(s, Spec)), 0)
    for parameter in parameters.values():
        if parameter.name in given or parameter.name in needed:
            continue
        if parameter.name == "axis" and parameter.default is None and rank > 1:
            given["axis"] = -1
        elif parameter.default is parameter.empty and parameter.name in _NEEDED:
            given[parameter.name] = _NEEDED[parameter.name]
    return Example(name, *_placed(op, operands, given))


def _without_tensors(op: Operator, specs: list[Any], dtype: DType | None, given: dict[str, Any]) -> Example:
    """A call of an operator that makes a tensor: its size is given as a shape, or by its own arguments."""
    first = next(iter(signature(op.function)))
    if specs:
        if not isinstance(specs[0], Spec) or (op.name == "arange" and len(specs[0].shape) != 1):
            raise ArgumentError(FUNCTION, f"{op.name} needs the shape of its result", got=specs[0], allowed=SYNTAX)
        given[first] = specs[0].shape[0] if op.name == "arange" else specs[0].shape
    if first not in given:
        raise ArgumentError(FUNCTION, f"{op.name} needs the shape of its result", allowed=SYNTAX)
    if dtype is not None:
        given.setdefault("dtype", dtype)
    if op.name == "full":
        given.setdefault("fill_value", _NEEDED["fill_value"])
    return Example(op.name, (given.pop(first),), tuple(sorted(given.items())))


def _placed(op: Operator, operands: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """Operands and attributes, arguments that have only a position among the operands."""
    parameters = list(signature(op.function).values())
    for parameter in parameters[len(operands) :]:
        if parameter.kind is not parameter.POSITIONAL_ONLY or parameter.name not in given:
            break
        operands = (*operands, given.pop(parameter.name))
    return operands, tuple(sorted(given.items()))
