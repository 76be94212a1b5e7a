"""Softmax and log-softmax over one axis.

``softmax(x)_i = exp(x_i - M) / sum_j exp(x_j - M)`` and ``log_softmax(x)_i = (x_i - M) - log(sum_j exp(x_j - M))``,
where M is the largest element of the row.

Shapes
    Any, any axis, any strides; a result of the same shape. Empty rows and tensors stay empty; a 0-d tensor is one row
    of one element.
Dtypes
    float16, bfloat16, float32 (computed in float32, rounded once).
Errors
    DTypeError for other dtypes, AxisError for a bad axis, ShapeError or DTypeError for an unsuitable `out`.
Special values
    A row with a NaN or +inf, or of -inf alone, is all NaN. With ``safe=True`` a row of -inf alone gives 0
    (log: -inf).
Accuracy
    softmax within 8 ULP of the float32 result; log_softmax within ``2^-22 * max(1, |x - M|, |log sum|)``.
Guarantee
    universal: the same bits on every device, for every setting, batch and kernel.

The exponentials are those of `nbxtensor.kernel.row_exp`; the kernels are in `nbxtensor.ops._softmax_kernels`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import CompileError, DTypeError
from nbxtensor.base.shapes import normalize_axis
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.pointwise import check_out
from nbxtensor.kernel.rows import GROUP, LANES, Rows, cached, power_of_two, rows_of
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._softmax_kernels import softmax_forward_kernel, softmax_forward_looped_kernel
from nbxtensor.tensor.memory import check_writable, separate
from nbxtensor.tensor.tensor import Tensor, new


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run softmax: rows of a block, warps, and whether rows are looped over or held in registers."""

    kept: int
    num_warps: int
    looped: bool


def _fits(setting: Setting, rows: Rows, profile: Profile) -> bool:
    """Whether a program's tile respects the profile: the reduce cap, and registers (two for each element held)."""
    tiles = 1 if setting.looped else -(-rows.length // LANES)
    elements = setting.kept * min(LANES, max(4, power_of_two(rows.length)))
    if elements > profile.reduce_tile_max:
        return False
    if profile.registers_per_thread == 0:
        return True
    return 2 * tiles * elements // (setting.num_warps * profile.warp_size) + 48 <= profile.registers_per_thread


def candidates(rows: Rows, profile: Profile, itemsize: int = 4, log_form: bool = False) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tile = min(LANES, max(4, power_of_two(rows.length)))
    widest = power_of_two(rows.inner)
    if profile.warp_size == 1:
        kept = max(32, 16_384 // tile) if rows.axis == 0 else max(1, 1024 // tile)
        guess = Setting(min(widest, kept), 1, rows.length > LANES or (log_form and rows.length % tile != 0))
        tried = [guess, replace(guess, looped=True)]
    else:
        tiles = -(-rows.length // LANES)
        if rows.axis == 0:
            guess = Setting(min(widest, max(8, 16_384 // (tile * tiles))), 16, tiles > 1)
        else:
            # 2,048 bytes to a warp at least; where rows are masked, several of them hide what the masks cost.
            together = 4 if tile <= 1024 and rows.length % tile else 1
            kept = min(widest, together * max(1, 2048 // (itemsize * tile)))
            guess = Setting(kept, min(16, max(1, power_of_two(kept * tile * tiles // 1024))), tiles > 8)
        tried = [guess, replace(guess, looped=True, num_warps=max(4, guess.num_warps))]
        tried += [Setting(k, w, False) for k in (1, 2, 4, 8, 16, 32) if k <= widest for w in (1, 2, 4, 8, 16)]
    found = tuple(dict.fromkeys(s for s in tried if _fits(s, rows, profile)))
    if not found:
        raise CompileError(
            "nbx.nn.softmax",
            "no setting suits the device",
            got=f"{profile.arch}, rows of {rows.length}",
            allowed=f"tiles of at most {profile.reduce_tile_max} elements",
        )
    return found


def _plan(name: str, x: Tensor, out: Tensor, axis: int, safe: bool, setting: Setting | None) -> Plan:
    rows = rows_of(x.shape, (axis,), (x.strides, out.strides))
    log_form = name == "log_softmax"
    setting = candidates(rows, x.device.profile, x.dtype.itemsize, log_form)[0] if setting is None else setting
    n = rows.length
    tile = min(LANES, max(4, power_of_two(n)))
    blocks = -(-rows.inner // setting.kept)
    arguments: dict[str, Argument] = {
        "x": Pointer(x.dtype),
        "out": Pointer(out.dtype),
        "n": n,
        "inner": rows.inner,
        "blocks": blocks,
        "x_inner": rows.inner_strides[0],
        "out_inner": rows.inner_strides[1],
        "outer": rows.outer,
        "x_outer": rows.outer_strides[0],
        "out_outer": rows.outer_strides[1],
        "reduced": rows.reduced,
        "x_reduced": rows.reduced_strides[0],
        "out_reduced": rows.reduced_strides[1],
    }
    constants: dict[str, Constant] = {
        "SHAPE": rows.shape(setting.kept, tile),
        "X_FLAGS": rows.flags(0),
        "OUT_FLAGS": rows.flags(1),
        "TAIL": rows.tail(tile, x.device.profile),
        "LOG": log_form,
        "SAFE": safe,
    }
    if setting.looped:
        groups = -(-n // GROUP)
        constants["GROUPS"] = 1 if groups == 1 else min(LANES, max(4, power_of_two(groups)))
        constants["GROUP_SIZE"] = GROUP
        constants["STASH"] = not log_form and x.device.profile.warp_size == 1 and out.dtype is dtypes.float32
    else:
        constants["TILES"] = -(-n // tile)
    return Plan(
        name,
        softmax_forward_looped_kernel if setting.looped else softmax_forward_kernel,
        x.device,
        (rows.programs * blocks, 1, 1),
        arguments,
        constants,
        Options(num_warps=setting.num_warps),
        x.size,
    )


_plans: dict[Any, Plan] = {}


def run(name: str, x: Tensor, axis: int, safe: bool, out: Tensor | None, setting: Setting | None = None) -> Tensor:
    if type(x) is Tensor and out is None and type(axis) is int:
        known = _plans.get((name, axis, safe, setting, x.form))
        if known is not None:
            result = new(x.shape, x.dtype, x.device)
            known.run(x.ptr, result.ptr)
            return result
    if check_tensor(f"nn.{name}", x).dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
        raise DTypeError(f"nbx.nn.{name}", "unsupported dtype", got=x.dtype, allowed="float16, bfloat16, float32")
    position = 0 if x.ndim == 0 and axis in (0, -1) else normalize_axis(axis, x.ndim, f"nbx.nn.{name}")
    if out is None:
        result = new(x.shape, x.dtype, x.device)
    else:
        check_out(name, out, x.shape, x.dtype)
        result = out
        check_writable(out, f"nbx.nn.{name}")
        x = separate(x, out)
    if x.size == 0:
        return result
    safe = bool(safe)
    source, target = (x, result) if x.ndim else (x.reshape(1), result.reshape(1))
    key = (name, axis, safe, setting, x.form, *(() if out is None else (out.form,)))
    plan = cached(_plans, key, lambda: _plan(name, source, target, position, safe, setting))
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
    kernels=(softmax_forward_kernel, softmax_forward_looped_kernel),
    reference=reference_softmax,
    samples=samples,
    ulp={"float32": 8.0, "float16": 1.0, "bfloat16": 1.0},
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
    kernels=(softmax_forward_kernel, softmax_forward_looped_kernel),
    reference=reference_log_softmax,
    samples=samples,
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
