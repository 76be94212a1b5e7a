"""What a device says when its memory is used up."""

import gc
import sys
from collections.abc import Callable
from typing import Any

from nbxtensor.base.errors import OutOfMemoryError

_PACKAGE = __name__.partition(".")[0]
_NAMED = 3  # live blocks that a message names


def operation() -> str:
    """Name of the public function of ours that the caller of the package is in."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    name = "allocate"
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            name = frame.f_code.co_qualname
        frame = frame.f_back
    return f"nbx.{name.rpartition('.')[2].strip('_')}"  # x + y is add


def largest(is_live: Callable[[Any], bool]) -> str:
    """The largest buffers for which `is_live` holds, with the shapes of the tensors on them; slow, for messages."""
    buffers: list[Any] = [b for b in gc.get_objects() if is_live(b)]
    buffers.sort(key=lambda b: b.nbytes, reverse=True)
    names: list[str] = []
    for buffer in buffers[:_NAMED]:
        text = f"{buffer.nbytes:,} bytes"
        for holder in gc.get_referrers(buffer):
            shape, dtype = getattr(holder, "shape", None), getattr(holder, "dtype", None)
            if shape is not None and dtype is not None:
                text += f" ({dtype} {tuple(shape)})"
                break
        names.append(text)
    return ", ".join(names) or "none"


def out_of_memory(
    device: str, nbytes: int, memory: tuple[int, int], is_live: Callable[[Any], bool]
) -> OutOfMemoryError:
    """The error of a request for `nbytes` bytes where `memory` holds the bytes free and in all."""
    free, total = memory
    return OutOfMemoryError(
        operation(),
        f"{device} has too little memory: {nbytes:,} bytes asked, {free:,} of {total:,} free; "
        f"largest live tensors: {largest(is_live)}",
        mend="free tensors, or work in smaller batches",
    )
