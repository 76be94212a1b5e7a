"""The public call that led to a launch, as the arguments of ``nbxtensor certify``: for the error that names it.

It is read from the calling frames, so that calls pay nothing for it.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from types import FrameType
from typing import Any, cast

from nbxtensor.base.dtypes import DType
from nbxtensor.base.shapes import contiguous_strides
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.tensor import Tensor


def operand_text(shape: Sequence[int], strides: Sequence[int], dtype: DType) -> str:
    """A tensor in a few characters: ``64x1024:float32``, ``64x1024@1x64:float32`` with other strides."""
    text = "x".join(map(str, shape)) or "scalar"
    if tuple(strides) != contiguous_strides(tuple(shape)):
        text += "@" + "x".join(map(str, strides))
    return f"{text}:{dtype.name}"


def _runs(frame: FrameType, function: Callable[..., Any]) -> bool:
    """Whether the frame is a call of this function; functions made by one factory differ in what they close over."""
    cells = function.__closure__ or ()
    return all(
        frame.f_locals.get(name) is cell.cell_contents
        for name, cell in zip(frame.f_code.co_freevars, cells, strict=True)
    )


def outermost_call() -> tuple[Operator, FrameType] | None:
    """The declared operator that the user called, and its frame; None if none is in progress on this thread."""
    by_code: dict[object, list[Operator]] = {}
    for op in operators.values():
        by_code.setdefault(getattr(op.function, "__code__", None), []).append(op)
    found: tuple[Operator, FrameType] | None = None
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        for op in by_code.get(frame.f_code, ()):
            if _runs(frame, op.function):
                found = op, frame
        frame = frame.f_back
    return found


def _is_operand(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return bool(items) and all(isinstance(v, Tensor) for v in items)
    return isinstance(value, Tensor)


def _value_text(value: Any) -> str:
    if isinstance(value, DType):
        return value.name
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _operand_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Tensor):
        yield operand_text(value.shape, value.strides, value.dtype)
    elif _is_operand(value):
        for part in value:
            yield from _operand_texts(part)
    else:
        yield f"={_value_text(value)}"


def public_call() -> str:
    """Arguments of ``nbxtensor certify`` that repeat the operator's call in progress; "" if there is none."""
    found = outermost_call()
    if found is None:
        return ""
    op, frame = found
    parameters = list(signature(op.function).parameters.values())
    values = {p.name: frame.f_locals.get(p.name) for p in parameters}
    names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    last = max((i for i, name in enumerate(names) if _is_operand(values[name])), default=-1)
    numbers = [p.name for p in parameters if "Tensor" in str(p.annotation) and isinstance(values[p.name], (int, float))]
    last = max([last, *(names.index(n) for n in numbers if n in names)])
    parts = [f"--op {op.name}"]
    for name in names[: last + 1]:
        parts += [f"--shapes {shlex.quote(text)}" for text in _operand_texts(values[name])]
    for parameter in parameters:
        name, value = parameter.name, values[parameter.name]
        if name in names[: last + 1] or name in ("device", "copy"):
            continue
        if name == "out" and isinstance(value, Tensor):
            parts.append(f"--attr out={operand_text(value.shape, value.strides, value.dtype)}")
        elif name == "axis" or value != parameter.default:
            parts.append(f"--attr {shlex.quote(f'{name}={_value_text(value)}')}")
    return " ".join(parts)
