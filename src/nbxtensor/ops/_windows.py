"""Sliding windows over the spatial axes of ``[N, C, ...]``: what convolution and pooling have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

PerAxis: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | Sequence[int | tuple[int, int]]
MAX_RANK = 3


def per_axis(function: str, name: str, value: PerAxis, rank: int) -> tuple[int, ...]:
    """One positive number for each of `rank` spatial axes; a single int stands for all."""
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank or any(v < 1 for v in values):
        raise ArgumentError(f"nbx.nn.{function}", f"{name} needs {rank} positive numbers", got=value)
    return values


def pairs(function: str, padding: Padding, rank: int) -> tuple[tuple[int, int], ...]:
    """Padding (before, after) of each of `rank` spatial axes."""
    entries = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    found = tuple((e, e) if isinstance(e, int) else (int(e[0]), int(e[1])) for e in entries)
    if len(found) != rank or any(p < 0 for pair in found for p in pair):
        raise ArgumentError(f"nbx.nn.{function}", f"padding needs {rank} numbers or pairs of at least 0", got=padding)
    return found


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over a padded tensor.

    Attributes
    ----------
    x
        The padded tensor.
    kernel, dilations, strides
        Size, step inside and step between windows, per spatial axis.
    places
        Number of windows along each spatial axis.
    """

    x: Tensor
    kernel: tuple[int, ...]
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    places: tuple[int, ...]


def windows(
    function: str,
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis,
    padding: Padding,
    dilation: PerAxis,
    filler: float,
) -> Windows:
    """Check the geometry and pad `x` with `filler` where it needs it."""
    rank = x.ndim - 2
    if not 1 <= rank <= MAX_RANK:
        raise ShapeError(
            f"nbx.nn.{function}", "the tensor must be [N, C] and spatial axes", got=x.shape, allowed="3 to 5 axes"
        )
    sizes = per_axis(function, "kernel", kernel, rank)
    strides = per_axis(function, "stride", stride, rank)
    dilations = per_axis(function, "dilation", dilation, rank)
    pads = pairs(function, padding, rank)
    places = tuple(
        (n + before + after - d * (k - 1) - 1) // s + 1
        for n, k, s, d, (before, after) in zip(x.shape[2:], sizes, strides, dilations, pads, strict=True)
    )
    if any(n < 1 for n in places):
        raise ShapeError(
            f"nbx.nn.{function}", "the kernel is larger than the padded input", got=f"{x.shape}, kernel {sizes}"
        )
    if any(p for pair in pads for p in pair):
        x = table["pad"](x, ((0, 0), (0, 0), *pads), filler)
    return Windows(x, sizes, dilations, strides, places)
