"""Calls of operators as text: ``softmax(float32[64, 1000], axis=-1)``.

A tensor is its dtype and shape; an axis whose step is not that of a contiguous tensor has it after a colon
(``float32[64:1, 1000:64]`` is a transposed view). The other arguments are Python values, and dtypes by name.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError
from nbxtensor.base.shapes import contiguous_strides
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

FORM = "names of operators and calls of them, as in softmax(float32[64, 1000], axis=-1)"


def argument_text(value: object) -> str:
    """One argument as `calls_of` reads it."""
    if isinstance(value, Tensor):
        contiguous = value.strides == contiguous_strides(value.shape)
        axes = [str(n) if contiguous else f"{n}:{s}" for n, s in zip(value.shape, value.strides, strict=True)]
        return f"{value.dtype.name}[{', '.join(axes) or '()'}]"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (list, tuple)):
        parts = [argument_text(part) for part in cast("list[object]", value)]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return repr(value)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a declared operator, of which only the text is known."""

    name: str
    arguments: tuple[ast.expr, ...]
    keywords: tuple[tuple[str, ast.expr], ...]
    text: str

    def run(self, device: Device) -> None:
        """Make the call on tensors of `device`, whose content is whatever it is."""
        values = [_value(node, device) for node in self.arguments]
        named = {name: _value(node, device) for name, node in self.keywords}
        function: Callable[..., object] = operators[self.name].function
        try:
            function(*values, **named)
        except TypeError as error:
            raise ArgumentError("pack", f"{self.text} is not a call of {self.name}", got=str(error)) from error


def calls_of(text: str, known: Callable[[str], Sequence[str]]) -> list[Call]:
    """The calls in a list like ``sigmoid, softmax(float32[64, 1000])``.

    Parameters
    ----------
    known
        The usual calls of an operator that is only named.

    Raises
    ------
    ArgumentError
        The text is not such a list, or there is no such operator.
    """
    try:
        tree = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArgumentError("pack", "the list of operators cannot be read", got=text, allowed=FORM) from error
    found: list[Call] = []
    for node in tree.elts if isinstance(tree, ast.List) else ():
        if isinstance(node, ast.Name):
            _check_operator(node.id)
            for usual in known(node.id):
                found += calls_of(usual, lambda _: ())
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            _check_operator(node.func.id)
            named = tuple((k.arg or "", k.value) for k in node.keywords)
            found.append(Call(node.func.id, tuple(node.args), named, ast.unparse(node)))
        else:
            raise ArgumentError("pack", "not an operator or a call of one", got=ast.unparse(node), allowed=FORM)
    return found


def _check_operator(name: str) -> None:
    table["add"]  # loads every operator
    if name not in operators:
        raise ArgumentError("pack", "there is no such operator", got=name, allowed=sorted(operators))


def _value(node: ast.expr, device: Device) -> Any:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _tensor(dtypes.dtype(node.value.id), node.slice, device)
    if isinstance(node, ast.Name):
        try:
            return dtypes.dtype(node.id)
        except DTypeError:
            return {"inf": float("inf"), "nan": float("nan")}.get(node.id) or _refuse(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand, device)
        return -value if isinstance(value, (int, float)) else _refuse(node)
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = [_value(part, device) for part in node.elts]
        return parts if isinstance(node, ast.List) else tuple(parts)
    if isinstance(node, ast.Constant):
        return node.value
    return _refuse(node)


def _refuse(node: ast.expr | None) -> Any:
    raise ArgumentError("pack", "not an argument of an operator", got=node and ast.unparse(node), allowed=FORM)


def _tensor(dtype: DType, axes: ast.expr, device: Device) -> Tensor:
    shape: list[int] = []
    steps: list[int | None] = []
    for axis in axes.elts if isinstance(axes, ast.Tuple) else (axes,):
        size, step = (axis.lower, axis.upper) if isinstance(axis, ast.Slice) else (axis, None)
        shape.append(_whole(size))
        if shape[-1] < 0:
            _refuse(size)
        steps.append(None if step is None else _whole(step))
    strides = tuple(c if s is None else s for c, s in zip(contiguous_strides(tuple(shape)), steps, strict=True))
    reach = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
    offset = sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if s < 0) if reach else 0
    return Tensor(device.allocate(reach * dtype.itemsize), tuple(shape), strides, offset, dtype, device)


def _whole(node: ast.expr | None) -> int:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_whole(node.operand)
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        raise ArgumentError("pack", "a shape is made of whole numbers", got=node and ast.unparse(node), allowed=FORM)
    return node.value
