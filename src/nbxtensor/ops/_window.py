"""Sliding windows: what convolution and pooling share in checking arguments and in finding places."""

from collections.abc import Sequence
from dataclasses import dataclass

from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.base.shapes import as_ints
from nbxtensor.base.text import counted

Sizes = int | Sequence[int]
Padding = int | Sequence[int | Sequence[int]]


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: taps, their distance, the step between places, and the padding on both sides."""

    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements from the first tap to the last, both included."""
        return tuple(d * (t - 1) + 1 for t, d in zip(self.taps, self.dilation, strict=True))

    def places(self, sizes: Sequence[int], function: str, ceil: bool = False) -> tuple[int, ...]:
        """Number of places along each axis; `ceil`: a last place may leave the padded input if it starts before."""
        places: list[int] = []
        axes = zip(sizes, self.reach, self.stride, self.before, self.after, strict=True)
        for size, reach, stride, before, after in axes:
            room = size + before + after - reach
            if room < 0:
                raise ShapeError(
                    function,
                    "the window is larger than the padded input",
                    got=f"window {self.reach} over sizes {tuple(sizes)}",
                    mend="pad more, or dilate less",
                )
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + before:
                count -= 1
            places.append(count)
        return tuple(places)


def _ints(value: object, name: str, function: str, allowed: str) -> tuple[int, ...]:
    """`value`, an int or a sequence of ints, as a tuple."""
    try:
        return as_ints(value, function)
    except ShapeError:
        raise ArgumentError(function, f"{name} does not fit", got=repr(value), allowed=allowed) from None


def per_axis(value: Sizes, rank: int, name: str, function: str, least: int = 1) -> tuple[int, ...]:
    """`value`, one number for every axis or one for each, as a tuple; numbers below `least` are refused."""
    allowed = f"an int or {counted(rank, 'int')}, at least {least}"
    numbers = _ints(value, name, function, allowed)
    if isinstance(value, int):
        numbers = numbers * rank
    if len(numbers) != rank or any(n < least for n in numbers):
        raise ArgumentError(function, f"{name} does not fit", got=repr(value), allowed=allowed)
    return numbers


def padding_of(value: Padding, rank: int, function: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each axis from an int, one int an axis, or one pair an axis."""
    allowed = f"an int, {counted(rank, 'int')} or {counted(rank, 'pair')} (before, after), at least 0"
    parts = (value,) * rank if isinstance(value, int) else value
    pairs = [_ints(p, "padding", function, allowed) for p in parts]
    pairs = [p * 2 if len(p) == 1 else p for p in pairs]
    if len(pairs) != rank or any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise ArgumentError(function, "padding does not fit", got=repr(value), allowed=allowed)
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def window_of(taps: tuple[int, ...], stride: Sizes, padding: Padding, dilation: Sizes, function: str) -> Window:
    """The window that arguments of an operator describe."""
    rank = len(taps)
    before, after = padding_of(padding, rank, function)
    return Window(
        taps,
        per_axis(stride, rank, "stride", function),
        per_axis(dilation, rank, "dilation", function),
        before,
        after,
    )
