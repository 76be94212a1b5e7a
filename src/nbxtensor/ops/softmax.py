"""Softmax and log-softmax over one axis.

``softmax(x)_i = exp(x_i - M) / sum_j exp(x_j - M)`` and ``log_softmax(x)_i = (x_i - M) - log(sum_j exp(x_j - M))``,
where M is the largest element of the row.

Shapes
    Any, any axis, any strides; a result of the same shape. Empty rows and tensors stay empty; a 0-d tensor is one row
    of one element.
Dtypes
    float16, bfloat16, float32 (computed in float32, rounded once), float64 (computed in float64).
Errors
    DTypeError for other dtypes, AxisError for a bad axis, ShapeError or DTypeError for an unsuitable `out`.
Special values
    A row with a NaN or +inf, or of -inf alone, is all NaN. With ``safe=True`` a row of -inf alone gives 0
    (log: -inf).
Accuracy
    softmax within 8 ULP in float32 and float64 (5.1 and 5.9 seen), within 1 ULP in 16 bits. log_softmax within
    ``2^-22 * max(1, |x - M|, |log sum|)`` in float32, ``2^-50`` times the same in float64, within 1 ULP in 16 bits.
Guarantee
    universal: the same bits on every device, for every setting, batch and kernel.

The exponentials are those of `nbxtensor.kernel.row_exp`. The kernels are in `nbxtensor.ops._softmax_kernels` (rows held
in registers), `_softmax_columns`, `_softmax_looped`, `_softmax_split`, `_softmax_split_write` and `_softmax_spread`,
their settings in `_softmax_settings`, the launches in `_softmax_plans`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base.errors import DTypeError
from nbxtensor.base.shapes import normalize_axis
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.pointwise import check_out
from nbxtensor.kernel.rows import cached, rows_of
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._softmax_columns import softmax_columns_kernel
from nbxtensor.ops._softmax_kernels import softmax_forward_kernel
from nbxtensor.ops._softmax_looped import softmax_forward_looped_kernel
from nbxtensor.ops._softmax_plans import Case, Runs, launches
from nbxtensor.ops._softmax_settings import Setting, candidates
from nbxtensor.ops._softmax_split import softmax_split_groups_kernel, softmax_split_lanes_kernel
from nbxtensor.ops._softmax_split_write import softmax_split_write_kernel
from nbxtensor.ops._softmax_spread import softmax_spread_finish_kernel, softmax_spread_lanes_kernel
from nbxtensor.tensor.memory import apart, check_writable, separate
from nbxtensor.tensor.tensor import Tensor, new

KERNELS = (
    softmax_forward_kernel,
    softmax_columns_kernel,
    softmax_forward_looped_kernel,
    softmax_split_lanes_kernel,
    softmax_split_groups_kernel,
    softmax_split_write_kernel,
    softmax_spread_lanes_kernel,
    softmax_spread_finish_kernel,
)

INF, NAN = float("inf"), float("nan")
SPECIAL: tuple[tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]], ...] = (
    ((-INF, -INF, -INF), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((INF, 1.0, 2.0), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((INF, INF, -INF), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((NAN, 1.0, 2.0), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((-INF, NAN, -INF), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((INF, -INF, NAN), (NAN, NAN, NAN), (NAN, NAN, NAN)),
    ((1.0, -INF, -INF), (1.0, 0.0, 0.0), (0.0, -INF, -INF)),
    ((1e14, 1.0, -1e14), (1.0, 0.0, 0.0), (0.0, -1e14, -2e14)),
    ((-3e38, 3e38, 0.0), (0.0, 1.0, 0.0), (-INF, 0.0, -3e38)),
    ((-1e30, -1e30, -1e30), (1 / 3, 1 / 3, 1 / 3), (-1.0986122886681098,) * 3),
    ((0.0, -0.0, 0.0), (1 / 3, 1 / 3, 1 / 3), (-1.0986122886681098,) * 3),
    ((0.0, -200.0, 0.0), (0.5, 0.0, 0.5), (-0.6931471805599453, -200.69314718055995, -0.6931471805599453)),
    (
        (17.0, 0.0, -INF),
        (0.9999999586006244, 4.139937547e-08, 0.0),
        (-4.1399376330897483e-08, -17.00000004139938, -INF),
    ),
)
"""Rows of float32, their softmax and their log_softmax."""


def _plan(name: str, x: Tensor, out: Tensor, axis: int, safe: bool, new_out: bool, setting: Setting | None) -> Runs:
    rows = rows_of(x.shape, (axis,), (x.strides, out.strides))
    case = Case(name, rows, x.dtype, x.device, safe, new_out)
    if setting is not None:
        return launches(case, setting)
    found = candidates(rows, x.device.profile, x.dtype.itemsize, case.log)
    return tuned(case.key, found, lambda chosen: launches(case, chosen))


_plans: dict[Any, Runs] = plan_cache()


def run(name: str, x: Tensor, axis: int, safe: bool, out: Tensor | None, setting: Setting | None = None) -> Tensor:
    if type(x) is Tensor and type(axis) is int and type(safe) is bool:
        if out is None:
            known = _plans.get((name, axis, safe, setting, x.form))
            if known is not None:
                result = new(x.shape, x.dtype, x.device)
                known.run(x.ptr, result.ptr)
                return result
        elif type(out) is Tensor and not out.buffer.readonly:
            known = _plans.get((name, axis, safe, setting, x.form, out.form))
            if known is not None and apart(x, out):
                known.run(x.ptr, out.ptr)
                return out
    if not check_tensor(f"nn.{name}", x).dtype.is_float or x.dtype.itemsize == 1:
        allowed = "float16, bfloat16, float32, float64"
        raise DTypeError(f"nbx.nn.{name}", "unsupported dtype", got=x.dtype, allowed=allowed)
    position = normalize_axis(axis, x.ndim or 1, f"nbx.nn.{name}")
    axis, safe = int(axis), bool(safe)
    if out is None:
        result = new(x.shape, x.dtype, x.device)
    else:
        check_out(name, out, x.shape, x.dtype, x.device)
        result = out
        check_writable(out, f"nbx.nn.{name}")
        x = separate(x, out)
    if x.size == 0:
        return result
    source, target = (x, result) if x.ndim else (x.reshape(1), result.reshape(1))
    key = (name, axis, safe, setting, x.form, *(() if out is None else (out.form,)))
    plan = cached(_plans, key, lambda: _plan(name, source, target, position, safe, out is None, setting))
    plan.run(source.ptr, target.ptr)
    return result


def reference_softmax(x: "np.ndarray[Any, Any]", axis: int = -1) -> "np.ndarray[Any, Any]":
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def reference_log_softmax(x: "np.ndarray[Any, Any]", axis: int = -1) -> "np.ndarray[Any, Any]":
    wide = x.astype(np.float64)
    d = wide - wide.max(axis=axis, keepdims=True)
    at = np.argmax(wide, axis=axis, keepdims=True)
    e = np.exp(d)
    np.put_along_axis(e, at, 0.0, axis=axis)
    return d - np.log1p(e.sum(axis=axis, keepdims=True))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((5, 33), np.float32) * 8, -1
    yield rng.standard_normal((6, 7, 3), np.float32), 1
    yield rng.standard_normal((2, 4097), np.float32), -1


@operator(
    "softmax",
    kernels=KERNELS,
    reference=reference_softmax,
    samples=samples,
    special=tuple((row, soft) for row, soft, _ in SPECIAL),
    ulp={"float64": 8.0, "float32": 8.0, "float16": 1.0, "bfloat16": 1.0},
)
def softmax(x: Tensor, axis: int = -1, *, safe: bool = False, out: Tensor | None = None) -> Tensor:
    """Softmax over one axis.

    Parameters
    ----------
    axis
        The axis along which the result sums to 1.
    safe
        Give 0 instead of NaN for a row of -inf alone.
    out
        Tensor to write into, of the shape and dtype of `x`; it may be `x` itself.
    """
    return run("softmax", x, axis, safe, out)


@operator(
    "log_softmax",
    kernels=KERNELS,
    reference=reference_log_softmax,
    samples=samples,
    special=tuple((row, log) for row, _, log in SPECIAL),
)
def log_softmax(x: Tensor, axis: int = -1, *, safe: bool = False, out: Tensor | None = None) -> Tensor:
    """Logarithm of the softmax over one axis, accurate also where the softmax is 0 or nearly 1.

    Parameters
    ----------
    axis
        The axis of the softmax.
    safe
        Give -inf instead of NaN for a row of -inf alone.
    out
        Tensor to write into, of the shape and dtype of `x`; it may be `x` itself.
    """
    return run("log_softmax", x, axis, safe, out)
