"""Joining and repeating: ``concat(arrays, axis)``, ``stack``, ``tile``, ``repeat``.

Shapes
    concat: equal but for the axis (``axis=None`` flattens first). stack: equal. Any strides.
Dtypes
    All; operands of concat and stack are promoted. Raw bits are kept where nothing is converted.
Errors
    ArgumentError for no operands, ShapeError, AxisError, DTypeError, DeviceError.
Guarantee
    universal; exact.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.base.promotion import result_type
from nbxtensor.base.shapes import as_ints, normalize_axis
from nbxtensor.kernel.declare import operator
from nbxtensor.tensor.check import check_count, check_device, check_tensor, check_tensors
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty


def _checked(arrays: Sequence[Tensor], function: str) -> list[Tensor]:
    arrays = check_tensors(arrays, function)
    if not arrays:
        raise ArgumentError(function, "there is nothing to join", got="no tensors")
    for x in arrays:
        check_device(x, arrays[0].device, function)
    return arrays


def _slice(out: Tensor, axis: int, start: int, size: int) -> Tensor:
    shape = (*out.shape[:axis], size, *out.shape[axis + 1 :])
    return out.as_view(shape, out.strides, out.offset + start * out.strides[axis])


def reference_concat(arrays: Sequence["np.ndarray[Any, Any]"], axis: int | None = 0) -> "np.ndarray[Any, Any]":
    return np.concatenate(arrays, axis=axis)


def samples_concat(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield [rng.standard_normal((3, n), np.float32) for n in (1, 0, 40)], 1
    yield [rng.standard_normal((n, 5), np.float32) for n in (2, 7)], 0


@operator("concat", reference=reference_concat, samples=samples_concat)
def concat(arrays: Sequence[Tensor], axis: int | None = 0) -> Tensor:
    """Join tensors along an existing axis.

    Parameters
    ----------
    arrays
        At least one tensor; all sizes but those of `axis` are equal.
    axis
        The axis, or None to join the flattened tensors.
    """
    arrays = _checked(arrays, "nbx.concat")
    first = arrays[0]
    if axis is None:
        arrays, axis = [x.reshape(-1) for x in arrays], 0
        first = arrays[0]
    a = normalize_axis(axis, first.ndim, "nbx.concat")
    for x in arrays:
        if x.ndim != first.ndim or x.shape[:a] + x.shape[a + 1 :] != first.shape[:a] + first.shape[a + 1 :]:
            raise ShapeError(
                "nbx.concat",
                f"sizes differ on an axis other than {a}",
                got=f"{first.shape} and {x.shape}",
            )
    total = sum(x.shape[a] for x in arrays)
    out = empty((*first.shape[:a], total, *first.shape[a + 1 :]), result_type(*(x.dtype for x in arrays)), first.device)
    start = 0
    for x in arrays:
        if x.size:
            table["copy_into"](_slice(out, a, start, x.shape[a]), x)
        start += x.shape[a]
    return out


def reference_stack(arrays: Sequence["np.ndarray[Any, Any]"], axis: int = 0) -> "np.ndarray[Any, Any]":
    return np.stack(arrays, axis=axis)


def samples_stack(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield [rng.standard_normal((3, 5), np.float32) for _ in range(3)], 1


@operator("stack", reference=reference_stack, samples=samples_stack)
def stack(arrays: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Parameters
    ----------
    axis
        Where the new axis is in the result.
    """
    arrays = _checked(arrays, "nbx.stack")
    first = arrays[0]
    for x in arrays:
        if x.shape != first.shape:
            raise ShapeError("nbx.stack", "the shapes differ", got=f"{first.shape} and {x.shape}")
    a = normalize_axis(axis, first.ndim + 1, "nbx.stack")
    return concat([x.expand_dims(a) for x in arrays], axis=a)


def reference_tile(x: "np.ndarray[Any, Any]", repetitions: Sequence[int]) -> "np.ndarray[Any, Any]":
    return np.tile(x, tuple(repetitions))


def samples_tile(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5), np.float32), (2, 3)
    yield rng.standard_normal((3, 5), np.float32), (4, 1, 2)


@operator("tile", reference=reference_tile, samples=samples_tile)
def tile(x: Tensor, repetitions: Sequence[int]) -> Tensor:
    """Lay copies of `x` side by side.

    Parameters
    ----------
    repetitions
        Copies along each axis; the shorter of shape and repetitions is filled up with ones in front.
    """
    check_tensor(x, "nbx.tile")
    counts = tuple(check_count(r, "nbx.tile", "a count") for r in as_ints(repetitions, "nbx.tile"))
    ndim = max(x.ndim, len(counts))
    sizes = (1,) * (ndim - x.ndim) + x.shape
    counts = (1,) * (ndim - len(counts)) + counts
    spread = x.reshape(tuple(v for n in sizes for v in (1, n)))
    whole = spread.broadcast_to(tuple(v for r, n in zip(counts, sizes, strict=True) for v in (r, n)))
    return table["copy"](whole).reshape(tuple(r * n for r, n in zip(counts, sizes, strict=True)))


def reference_repeat(x: "np.ndarray[Any, Any]", repeats: int, axis: int | None = None) -> "np.ndarray[Any, Any]":
    return np.repeat(x, repeats, axis=axis)


def samples_repeat(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5), np.float32), 3, 0
    yield rng.standard_normal((3, 5), np.float32), 2


@operator("repeat", reference=reference_repeat, samples=samples_repeat)
def repeat(x: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat every element along `axis` (None: of the flattened tensor).

    Parameters
    ----------
    repeats
        How often, the same for all elements.
    """
    check_tensor(x, "nbx.repeat")
    repeats = check_count(repeats, "nbx.repeat", "the count")
    if axis is None:
        x, axis = x.reshape(-1), 0
    a = normalize_axis(axis, x.ndim, "nbx.repeat")
    spread = x.expand_dims(a + 1).broadcast_to((*x.shape[: a + 1], repeats, *x.shape[a + 1 :]))
    return table["copy"](spread).reshape((*x.shape[:a], x.shape[a] * repeats, *x.shape[a + 1 :]))
