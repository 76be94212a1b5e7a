"""The public call that led to a launch, for the messages that name it.

It is read from the calling frames, so that calls pay nothing for it.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from nbxtensor.kernel.call_text import called, signature
from nbxtensor.kernel.declare import Operator, operators


def _runs(frame: FrameType, function: Callable[..., Any]) -> bool:
    """Whether the frame is a call of this function; functions made by one factory differ in what they close over."""
    cells = function.__closure__ or ()
    return all(
        frame.f_locals.get(name) is cell.cell_contents
        for name, cell in zip(frame.f_code.co_freevars, cells, strict=True)
    )


def _outermost() -> tuple[Operator, FrameType] | None:
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


def running_call() -> str:
    """The outermost call of a declared operator in progress on this thread, as text; "" if there is none."""
    found = _outermost()
    if found is None:
        return ""
    op, frame = found
    values = {name: frame.f_locals[name] for name in signature(op.function) if name in frame.f_locals}
    return str(called(op.name, values))
