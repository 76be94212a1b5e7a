"""What each operator promises: its reference on an example's values, and how far a result may be from it."""

from collections.abc import Callable, Mapping
from math import ceil, log
from typing import Any, TypeAlias, cast

import numpy as np

from nbxtensor.base.dtypes import DType
from nbxtensor.kernel.call_text import Example, signature
from nbxtensor.kernel.declare import Operator, operators

Array: TypeAlias = np.ndarray[Any, Any]
Allowed = Callable[[Operator, list[Any], dict[str, Any], Array, float], Array]
"""Largest error in float32 (or float64) of a result: (operator, operands, attributes, expected result, epsilon)."""

_FORMATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}
_LARGEST = {"float16": 65520.0, "bfloat16": 3.3961775292304e38, "float32": 3.4028235677973366e38}
_TINY = 1e-38
_EPS64 = 2.0**-53


def _call(op: Operator, operands: list[Any], attributes: dict[str, Any]) -> Any:
    assert op.reference is not None
    return op.reference(*operands, **attributes)


def _positive(operands: list[Any]) -> list[Any]:
    def change(operand: Any) -> Any:
        if isinstance(operand, np.ndarray):
            values = cast("Array", operand)
            return np.abs(values) if values.dtype.kind == "f" else values
        return operand

    return [change(o) for o in operands]


def _sum(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    n = operands[0].size // max(1, want.size)
    depth = 12 + min(n, 65_536) / 2048 + log(max(1, n / 65_536), 2)
    return depth * eps * _call(op, _positive(operands), attributes)


def _prod(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    return operands[0].size // max(1, want.size) * eps * np.abs(want) + 2.0**-100


def _running(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    own = 16 * ceil(log(max(16, want.size), 16)) + 1
    chain = operands[0].shape[attributes.get("axis", -1)] if eps == _EPS64 else 0  # roundings of the reference itself
    return (own + chain) * eps * _call(op, _positive(operands), attributes)


def _running_prod(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    return want.size * eps * np.abs(want) + 2.0**-100


def _product(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    k = operands[0].shape[-1]
    return (513 + k / 512) * eps * _call(op, _positive(operands), attributes) + _TINY


def _conv(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    return (513 + operands[1][0].size / 512) * eps * _call(op, _positive(operands), attributes) + _TINY


def _avg_pool(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    return operands[0][0, 0].size * eps * _call(op, _positive(operands), attributes) + _TINY


def _log_softmax(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    x = operands[0]
    axis = attributes.get("axis", operands[1] if len(operands) > 1 else -1)
    d = x - x.max(axis=axis, keepdims=True)
    return 4 * eps * np.maximum(1.0, np.maximum(np.abs(d), np.abs(d - want)))


def _norm(op: Operator, operands: list[Any], attributes: dict[str, Any], want: Array, eps: float) -> Array:
    padded: list[Any] = [*operands, None, None]
    x, weight, bias = padded[:3]
    axis, small = attributes.get("axis", -1), attributes.get("eps", 1e-5)
    mean = x.mean(axis=axis, keepdims=True) if op.name == "layer_norm" else 0.0
    sigma = np.sqrt(((x - mean) ** 2).mean(axis=axis, keepdims=True) + small)
    size = (np.abs(x) + np.abs(x).mean(axis=axis, keepdims=True)) / sigma
    size = size if weight is None else size * np.abs(weight)
    return 8 * eps * (size if bias is None else size + np.abs(bias))


BOUNDS: dict[str, Allowed] = {
    "sum": _sum,
    "mean": _sum,
    "prod": _prod,
    "cumulative_sum": _running,
    "cumulative_prod": _running_prod,
    "matmul": _product,
    "linear": _product,
    "conv": _conv,
    "avg_pool": _avg_pool,
    "log_softmax": _log_softmax,
    "layer_norm": _norm,
    "rms_norm": _norm,
}
"""Bounds that are not a number of units in the last place; an operator without either promises exactness."""


def _zeros(shape: Any, **_: Any) -> Array:
    return np.zeros(shape)


def _ones(shape: Any, **_: Any) -> Array:
    return np.ones(shape)


def _full(shape: Any, fill_value: Any = 0, **_: Any) -> Array:
    return np.full(shape, fill_value)


def _reshape(x: Array, shape: Any) -> Array:
    return x.reshape(shape)


def _permute_dims(x: Array, axes: Any) -> Array:
    return x.transpose(axes)


def _broadcast_to(x: Array, shape: Any) -> Array:
    return np.broadcast_to(x, shape)


def _slice_view(x: Array, slices: Any) -> Array:
    return x[tuple(slice(*s) for s in slices)]


def _copy_into(target: Array, source: Any) -> Array:
    return np.broadcast_to(source, target.shape).astype(target.dtype)


def _global_max_pool(x: Array) -> Array:
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


def _tril(x: Array, k: int = 0) -> Array:
    return np.tril(x, k)


def _triu(x: Array, k: int = 0) -> Array:
    return np.triu(x, k)


REFERENCES: dict[str, Callable[..., Any]] = {
    "reshape": _reshape,
    "permute_dims": _permute_dims,
    "broadcast_to": _broadcast_to,
    "slice_view": _slice_view,
    "copy_into": _copy_into,
    "zeros": _zeros,
    "ones": _ones,
    "full": _full,
    "global_max_pool": _global_max_pool,
    "tril": _tril,
    "triu": _triu,
}
"""References of what has none of its own."""


def is_float(array: Array) -> bool:
    """Whether results in this array are held against a bound; others are exact."""
    return array.dtype.name in _FORMATS


def _units(want: Array, dtype: str) -> Array:
    """One unit in the last place of each value's binade."""
    precision, smallest = _FORMATS[dtype]
    _, exponent = np.frexp(np.where(np.isfinite(want), want, 0.0))
    return np.ldexp(1.0, np.maximum(exponent - precision, smallest))


_ROUNDINGS = {"gelu": 6.0}
"""Units by which references themselves may be off in float64, where more than one: the erfc of C libraries."""
_HARMLESS = frozenset(("safe", "stable", "copy"))
"""Arguments that change no result for content that is held against references."""


def reference(example: Example, operands: list[Any], floats: bool = True) -> list[Array] | None:
    """The results in float64 (floats) for NumPy operands; None where no reference is stated for such a call.

    Parameters
    ----------
    floats
        Whether the results are floats: of integers alone NumPy computes some in float16, or divides without a rest.
    """
    op = operators.get(example.operator)
    run = REFERENCES.get(example.operator) or (op.reference if op is not None else None)
    if run is None:
        return None
    attributes = _taken(run, op, dict(example.attributes))
    if attributes is None:
        return None
    with np.errstate(all="ignore"):
        found = run(*_values(example, operands, floats), **attributes)
    results = cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,))
    return [np.asarray(r) for r in results]


def _values(example: Example, operands: list[Any], floats: bool) -> list[Any]:
    """Operands as a reference takes them: floats in float64, and integers too if only they make `floats`."""
    values = _wide(operands)
    if floats and not any(s.dtype.is_float for s in example.specs):
        return [v.astype(np.float64) if isinstance(v, np.ndarray) else v for v in values]
    return values


def _taken(run: Callable[..., Any], op: Operator | None, given: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments as a reference takes them; None if one that matters is none of its parameters."""
    parameters = signature(run)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    declared: Mapping[str, Any] = {} if op is None else signature(op.function)
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name == "out":  # where the results go
            continue
        if open_ended or name in parameters:
            taken[name] = value.numpy if isinstance(value, DType) else value
        elif name not in _HARMLESS and (name not in declared or declared[name].default != value):
            return None
    return taken


def _wide(operand: Any) -> Any:
    if isinstance(operand, (list, tuple)):
        items = cast("list[Any]", operand)
        return type(items)(_wide(o) for o in items)
    if isinstance(operand, np.ndarray):
        values = cast("Array", operand)
        return values if values.dtype.kind in "biu" else values.astype(np.float64)
    return operand


def error(example: Example, operands: list[Any], want: Array, got: Array) -> float:
    """The largest error of a result as a part of what is allowed: at most 1 if it is right; 0: exact."""
    if want.shape != got.shape:
        return float("inf")
    if not got.size:
        return 0.0
    dtype = got.dtype.name
    if not is_float(got):
        return 0.0 if (got == want).all() else float("inf")
    wide, values = np.asarray(want, np.float64), got.astype(np.float64)
    wide = np.where(np.abs(wide) >= _LARGEST.get(dtype, np.inf), np.copysign(np.inf, wide), wide)
    finite = np.isfinite(wide)
    same = (values == wide) | (np.isnan(values) & np.isnan(wide))
    if not same[~finite].all() or not np.isfinite(values[finite]).all():
        return float("inf")
    with np.errstate(all="ignore"):
        allowed = _allowed(example, operands, np.where(finite, wide, 0.0), dtype)
        excess = np.abs(values - wide)[finite] / allowed[finite]
    return float(np.max(np.where(same[finite], 0.0, excess), initial=0.0))


def _allowed(example: Example, operands: list[Any], want: Array, dtype: str) -> Array:
    """The largest error of each element; 0: exact."""
    op = operators.get(example.operator)
    units = _units(want, dtype)
    if op is not None and op.name in BOUNDS:
        eps = _EPS64 if dtype == "float64" else 2.0**-24
        rounded = 0.502 * units if dtype in ("float16", "bfloat16") else 0.0
        slack = 2.0 if dtype == "float64" else 1.0  # the reference is not exact there
        found = BOUNDS[op.name](op, _values(example, operands, floats=True), dict(example.attributes), want, eps)
        return np.broadcast_to(slack * found + rounded + np.ldexp(1.0, _FORMATS[dtype][1]), want.shape)
    ulp = op.ulp.get(dtype, 0.0) if op is not None else 0.0
    if dtype == "float64" and ulp and op is not None:
        ulp += _ROUNDINGS.get(op.name, 1.0)
    return ulp * units
