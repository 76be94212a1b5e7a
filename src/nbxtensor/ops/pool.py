"""Pooling: ``max_pool(x, kernel)``, ``avg_pool(x, kernel)``, ``global_max_pool(x)``, ``global_avg_pool(x)``.

Shapes
    x (batch, channels, *spatial) with one to three spatial axes, any strides. Padding makes a padded copy first.
Dtypes
    max_pool: all that have arithmetic. avg_pool: float16, bfloat16, float32, computed in float32 and rounded once.
Errors
    ShapeError, ArgumentError, DTypeError.
Special values
    A NaN in a window gives NaN; -0.0 is below 0.0. Padding never counts in max_pool.
Accuracy
    avg_pool adds the elements of a window in row-major order from the first, then divides: ``n / 2 + 1`` ULP of the
    mean magnitude. The global pools are `max` and `mean`.
Guarantee
    universal.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import DTypeError, ShapeError
from nbxtensor.base.shapes import merge_dims
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.order import key_to_float32, key_to_float64, key_to_uint64, largest_key
from nbxtensor.kernel.reduce import keep, reduce_kernel
from nbxtensor.kernel.rows import offset_of, power_of_two
from nbxtensor.ops._windows import Padding, PerAxis, Windows, pairs, per_axis, windows
from nbxtensor.ops.conv import FLOATS, Ints
from nbxtensor.ops.max import max as largest_of
from nbxtensor.ops.mean import mean
from nbxtensor.tensor.create import asarray
from nbxtensor.tensor.tensor import Tensor, new


@kernel
def _loaded(pointers, inside, AVERAGE: tl.constexpr, WHOLE: tl.constexpr):
    if WHOLE:
        value = tl.load(pointers)
    else:
        value = tl.load(pointers, mask=inside, other=0)
    if AVERAGE:
        value = value.to(tl.float32)
    else:
        value = largest_key(value)
    return value


@kernel
def pool_kernel(
    x, divisor, out, n_rows, n_columns, window, lead, shape, x_strides, x_column, kernel_shape, kernel_strides,
    FINISH: tl.constexpr, AVERAGE: tl.constexpr, DIVISORS: tl.constexpr, COLUMN_UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A tile of results: rows are all axes but the last. DIVISORS: one for each place, else the size of the window."""
    blocks = tl.cdiv(n_columns, BLOCK_COLUMNS)
    program = tl.program_id(0).to(tl.int64)
    rows = program // blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = program % blocks * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (rows < n_rows)[:, None] & (columns < n_columns)[None, :]
    if COLUMN_UNIT:
        pointers = x + offset_of(rows, shape, x_strides)[:, None] + columns[None, :]
    else:
        pointers = x + offset_of(rows, shape, x_strides)[:, None] + (columns * x_column)[None, :]
    acc = _loaded(pointers, inside, AVERAGE, WHOLE)
    for q in range(1, window):
        value = _loaded(pointers + offset_of(q.to(tl.int64), kernel_shape, kernel_strides), inside, AVERAGE, WHOLE)
        if AVERAGE:
            acc = acc + value
        else:
            acc = tl.maximum(acc, value)
    if AVERAGE:
        if DIVISORS:
            place = (rows % lead)[:, None] * n_columns + columns[None, :]
            acc = tl.div_rn(acc, tl.load(divisor + place, mask=inside, other=1.0))
        else:
            acc = tl.div_rn(acc, window.to(tl.float32))
    else:
        acc = FINISH(acc, window)
    value = cast(acc, out.dtype.element_ty)
    target = out + (rows[:, None] * n_columns + columns[None, :])
    if WHOLE:
        tl.store(target, value)
    else:
        tl.store(target, value, mask=inside)


@lru_cache(maxsize=1024)
def _plan(
    name: str,
    device: Device,
    dtype: DType,
    strides: Ints,
    out: Ints,
    kernel_shape: Ints,
    steps: Ints,
    spread: Ints,
    divisors: bool,
) -> Plan:
    moves = (*strides[:2], *(s * t for s, t in zip(strides[2:], steps, strict=True)))
    shape, (x_strides,) = merge_dims(out[:-1], [moves[:-1]])
    windows, (window_strides,) = merge_dims(kernel_shape, [[s * d for s, d in zip(strides[2:], spread, strict=True)]])
    rows, columns = prod(out[:-1]), out[-1]
    block_columns = min(512, power_of_two(columns))
    block_rows = max(1, min(power_of_two(rows), 1024 // block_columns))
    finish: KernelFunction = keep
    if dtype.is_float:
        finish = key_to_float64 if dtype is dtypes.float64 else key_to_float32
    elif dtype is dtypes.uint64:
        finish = key_to_uint64
    arguments: dict[str, Argument] = {
        "x": Pointer(dtype),
        **({"divisor": Pointer(dtypes.float32)} if divisors else {}),
        "out": Pointer(dtype),
        "n_rows": rows,
        "n_columns": columns,
        "window": prod(kernel_shape),
        "lead": prod(out[2:-1]),
        "shape": shape,
        "x_strides": x_strides,
        "x_column": moves[-1],
        "kernel_shape": windows,
        "kernel_strides": window_strides,
    }
    constants: dict[str, Constant] = {
        **({} if divisors else {"divisor": None}),
        "FINISH": finish,
        "AVERAGE": name == "avg_pool",
        "DIVISORS": divisors,
        "COLUMN_UNIT": moves[-1] == 1,
        "BLOCK_ROWS": block_rows,
        "BLOCK_COLUMNS": block_columns,
        "WHOLE": rows % block_rows == 0 and columns % block_columns == 0,
    }
    grid = (-(-rows // block_rows) * -(-columns // block_columns), 1, 1)
    return Plan(name, pool_kernel, device, grid, arguments, constants, Options(), prod(out) * prod(kernel_shape))


def _divisors(sizes: Ints, seen: Windows, pads: Ints) -> "np.ndarray[Any, Any]":
    """How many elements of each window are no padding."""
    counts = np.ones((), np.float32)
    for n, k, s, p, c in zip(sizes, seen.kernel, seen.strides, pads, seen.places, strict=True):
        start = np.arange(c) * s - p
        inside = np.maximum(np.minimum(start + k, n) - np.maximum(start, 0), 1)
        counts = counts[..., None] * inside.astype(np.float32)
    return counts


def _pool(
    name: str, x: Tensor, kernel_size: PerAxis, stride: Any, padding: Padding, dilation: PerAxis, include_pad: bool
) -> Tensor:
    lowest = (float("-inf") if x.dtype.is_float else x.dtype.minimum) if name == "max_pool" else 0
    steps = kernel_size if stride is None else stride
    seen = windows(name, x, kernel_size, steps, padding, dilation, lowest or 0)
    out = new((*x.shape[:2], *seen.places), x.dtype, x.device)
    if out.size == 0:
        return out
    divisors = name == "avg_pool" and seen.x is not x and not include_pad
    fixed = (out.shape, seen.kernel, seen.strides, seen.dilations)
    plan = _plan(name, x.device, x.dtype, seen.x.strides, *fixed, divisors)
    if divisors:
        before = tuple(a for a, _ in pairs(name, padding, x.ndim - 2))
        counts = asarray(_divisors(x.shape[2:], seen, before), device=x.device)
        plan.run(seen.x.ptr, counts.ptr, out.ptr)
    else:
        plan.run(seen.x.ptr, out.ptr)
    return out


def _windows(x: "np.ndarray[Any, Any]", kernel: Any, stride: Any, padding: Any, value: float) -> Any:
    rank = x.ndim - 2
    size, steps = (per_axis("", "", v, rank) for v in (kernel, kernel if stride is None else stride))
    wide = np.pad(x, ((0, 0), (0, 0), *pairs("", padding, rank)), constant_values=value)
    view = np.lib.stride_tricks.sliding_window_view(wide, size, tuple(range(2, x.ndim)))
    view = view[(slice(None), slice(None), *(slice(None, None, s) for s in steps))]
    return view.reshape(*view.shape[: 2 + rank], -1)


def reference_max_pool(x: "np.ndarray[Any, Any]", kernel: Any, stride: Any = None, padding: Any = 0) -> Any:
    lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    return _windows(x, kernel, stride, padding, lowest).max(axis=-1)


def reference_avg_pool(
    x: "np.ndarray[Any, Any]", kernel: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
) -> "np.ndarray[Any, Any]":
    total = _windows(x.astype(np.float64), kernel, stride, padding, 0.0)
    if count_include_pad:
        return total.mean(axis=-1)
    return total.sum(axis=-1) / _windows(np.ones_like(x, np.float64), kernel, stride, padding, 0.0).sum(axis=-1)


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((2, 3, 19), np.float32), 3
    yield rng.standard_normal((2, 3, 9, 12), np.float32), (3, 2), (2, 1), 1
    yield rng.standard_normal((1, 2, 5, 6, 7), np.float32), 2


@operator("max_pool", kernels=(pool_kernel,), reference=reference_max_pool, samples=samples)
def max_pool(
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
) -> Tensor:
    """Largest element of every window.

    Parameters
    ----------
    kernel
        Size of the window: an int, or one for each spatial axis.
    stride
        Step from window to window; the size of the window by default.
    padding
        Around the input: one number, one for each spatial axis, or pairs (before, after); never the result.
    dilation
        Distance of the elements of a window.
    """
    if x.dtype.storage_only:
        raise DTypeError("nbx.nn.max_pool", "the dtype has no order", got=x.dtype, mend="convert with astype first")
    return _pool("max_pool", x, kernel, stride, padding, dilation, True)


@operator("avg_pool", kernels=(pool_kernel,), reference=reference_avg_pool, samples=samples)
def avg_pool(
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    *,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of every window; see `max_pool` for the other parameters.

    Parameters
    ----------
    count_include_pad
        Whether padding counts as zeros; if not, the divisor is the number of true elements.
    """
    if x.dtype not in FLOATS:
        raise DTypeError("nbx.nn.avg_pool", "unsupported dtype", got=x.dtype, allowed=map(str, FLOATS))
    return _pool("avg_pool", x, kernel, stride, padding, 1, count_include_pad)


def _spatial(x: Tensor, function: str) -> Ints:
    if x.ndim < 3:
        raise ShapeError(function, "there are no spatial axes", got=x.shape, allowed="(batch, channels, *spatial)")
    return tuple(range(2, x.ndim))


@operator("global_max_pool", kernels=(reduce_kernel,))
def global_max_pool(x: Tensor) -> Tensor:
    """Largest element of every channel; spatial axes keep size 1."""
    return largest_of(x, axis=_spatial(x, "nbx.nn.global_max_pool"), keepdims=True)


@operator("global_avg_pool", kernels=(reduce_kernel,))
def global_avg_pool(x: Tensor) -> Tensor:
    """Mean of every channel; spatial axes keep size 1."""
    return mean(x, axis=_spatial(x, "nbx.nn.global_avg_pool"), keepdims=True)
