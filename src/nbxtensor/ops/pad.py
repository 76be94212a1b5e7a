"""Padding: ``pad(x, pad_width, value=0, mode="constant")``.

Shapes
    Any, any strides; each axis grows by its two widths, and a negative width removes elements (``constant`` only).
Dtypes
    All; raw bits are kept.
Modes
    ``constant``: `value`. ``edge``: the nearest element. ``reflect``: mirrored without the edge. ``wrap``: cyclic.
Errors
    ArgumentError for an unknown mode or widths that do not fit, ShapeError where an axis would get a negative size.
Guarantee
    universal; exact.
"""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal, SupportsIndex, cast

import numpy as np

from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.base.promotion import cast_scalar, python_scalar
from nbxtensor.kernel import declare
from nbxtensor.ops._categories import check_tensor
from nbxtensor.tensor.create import asarray
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty

Mode = Literal["constant", "edge", "reflect", "wrap"]
MODES: tuple[Mode, ...] = ("constant", "edge", "reflect", "wrap")


def reference(
    x: "np.ndarray[Any, Any]", pad_width: Sequence[tuple[int, int]], value: float = 0, mode: Mode = "constant"
) -> "np.ndarray[Any, Any]":
    if mode == "constant":
        return np.pad(x, pad_width, constant_values=value)
    return np.pad(x, pad_width, mode=mode)


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5), np.float32), ((1, 2), (0, 7)), 2.5
    yield rng.standard_normal((3, 5), np.float32), ((1, 2), (0, 9)), 0, "reflect"
    yield rng.standard_normal((3, 5), np.float32), ((4, 2), (1, 0)), 0, "edge"


def _fill(value: object) -> bool | int | float:
    number = python_scalar(value)
    if number is None:
        raise ArgumentError("nbx.pad", "the value is not a number", got=repr(value), allowed="bool, int or float")
    return number


def _widths(x: Tensor, pad_width: int | Sequence[Any]) -> list[tuple[int, int]]:
    try:
        if not hasattr(pad_width, "__iter__"):
            width = operator.index(cast("SupportsIndex", pad_width))
            return [(width, width)] * x.ndim
        entries = cast("Sequence[Any]", pad_width)
        pairs: list[Any] = [e if hasattr(e, "__iter__") else (e, e) for e in entries]
        widths = [(operator.index(before), operator.index(after)) for before, after in pairs]
    except (TypeError, ValueError):
        raise ArgumentError(
            "nbx.pad",
            "a width is an int or a pair of ints",
            got=repr(pad_width),
            allowed="an int, or one for each axis",
        ) from None
    if len(widths) != x.ndim:
        raise ArgumentError("nbx.pad", "there must be a pair of widths for each axis", got=pad_width)
    return widths


def _positions(mode: Mode, n: int, before: int, after: int) -> "np.ndarray[Any, Any]":
    """Where each element of a padded axis comes from."""
    at = np.arange(-before, n + after, dtype=np.int64)
    if mode == "edge":
        return np.clip(at, 0, n - 1)
    if mode == "wrap" or n == 1:
        return at % n
    at = at % (2 * n - 2)
    return np.minimum(at, 2 * n - 2 - at)


@declare.operator("pad", reference=reference, samples=samples)
def pad(x: Tensor, pad_width: int | Sequence[Any], value: bool | int | float = 0, mode: Mode = "constant") -> Tensor:
    """Surround `x` with more elements.

    Parameters
    ----------
    pad_width
        A pair (before, after) or an int for each axis, or one int for all.
    value
        What ``constant`` fills in.
    mode
        ``constant``, ``edge``, ``reflect`` or ``wrap``.
    """
    check_tensor("pad", x)
    if mode not in MODES:
        raise ArgumentError("nbx.pad", "unknown mode", got=repr(mode), allowed=MODES)
    widths = _widths(x, pad_width)
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, widths, strict=True))
    if any(n < 0 for n in shape):
        raise ShapeError("nbx.pad", "more is removed than there is", got=f"{x.shape} with {widths}")
    if mode != "constant":
        return _pad_by_index(x, widths, mode)
    out = empty(shape, x.dtype, x.device)
    if out.size == 0:
        return out
    inner = out[tuple(slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(shape, widths, strict=True))]
    kept = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True))]
    if inner.size < out.size:
        table["copy_into"](out, cast_scalar(_fill(value), x.dtype, "nbx.pad"))
    if inner.size:
        table["copy_into"](inner, kept)
    return out


def _pad_by_index(x: Tensor, widths: list[tuple[int, int]], mode: Mode) -> Tensor:
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0 or (x.shape[axis] == 0 and before + after):
            raise ArgumentError("nbx.pad", f"widths do not suit mode {mode}", got=f"{x.shape} with {widths}")
        if before or after:
            positions = _positions(mode, x.shape[axis], before, after)
            x = table["take"](x, asarray(positions, device=x.device), axis=axis)
    return x if any(a or b for a, b in widths) else table["copy"](x)
