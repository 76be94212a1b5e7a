"""Calls of operators, and the text that stands for one everywhere: ``softmax(float32[64, 1000], axis=0)``.

A tensor is its dtype and shape; an axis whose step is not that of a contiguous tensor has it after a colon:
``float32[64:1, 1000:64]`` is a transposed view, ``float32[64:0, 1000:1]`` repeats one row, ``float32[9:-1]`` runs
backward, ``float32[()]`` has no axis. Other arguments are Python values, and dtypes by name. Calls that are equal have
equal texts: arguments that are the defaults are left out, and only operands have no name.
"""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nan, prod
from typing import Any, cast

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError, NbxError, ShapeError
from nbxtensor.base.shapes import MAX_SIZE, as_shape, contiguous_strides, extent
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.names import function, is_known
from nbxtensor.tensor.tensor import Tensor

FORM = "names of operators and calls of them, as in softmax(float32[64, 1000], axis=0)"
FUNCTION = "read calls"


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor without its values; strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def span(self) -> tuple[int, int]:
        """First element and one past the last, from the first element's address."""
        return extent(self.shape, self.strides) if self.size else (0, 0)

    def __str__(self) -> str:
        contiguous = self.strides == contiguous_strides(self.shape)
        axes = [str(n) if contiguous else f"{n}:{s}" for n, s in zip(self.shape, self.strides, strict=True)]
        return f"{self.dtype.name}[{', '.join(axes) or '()'}]"


def plain(shape: tuple[int, ...], dtype: DType) -> Spec:
    """A contiguous tensor."""
    return Spec(shape, contiguous_strides(shape), dtype)


def place(spec: Spec, device: Device, shift: int = 0) -> Tensor:
    """An uninitialised tensor; `shift` elements lie before it in its memory."""
    low, high = spec.span
    buffer = device.allocate((high - low + shift) * spec.dtype.itemsize)
    return Tensor(buffer, spec.shape, spec.strides, shift - low, spec.dtype, device)


@dataclass(frozen=True, slots=True)
class Example:
    """A call of an operator whose tensors have no values; its text is what `calls_of` reads.

    Attributes
    ----------
    operands
        Arguments without a name: `Spec`, a tuple of them, or a value.
    attributes
        Names and values of the others.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def specs(self) -> list[Spec]:
        """The operands that are tensors, those in lists included."""
        return [s for o in self.operands for s in _specs(o)]

    def map(self, change: Callable[[Spec], Any]) -> list[Any]:
        """The operands with every tensor changed; several as one operand are a list."""
        return [_mapped(o, change) for o in self.operands]

    def with_specs(self, change: Callable[[Spec], Spec]) -> "Example":
        """The same call of other tensors."""
        changed = (tuple(cast("list[Any]", o)) if isinstance(o, list) else o for o in self.map(change))
        return replace(self, operands=tuple(changed))

    def call(self, operands: list[Any], device: Device, **more: Any) -> Any:
        """Call the operator with these operands."""
        run = function(self.operator)
        attributes = {name: place(v, device) if isinstance(v, Spec) else v for name, v in self.attributes} | more
        if "device" in signature(run):
            attributes["device"] = device
        return run(*operands, **attributes)

    def run(self, device: Device) -> Any:
        """Make the call on new tensors of `device`, whose content is whatever it is.

        Raises
        ------
        ArgumentError
            The operator does not take such arguments.
        """
        try:
            return self.call(self.map(lambda spec: place(spec, device)), device)
        except NbxError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError) as error:  # operators trust the types of arguments
            allowed = f"{self.operator}({', '.join(signature(function(self.operator)))})"
            problem = f"{self} is not a call of {self.operator}: {error}"
            raise ArgumentError(FUNCTION, problem, allowed=allowed) from error

    def __str__(self) -> str:
        parts = [*map(_text, self.operands), *(f"{name}={_text(value)}" for name, value in self.attributes)]
        return f"{self.operator}({', '.join(parts)})"


def _specs(operand: Any) -> Iterator[Spec]:
    if isinstance(operand, Spec):
        yield operand
    elif isinstance(operand, tuple):
        for part in cast("tuple[Any, ...]", operand):
            yield from _specs(part)


def _mapped(operand: Any, change: Callable[[Spec], Any]) -> Any:
    if isinstance(operand, Spec):
        return change(operand)
    if isinstance(operand, tuple) and any(True for _ in _specs(operand)):
        return [_mapped(part, change) for part in cast("tuple[Any, ...]", operand)]
    return cast(object, operand)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        parts = [_text(part) for part in cast("tuple[Any, ...]", value)]
        if any(True for _ in _specs(value)):
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(value, str):
        return json.dumps(value)  # in double quotes, so that a shell takes the call in single ones
    return str(value) if isinstance(value, (Spec, DType)) else repr(value)


# Making calls


@lru_cache(maxsize=1024)
def signature(run: Callable[..., Any]) -> Mapping[str, Any]:
    """Parameters of a function by name."""
    import inspect  # not free, and only asked for here

    return inspect.signature(run).parameters


def _plain(value: Any) -> Any:
    """An argument as calls hold it: hashable, and without values of tensors."""
    if isinstance(value, Tensor):
        return Spec(value.shape, value.strides, value.dtype)
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return tuple(_plain(part) for part in cast("Sequence[Any]", value))
    return value


def called(operator: str, values: Mapping[str, Any]) -> Example:
    """The call in which the parameters of a known operator have these values: tensors, `Spec` or Python values."""
    operands: list[Any] = []
    attributes: list[tuple[str, Any]] = []
    least, leading = 0, True
    for name, parameter in signature(function(operator)).items():
        value = _plain(values.get(name, parameter.default))
        if name == "dtype" and value is not None and name in values:
            value = dtypes.dtype(value, f"nbx.{operator}")
        default = _text(value) == _text(parameter.default)
        tensor = not operands or "Tensor" in str(parameter.annotation)
        kind = parameter.kind
        leading = leading and (kind is kind.POSITIONAL_ONLY or (kind is kind.POSITIONAL_OR_KEYWORD and tensor))
        if leading:
            operands.append(value)
            least = least if default else len(operands)
        elif not default and name != "device":  # where a call runs is not part of it
            attributes.append((name, value))
    return Example(operator, tuple(operands[:least]), tuple(attributes))


def bound(operator: str, arguments: Iterable[Any], named: Mapping[str, Any]) -> Example:
    """The call with these arguments; one that the operator does not take is kept as it is, and fails when it runs."""
    import inspect  # not free, and only asked for here

    arguments = tuple(arguments)
    try:
        values = inspect.signature(function(operator)).bind(*arguments, **named).arguments
    except (TypeError, NbxError):
        return Example(operator, tuple(map(_plain, arguments)), tuple((n, _plain(v)) for n, v in named.items()))
    return called(operator, values)


# Reading calls


def calls_of(text: str, known: Callable[[str], Iterable[Example]]) -> list[Example]:
    """The calls in a list like ``sigmoid, softmax(float32[64, 1000])``.

    Parameters
    ----------
    known
        The calls that an operator stands for which is only named.

    Raises
    ------
    ArgumentError
        The text is not such a list, or there is no such operator.
    """
    found: list[Example] = []
    for node in _nodes(text):
        if isinstance(node, ast.Name):
            check_operator(node.id)
            found += known(node.id)
        else:
            found.append(_call(node))
            check_operator(found[-1].operator)
    return found


def call_of(text: str) -> Example:
    """The call that a text stands for; whether there is such an operator is seen when it runs.

    Raises
    ------
    NbxError
        The text is not a call.
    """
    nodes = _nodes(text)
    if len(nodes) != 1:
        raise ArgumentError(FUNCTION, "not a call of an operator", got=text, allowed=FORM)
    return _call(nodes[0])


def check_operator(name: str) -> None:
    """Raise an ArgumentError that lists the operators unless there is one of this name."""
    if not is_known(name):
        import difflib  # for a typing error

        close = difflib.get_close_matches(name, operators, 3)
        mend = f"did you mean {' or '.join(close)}?" if close else ""
        raise ArgumentError(FUNCTION, "there is no such operator", got=name, allowed=sorted(operators), mend=mend)


def _nodes(text: str) -> list[ast.expr]:
    try:
        tree = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArgumentError(FUNCTION, "the calls cannot be read", got=text, allowed=FORM) from error
    return tree.elts if isinstance(tree, ast.List) else [tree]


def _call(node: ast.expr) -> Example:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ArgumentError(FUNCTION, "not an operator or a call of one", got=ast.unparse(node), allowed=FORM)
    named = {k.arg or "**": _value(k.value) for k in node.keywords}
    return bound(node.func.id, map(_value, node.args), named)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _spec(dtypes.dtype(node.value.id, FUNCTION), node.slice)
    if isinstance(node, ast.Name):
        try:
            return dtypes.dtype(node.id)
        except DTypeError:
            return {"inf": inf, "nan": nan}.get(node.id) or _refuse(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        return -value if isinstance(value, (int, float)) else _refuse(node)
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(_value(part) for part in node.elts)
    return node.value if isinstance(node, ast.Constant) else _refuse(node)


def _refuse(node: ast.expr | None) -> Any:
    raise ArgumentError(FUNCTION, "not an argument of an operator", got=node and ast.unparse(node), allowed=FORM)


def _spec(dtype: DType, axes: ast.expr) -> Spec:
    shape: list[int] = []
    steps: list[int | None] = []
    for axis in axes.elts if isinstance(axes, ast.Tuple) else (axes,):
        size, step = (axis.lower, axis.upper) if isinstance(axis, ast.Slice) else (axis, None)
        if isinstance(axis, ast.Slice) and (step is None or axis.step is not None):
            _refuse(axis)
        shape.append(_whole(size))
        if shape[-1] < 0:
            _refuse(size)
        steps.append(None if step is None else _whole(step))
    usual = contiguous_strides(as_shape(shape, FUNCTION))
    spec = Spec(tuple(shape), tuple(u if s is None else s for u, s in zip(usual, steps, strict=True)), dtype)
    low, high = spec.span
    if (high - low) * dtype.itemsize > MAX_SIZE:
        raise ShapeError(FUNCTION, "the tensor reaches over more memory than there can be", got=spec)
    return spec


def _whole(node: ast.expr | None) -> int:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_whole(node.operand)
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        raise ArgumentError(FUNCTION, "a shape is made of whole numbers", got=node and ast.unparse(node), allowed=FORM)
    return node.value
