"""Calls in short: an operator and the shapes of its operands, as in ``--op softmax --shapes 65536x1024,4096x384``."""

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError
from nbxtensor.base.shapes import as_shape
from nbxtensor.kernel.call_text import Example, called, check_operator, plain, signature
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.names import function

FUNCTION = "nbxtensor certify"
_NEEDED: dict[str, Any] = {
    "k": 8, "kernel": 3, "pad_width": 1, "repeats": 2, "repetitions": (2,), "fill_value": 0, "dtype": dtypes.float32,
}  # fmt: skip
"""What stands for required arguments that are no tensors."""
_JOINING = frozenset(("concat", "stack"))
Shape = tuple[int, ...]


def shape_of(text: str) -> Shape:
    """The shape in ``64x1000``."""
    if not re.fullmatch(r"[0-9]{1,18}(x[0-9]{1,18})*", text):
        mend = "write other operands out in a call: --op 'exp(float32[64:1, 1000:64])'"
        raise ArgumentError(FUNCTION, "not a shape", got=text, allowed="sizes, as in 64x1000", mend=mend)
    return as_shape(list(map(int, text.split("x"))), FUNCTION)


def sample_dtypes(op: Operator | None) -> list[DType | None]:
    """Dtypes of the operands of the operator's first sample that are no floats (indices, conditions), else None."""
    if op is None or op.samples is None:
        return []
    found: list[DType | None] = []
    for operand in next(iter(op.samples(np.random.default_rng(0)))):
        if isinstance(operand, np.ndarray):
            array = cast("np.ndarray[Any, Any]", operand)
            found.append(None if array.dtype.kind not in "iub" else dtypes.of_numpy(array.dtype))
    return found


def tensors_needed(name: str) -> list[str]:
    """Names of the parameters that must be tensors."""
    parameters = signature(function(name)).values()
    return [p.name for p in parameters if p.default is p.empty and "Tensor" in str(p.annotation)]


def example_of(name: str, shapes: Sequence[Shape], dtype: DType | None = None, **given: Any) -> Example:
    """A call of an operator.

    Parameters
    ----------
    shapes
        One for each tensor; operands without one are as the first. Of an operator that takes none: of its result.
    dtype
        By default float32; operands that are indices or conditions in the operator's samples stay so.
    given
        Other arguments by name.

    Raises
    ------
    ArgumentError
        The operator does not exist, or takes no such operands.
    """
    check_operator(name)
    parameters = signature(function(name))
    needed, usual = tensors_needed(name), sample_dtypes(operators.get(name))
    values = dict(given)
    if name in _JOINING:
        values["arrays"] = tuple(plain(shape, dtype or dtypes.float32) for shape in shapes)
    elif needed and shapes:
        shapes = [*shapes, *[shapes[0]] * (len(needed) - len(shapes))]
        kinds = [*usual, *[None] * len(shapes)]
        for parameter, shape, kind in zip(parameters, shapes, kinds, strict=False):
            values[parameter] = plain(shape, kind or dtype or dtypes.float32)
    elif shapes:
        values[next(iter(parameters))] = shapes[0][0] if name == "arange" else shapes[0]
        if dtype is not None and "dtype" in parameters:
            values.setdefault("dtype", dtype)
    for parameter in parameters.values():
        if parameter.name == "axis" and parameter.default is None and shapes and len(shapes[0]) > 1:
            values.setdefault("axis", -1)
        elif parameter.default is parameter.empty and parameter.name in _NEEDED:
            values.setdefault(parameter.name, _NEEDED[parameter.name])
    missing = [p.name for p in parameters.values() if p.default is p.empty and p.name not in values]
    if missing or not shapes or len(shapes) > (99 if name in _JOINING else len(parameters)):
        mend = "give one --shapes for each operand, or write the call out, as in --op 'topk(float32[64, 1000], k=8)'"
        wanted = ", ".join(missing or needed)
        raise ArgumentError(FUNCTION, f"{name} needs other shapes", got=f"{len(shapes)}", allowed=wanted, mend=mend)
    return called(name, values)
