"""Copies, casts and selection, elementwise.

Copies and selections move raw bits (NaN payloads and -0.0 survive); casts are defined by `nbxtensor.kernel.math.cast`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import ARITHMETIC, DType, bool_, uint8, uint16, uint32, uint64
from nbxtensor.base.errors import ArgumentError, DTypeError, ShapeError
from nbxtensor.base.shapes import broadcast_shapes
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.pointwise import Operand, pointwise
from nbxtensor.ops._categories import check_dtype, check_tensor, compute_type, operands, weak
from nbxtensor.ops._samples import Array, pairs, singles
from nbxtensor.ops.arithmetic import maximum_value, minimum_value
from nbxtensor.tensor.tensor import Tensor, new

_BITS: dict[int, DType] = {1: uint8, 2: uint16, 4: uint32, 8: uint64}


@kernel
def same_value(a):
    return a


@kernel
def second_value(a, b):
    return tl.where(a == a, b, b)


@kernel
def where_value(condition, a, b):
    return tl.where(condition, a, b)


@kernel
def clip_value(a, low, high):
    return minimum_value(maximum_value(a, low), high)


def bits(x: Tensor) -> Tensor:
    """The same memory seen as unsigned integers of the element's size."""
    return _seen_as(x, _BITS[x.dtype.itemsize])


def _seen_as(x: Tensor, dtype: DType) -> Tensor:
    return Tensor(x.buffer, x.shape, x.strides, x.offset, dtype, x.device)


@operator("copy", kernels=(same_value,), reference=np.copy, samples=singles)
def copy(x: Tensor, /) -> Tensor:
    """A contiguous copy, bit for bit.

    Parameters
    ----------
    x
        Operand of any shape, strides and dtype.

    Returns
    -------
    Tensor
        Of the same shape and dtype, contiguous, in its own memory.
    """
    check_tensor("copy", x)
    out = new(x.shape, x.dtype, x.device)
    raw = _BITS[x.dtype.itemsize]
    pointwise("copy", same_value, (bits(x),), (raw,), raw, bits(out))
    return out


@operator("copy_into")
def copy_into(target: Tensor, source: Operand, /) -> Tensor:
    """Write `source`, broadcast and converted to the target's dtype, into `target` (a view, usually).

    Parameters
    ----------
    target
        Tensor of any strides without two elements at one address.
    source
        Tensor whose shape broadcasts to the target's, or a Python scalar. It may overlap the target.

    Returns
    -------
    Tensor
        `target`.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    """
    if not isinstance(source, Tensor):
        value = weak("copy_into", source, target.dtype)
        kind = compute_type(target.dtype)
        return pointwise("copy_into", second_value, (target, value), (kind, kind), target.dtype, target)
    if broadcast_shapes(source.shape, target.shape) != target.shape:
        raise ShapeError(
            "nbx.copy_into", "source does not broadcast to the target", got=f"{source.shape} into {target.shape}"
        )
    source = source.broadcast_to(target.shape)
    if source.dtype is target.dtype:
        raw = _BITS[source.dtype.itemsize]
        pointwise("copy_into", same_value, (bits(source),), (raw,), raw, bits(target))
    else:
        pointwise("copy_into", same_value, (source,), (compute_type(source.dtype),), target.dtype, target)
    return target


@operator("astype", kernels=(same_value,))
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True) -> Tensor:
    """Convert to another dtype.

    Parameters
    ----------
    x
        Operand of any shape.
    dtype
        Target dtype (a dtype, its name, or NumPy's).
    copy
        False: return `x` itself if it has the dtype already.

    Returns
    -------
    Tensor
        Floats are rounded to nearest, ties to even; float to integer cuts the fraction, saturates, and gives 0 for
        NaN; integer to narrower integer wraps around; anything but 0 is True.

    Raises
    ------
    DTypeError
        If the dtype is unknown, or is for storage only (float8).
    """
    check_tensor("astype", x)
    target = dtypes.dtype(dtype, "nbx.astype")
    if target is x.dtype:
        return x.copy() if copy else x
    for each in (x.dtype, target):
        check_dtype("astype", each, ARITHMETIC, mend="convert float8 with NumPy and ml_dtypes")
    return pointwise("astype", same_value, (x,), (x.dtype,), target)


def _choices(rng: np.random.Generator) -> Iterator[tuple[Array, Array, Array]]:
    for a, b in pairs(rng):
        yield rng.random(a.shape) < 0.5, a, b


@operator("where", kernels=(where_value,), reference=np.where, samples=_choices)
def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """x1 where the condition holds, else x2, elementwise and bit for bit.

    Parameters
    ----------
    condition
        Tensor of dtype bool.
    x1, x2
        Operands; one or both may be Python scalars. All three shapes broadcast.

    Returns
    -------
    Tensor
        Of the promoted dtype of x1 and x2.

    Raises
    ------
    DTypeError
        If the condition is not bool or the operands do not promote.
    ShapeError
        If the shapes do not broadcast.
    """
    check_tensor("where", condition)
    check_dtype("where", condition.dtype, (bool_,))
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        dtype = dtypes.dtype(type(x1 + x2 if not isinstance(x1, bool) else x2))
        x1, x2 = weak("where", x1, dtype), weak("where", x2, dtype)
        return pointwise("where", where_value, (condition, x1, x2), (bool_, dtype, dtype), dtype)
    a, b, dtype = operands("where", x1, x2, "any")
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype is b.dtype:
        raw = _BITS[dtype.itemsize]
        return _seen_as(pointwise("where", where_value, (condition, bits(a), bits(b)), (bool_, raw, raw), raw), dtype)
    kind = compute_type(dtype)
    return pointwise("where", where_value, (condition, a, b), (bool_, kind, kind), dtype)


def _clip_samples(rng: np.random.Generator) -> Iterator[tuple[Array, int, int]]:
    for (x,) in singles(rng):
        yield x, 1, 3


def clip_reference(x: Array, low: Any = None, high: Any = None) -> Array:
    return np.clip(x, low, high)


@operator(
    "clip",
    kernels=(clip_value,),
    reference=clip_reference,
    samples=_clip_samples,
)
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """min(max(x, min), max), elementwise; NaN passes.

    Parameters
    ----------
    x
        Operand of any shape and a numeric dtype.
    min, max
        Bounds (Python scalars, or tensors that broadcast with `x`); None for no bound. Where min > max, max wins.

    Returns
    -------
    Tensor
        Of the dtype of `x`.

    Raises
    ------
    DTypeError
        If `x` is bool, or a bound and `x` promote to another dtype than that of `x`.
    """
    check_tensor("clip", x)
    kind = compute_type(x.dtype)
    if min is not None and max is not None:
        return pointwise("clip", clip_value, (x, _bound(x, min), _bound(x, max)), (kind,) * 3, x.dtype)
    if min is not None:
        return pointwise("clip", maximum_value, (x, _bound(x, min)), (kind,) * 2, x.dtype)
    if max is not None:
        return pointwise("clip", minimum_value, (x, _bound(x, max)), (kind,) * 2, x.dtype)
    return copy(x)


def _bound(x: Tensor, bound: Operand) -> Operand:
    _, b, dtype = operands("clip", x, bound, "numeric")
    if dtype is not x.dtype:
        if isinstance(bound, Tensor):
            got = f"{bound.dtype.name} bound for {x.dtype.name}"
            raise DTypeError("nbx.clip", "the bound does not fit", got=got, mend="convert one of them with astype")
        raise ArgumentError("nbx.clip", "bound does not fit the dtype", got=bound, allowed=x.dtype.name)
    return b
