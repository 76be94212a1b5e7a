"""Operators on small values that the host knows: shapes, sizes, indices and the arithmetic that makes them.

Each function is the NumPy twin of the operator of the same name and gives the same values. Floats are taken only
where IEEE arithmetic leaves one answer. `evaluate` returns None where a value is too large for the host or an
operator has no twin; the call then runs on the device like any other.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from nbxtensor.base.dtypes import DType

Array = np.ndarray[Any, Any]

INTEGER_LIMIT = 1 << 16
FLOAT_LIMIT = 1 << 10


def is_small(array: Array) -> bool:
    """Whether the host computes with `array` itself."""
    if array.dtype.kind in "biu":
        return array.size <= INTEGER_LIMIT
    return array.dtype.kind == "f" and array.size <= FLOAT_LIMIT


def _reshape(x: Array, shape: Sequence[int]) -> Array:
    return x.reshape(tuple(shape))


def _astype(x: Array, dtype: DType) -> Array | None:
    target = np.dtype(dtype.numpy)
    if target.kind not in "biuf":
        return None
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        if not bool(np.all(np.isfinite(x) & (x > limits.min) & (x < limits.max))):
            return None
    with np.errstate(over="ignore"):
        return x.astype(target)


def _slice_view(x: Array, slices: Sequence[tuple[int | None, int | None, int]]) -> Array:
    return x[tuple(slice(*s) for s in slices)]


def _take(x: Array, indices: Array, axis: int) -> Array | None:
    if indices.size * max(x.size // max(x.shape[axis], 1), 1) > INTEGER_LIMIT:
        return None
    return np.take(x, indices, axis=axis)


def _concat(parts: list[Array], axis: int) -> Array:
    return np.concatenate(parts, axis=axis)


def _remainder(x: Array, y: Array) -> Array | None:
    return np.remainder(x, y) if np.all(y) else None


def _floor_divide(x: Array, y: Array) -> Array | None:
    return np.floor_divide(x, y) if np.all(y) else None


def _sum(x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False, dtype: DType | None = None) -> Array:
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=None if dtype is None else dtype.numpy))


def _prod(x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False, dtype: DType | None = None) -> Array:
    return np.asarray(np.prod(x, axis=axis, keepdims=keepdims, dtype=None if dtype is None else dtype.numpy))


def _max(x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Array | None:
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims)) if x.size else None


def _min(x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Array | None:
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims)) if x.size else None


ELEMENTWISE: dict[str, Callable[..., Array | None]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "where": np.where,
}
ELEMENTWISE_INTEGER: dict[str, Callable[..., Array | None]] = {
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "abs": np.abs,
    "negative": np.negative,
    "sign": np.sign,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_invert": np.invert,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
}
ELEMENTWISE_FLOAT: dict[str, Callable[..., Array | None]] = {
    "divide": np.divide,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
}
STRUCTURAL: dict[str, Callable[..., Array | None]] = {
    "reshape": _reshape,
    "permute_dims": np.transpose,
    "broadcast_to": np.broadcast_to,
    "slice_view": _slice_view,
    "take": _take,
    "concat": _concat,
    "astype": _astype,
}
INTEGER_REDUCTIONS: dict[str, Callable[..., Array | None]] = {"sum": _sum, "prod": _prod, "max": _max, "min": _min}


def evaluate(op: str, operands: Sequence[Any], attributes: dict[str, Any]) -> Array | None:
    """The result of `op` on NumPy arrays (and lists of them) and literals, or None where the host does not compute it.

    What NumPy raises on operands that do not fit is passed on.
    """
    flat: list[Any] = [a for o in operands for a in (cast("list[Any]", o) if isinstance(o, list) else [o])]
    arrays: list[Array] = [a for a in flat if isinstance(a, np.ndarray)]
    floats = any(a.dtype.kind not in "biu" for a in arrays)
    twin = STRUCTURAL.get(op)
    if twin is None:
        twin = ELEMENTWISE.get(op) or (ELEMENTWISE_FLOAT if floats else ELEMENTWISE_INTEGER).get(op)
        if twin is not None:
            if prod(np.broadcast_shapes(*[a.shape for a in arrays])) > INTEGER_LIMIT:
                return None
        elif not floats:
            twin = INTEGER_REDUCTIONS.get(op)
    if twin is None or not all(is_small(a) for a in arrays):
        return None
    with np.errstate(all="ignore"):
        result = twin(*operands, **attributes)
    if result is None or not is_small(np.asarray(result)):
        return None
    return np.asarray(result)
