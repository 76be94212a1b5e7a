"""Tensors made from nothing: full, zeros, ones, arange, linspace, eye; and the triangles of a matrix."""

import math
from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import ARITHMETIC, DType, default_float, default_int, float64, int64
from nbxtensor.base.errors import ArgumentError, ShapeError
from nbxtensor.base.promotion import cast_scalar, check_fits, python_scalar, round_scalar
from nbxtensor.base.shapes import as_shape
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Plan, Pointer, Scalar
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.tuned import FIXED, tuned
from nbxtensor.ops._categories import check_dtype, check_tensor
from nbxtensor.ops.comparison import greater_equal
from nbxtensor.ops.copy import copy_into, where
from nbxtensor.tensor.check import check_count
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import launch_key

Number = bool | int | float


@kernel
def arange_kernel(out_ptr, start, step, n_elements, RESULT: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = base + tl.arange(0, BLOCK_SIZE)
    value = cast(start + offsets.to(start.dtype) * step, RESULT)
    if base + BLOCK_SIZE <= n_elements:
        tl.store(out_ptr + offsets, value)
    else:
        tl.store(out_ptr + offsets, value, mask=offsets < n_elements)


def _steps(name: str, start: Number, step: Number, n: int, dtype: DType, device: Device) -> Tensor:
    """start + i * step, computed in int64 or float64 and rounded once."""
    out = new((n,), dtype, device)
    kind = int64 if isinstance(start, int) and isinstance(step, int) else float64
    cpu = device.profile.warp_size == 1
    block = 4096 if cpu else 1024
    arguments = {"out_ptr": Pointer(dtype), "start": Scalar(kind), "step": Scalar(kind), "n_elements": n}
    constants = {"RESULT": dtype, "BLOCK_SIZE": block}
    options = Options(num_warps=1 if cpu else 4)
    grid = (-(-n // block), 1, 1)
    key = launch_key("arange", kind.name, {"elements": n}, (dtype,), device.target)
    plan = tuned(key, FIXED, lambda _: Plan(name, arange_kernel, device, grid, arguments, constants, options, n))
    convert = int if kind is int64 else float
    plan.run(out.ptr, convert(start), convert(step))
    return out


def _scalar(name: str, what: str, value: object) -> Number:
    number = python_scalar(value)
    if number is None:
        raise ArgumentError(f"nbx.{name}", f"{what} is not a number", got=repr(value), allowed="bool, int or float")
    return number


@operator("full")
def full(
    shape: SupportsIndex | Sequence[int], fill_value: Number, *, dtype: Any = None, device: str | Device | None = None
) -> Tensor:
    """A tensor filled with one value.

    Parameters
    ----------
    shape
        An int or a sequence of ints.
    fill_value
        Python scalar.
    dtype
        Type of the elements; by default bool, int64 or float32, as the value is.
    device
        A device or its name; by default `nbxtensor.default_device`.

    Raises
    ------
    ShapeError
        If a size is negative.
    ArgumentError
        If the value is not a number or does not fit the dtype.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.full((2,), 7)
    Tensor([7, 7], dtype=int64, device='cpu')
    """
    value = _scalar("full", "fill_value", fill_value)
    kind = dtypes.dtype(type(value) if dtype is None else dtype, "nbx.full")
    check_dtype("full", kind, ARITHMETIC)
    if kind.is_integer:
        cast_scalar(value, kind, "nbx.full")
    out = new(as_shape(shape, "nbx.full"), kind, resolve_device(device))
    return copy_into(out, value)


@operator("zeros")
def zeros(shape: SupportsIndex | Sequence[int], *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """A tensor of zeros; float32 unless `dtype` says otherwise. See `full`."""
    return full(shape, 0, dtype=default_float if dtype is None else dtype, device=device)


@operator("ones")
def ones(shape: SupportsIndex | Sequence[int], *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """A tensor of ones; float32 unless `dtype` says otherwise. See `full`."""
    return full(shape, 1, dtype=default_float if dtype is None else dtype, device=device)


def _like(x: Tensor, dtype: Any, device: str | Device | None) -> dict[str, Any]:
    return {"dtype": x.dtype if dtype is None else dtype, "device": x.device if device is None else device}


def full_like(x: Tensor, /, fill_value: Number, *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """A tensor of the shape (and, by default, dtype and device) of `x`, filled with one value. See `full`."""
    return full(check_tensor("full_like", x).shape, fill_value, **_like(x, dtype, device))


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """A tensor of zeros of the shape (and, by default, dtype and device) of `x`."""
    return full(check_tensor("zeros_like", x).shape, 0, **_like(x, dtype, device))


def ones_like(x: Tensor, /, *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """A tensor of ones of the shape (and, by default, dtype and device) of `x`."""
    return full(check_tensor("ones_like", x).shape, 1, **_like(x, dtype, device))


def empty_like(x: Tensor, /, *, dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """An uninitialised tensor of the shape (and, by default, dtype and device) of `x`."""
    check_tensor("empty_like", x)
    kind = x.dtype if dtype is None else dtypes.dtype(dtype, "nbx.empty_like")
    return new(x.shape, kind, x.device if device is None else resolve_device(device))


_HALF = {"float16": 0.5, "bfloat16": 0.5, "float32": 0.5, "float64": 0.5}


def _arange(start: Number, stop: Number | None = None, step: Number = 1, dtype: Any = None) -> "np.ndarray[Any, Any]":
    first, end = (0, start) if stop is None else (start, stop)
    found = first + np.arange(np.arange(first, end, step).size) * step
    return found.astype(dtype) if dtype is not None and np.dtype(dtype).kind in "iu" else found


@operator("arange", kernels=(arange_kernel,), reference=_arange, ulp=_HALF)
def arange(
    start: Number,
    /,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
) -> Tensor:
    """Evenly spaced values start, start + step, ... below `stop` (above it for a negative step).

    Parameters
    ----------
    start
        First value; if `stop` is not given, the end, and 0 is the start.
    stop
        End, not included.
    step
        Distance, not 0.
    dtype
        Type of the elements; by default int64 if all arguments are ints, else float32.
    device
        A device or its name; by default `nbxtensor.default_device`.

    Returns
    -------
    Tensor
        Of shape (max(ceil((stop - start) / step), 0),). Each value is computed as start + i * step in int64 or
        float64 and rounded once.

    Raises
    ------
    ArgumentError
        If the step is 0 or an argument is not a finite number.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.arange(2, 8, 3)
    Tensor([2, 5], dtype=int64, device='cpu')
    """
    if stop is None:
        start, stop = 0, start
    given = (("start", start), ("stop", stop), ("step", step))
    first, last, distance = (_scalar("arange", name, value) for name, value in given)
    if distance == 0 or not all(math.isfinite(v) for v in (first, last, distance)):
        got = f"start {first}, stop {last}, step {distance}"
        raise ArgumentError("nbx.arange", "no such range", got=got, allowed="finite numbers and a step other than 0")
    whole = all(isinstance(v, int) for v in (first, last, distance))
    n = max(-((first - last) // distance) if whole else math.ceil((last - first) / distance), 0)
    kind = dtypes.dtype((default_int if whole else default_float) if dtype is None else dtype, "nbx.arange")
    check_dtype("arange", kind, ARITHMETIC)
    as_shape(n, "nbx.arange")
    if kind.is_integer and n:
        for value in (first, first + (n - 1) * distance):
            check_fits(int(value), kind, "nbx.arange")
    return _steps("arange", first, distance, int(n), kind, resolve_device(device))


@operator("linspace", kernels=(arange_kernel,), reference=np.linspace, ulp=_HALF)
def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values from `start` to `stop`.

    Parameters
    ----------
    start, stop
        First and last value; without `endpoint`, `stop` is the first value left out.
    num
        Number of values, at least 0.
    dtype
        A floating-point type; by default float32.
    device
        A device or its name; by default `nbxtensor.default_device`.
    endpoint
        Whether `stop` is the last value.

    Returns
    -------
    Tensor
        Of shape (num,), each value computed in float64 and rounded once.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32, device='cpu')
    """
    num = check_count(num, "nbx.linspace", "num")
    first, last = (round_scalar(_scalar("linspace", "an end", v), float64, "nbx.linspace") for v in (start, stop))
    if not (math.isfinite(first) and math.isfinite(last)):
        got = f"start {first}, stop {last}"
        raise ArgumentError("nbx.linspace", "an end is not finite", got=got, allowed="finite numbers")
    kind = default_float if dtype is None else dtypes.dtype(dtype, "nbx.linspace")
    check_dtype("linspace", kind, [d for d in ARITHMETIC if d.is_float])
    parts = num - 1 if endpoint else num
    step = (last - first) / parts if parts > 0 else 0.0
    out = _steps("linspace", first, step, num, kind, resolve_device(device))
    if endpoint and num > 1:
        copy_into(out[num - 1], last)
    return out


def _diagonal(name: str, k: object) -> int:
    try:
        return index(k)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise ArgumentError(f"nbx.{name}", "k is not an int", got=repr(k), allowed="an int") from None


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: str | Device | None = None,
) -> Tensor:
    """A matrix with ones on one diagonal and zeros elsewhere.

    Parameters
    ----------
    n_rows, n_cols
        Sizes; a square without `n_cols`.
    k
        Diagonal: 0 the main one, positive above it, negative below.
    dtype
        Type of the elements; by default float32.
    device
        A device or its name; by default `nbxtensor.default_device`.
    """
    n_rows = check_count(n_rows, "nbx.eye", "a size")
    cols = n_rows if n_cols is None else check_count(n_cols, "nbx.eye", "a size")
    k = _diagonal("eye", k)
    out = zeros((n_rows, cols), dtype=dtype, device=device)
    row, col = max(-k, 0), max(k, 0)
    length = min(n_rows - row, cols - col)
    if length > 0:
        copy_into(out.as_view((length,), (cols + 1,), row * cols + col), 1)
    return out


def _triangle(name: str, x: Tensor, k: int, lower: bool) -> Tensor:
    if check_tensor(name, x).ndim < 2:
        raise ShapeError(f"nbx.{name}", "a matrix is needed", got=x.shape, allowed="at least two axes")
    rows, cols = x.shape[-2:]
    k = max(-rows, min(_diagonal(name, k), cols))
    row, col = arange(rows, device=x.device).expand_dims(1), arange(cols, device=x.device)
    keep = greater_equal(row, col - k) if lower else greater_equal(col - k, row)
    return where(keep, x, full((), 0, dtype=x.dtype, device=x.device))


@operator("tril", reference=np.tril)
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices (last two axes): elements above diagonal `k` become 0."""
    return _triangle("tril", x, k, lower=True)


@operator("triu", reference=np.triu)
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices (last two axes): elements below diagonal `k` become 0."""
    return _triangle("triu", x, k, lower=False)
