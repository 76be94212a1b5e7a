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

The exponentials are those of `nbxtensor.kernel.row_exp`, summed in the canonical order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import CompileError, DTypeError
from nbxtensor.base.shapes import normalize_axis
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.pointwise import check_out
from nbxtensor.kernel.reduce import add_group, minus_zero, tree_sum
from nbxtensor.kernel.row_exp import log_sum, minus_log_sum, quotient, reciprocal_sum, row_exp, row_terms
from nbxtensor.kernel.rows import (
    GROUP,
    LANES,
    Rows,
    filled,
    in_row,
    kept_block,
    layout,
    load_tile,
    offset_of,
    per_row,
    power_of_two,
    rows_of,
    store_tile,
)
from nbxtensor.tensor.memory import check_writable, separate
from nbxtensor.tensor.tensor import Tensor, empty


@kernel
def _tile_terms(v, valid, largest, terms, SHAPE: tl.constexpr, LOG: tl.constexpr, TAIL: tl.constexpr):
    """Exponentials of a tile, what of them counts towards the sum, and (LOG) which elements are largest, left out."""
    e = row_exp(v, per_row(terms[0], SHAPE), per_row(terms[1], SHAPE), per_row(terms[2], SHAPE))
    counted = e
    is_top = v == per_row(largest, SHAPE)
    if LOG:
        vanishes = v - per_row(terms[0], SHAPE) < per_row(terms[1], SHAPE)
        counted = tl.where(is_top | vanishes, minus_zero(tl.float32), e)
    if TAIL:
        counted = tl.where(valid, counted, minus_zero(tl.float32))
        is_top = is_top & valid
    return e, counted, is_top.to(tl.int32)


@kernel
def softmax_forward_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TILES: tl.constexpr, TAIL: tl.constexpr,
    LOG: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """A block of whole rows in registers, as TILES tiles along the row; TAIL: the last one is not full."""
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    values = ()
    for j in tl.static_range(TILES):
        v = load_tile(x, j * TILE, n, rows, x_walk, SHAPE, X_FLAGS, TAIL and j == TILES - 1).to(tl.float32)
        if TAIL and j == TILES - 1:
            v = tl.where(in_row(j * TILE, n, SHAPE), v, float("-inf"))
        if j == 0:
            top = v
        else:
            top = tl.maximum(top, v)
        values += (v,)
    largest = tl.max(top, SHAPE[0])
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest)
    powers = ()
    for j in tl.static_range(TILES):
        valid = in_row(j * TILE, n, SHAPE)
        e, counted, is_top = _tile_terms(values[j], valid, largest, terms, SHAPE, LOG, TAIL and j == TILES - 1)
        powers += (e,)
        if j == 0:
            acc = counted
            tops = is_top
        else:
            acc += counted
            tops += is_top
    total = tree_sum(acc, SHAPE[0])
    if LOG:
        high, low = log_sum(total, tl.sum(tops, SHAPE[0]), largest, terms, lowest, SAFE)
    else:
        scale = reciprocal_sum(total, lowest, SAFE)
    for j in tl.static_range(TILES):
        if LOG:
            y = minus_log_sum(values[j], per_row(high, SHAPE), per_row(low, SHAPE))
        else:
            y = quotient(powers[j], per_row(total, SHAPE), per_row(scale, SHAPE))
        store_tile(out, y, j * TILE, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL and j == TILES - 1)


@kernel
def _row_max(x, n, rows, walk, SHAPE: tl.constexpr, FLAGS: tl.constexpr, TAIL: tl.constexpr):
    """Largest element of each row; NaN does not count (it reaches the result through the sum)."""
    TILE: tl.constexpr = SHAPE[2]
    top = filled(tl.full((), float("-inf"), tl.float32), SHAPE)
    whole = n // TILE * TILE
    for at in range(0, whole, TILE):
        top = tl.maximum(top, load_tile(x, at, n, rows, walk, SHAPE, FLAGS, False).to(tl.float32))
    if TAIL:
        v = load_tile(x, whole, n, rows, walk, SHAPE, FLAGS, True).to(tl.float32)
        top = tl.maximum(top, tl.where(in_row(whole, n, SHAPE), v, float("-inf")))
    return tl.max(top, SHAPE[0])


@kernel
def _group_sum(
    x, out, begin, end, rows, x_walk, out_walk, largest, terms,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr,
    STASH: tl.constexpr,
):  # fmt: skip
    """Canonical sum of a group's exponentials, and (LOG) how many elements are the largest; STASH: `out` keeps them."""
    TILE: tl.constexpr = SHAPE[2]
    acc = filled(minus_zero(tl.float32), SHAPE)
    tops = filled(tl.zeros((), tl.int32), SHAPE)
    whole = begin + (end - begin) // TILE * TILE
    for at in range(begin, whole, TILE):
        v = load_tile(x, at, end, rows, x_walk, SHAPE, X_FLAGS, False).to(tl.float32)
        e, counted, is_top = _tile_terms(v, v, largest, terms, SHAPE, LOG, False)
        acc += counted
        if LOG:
            tops += is_top
        if STASH:
            store_tile(out, e, at, end, rows, out_walk, SHAPE, OUT_FLAGS, False)
    if TAIL:
        v = load_tile(x, whole, end, rows, x_walk, SHAPE, X_FLAGS, True).to(tl.float32)
        e, counted, is_top = _tile_terms(v, in_row(whole, end, SHAPE), largest, terms, SHAPE, LOG, True)
        acc += counted
        if LOG:
            tops += is_top
        if STASH:
            store_tile(out, e, whole, end, rows, out_walk, SHAPE, OUT_FLAGS, True)
    return tree_sum(acc, SHAPE[0]), tl.sum(tops, SHAPE[0])


@kernel
def _finish_tile(
    x, out, at, n, rows, x_walk, out_walk, terms, total, factor,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr,
    STASH: tl.constexpr,
):  # fmt: skip
    """Write one tile of the result: e / total with factor = 1 / total, or (LOG) x - (total + factor)."""
    if STASH:
        e = load_tile(out, at, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL)
        y = quotient(e, per_row(total, SHAPE), per_row(factor, SHAPE))
    else:
        v = load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, TAIL).to(tl.float32)
        if LOG:
            y = minus_log_sum(v, per_row(total, SHAPE), per_row(factor, SHAPE))
        else:
            e = row_exp(v, per_row(terms[0], SHAPE), per_row(terms[1], SHAPE), per_row(terms[2], SHAPE))
            y = quotient(e, per_row(total, SHAPE), per_row(factor, SHAPE))
    store_tile(out, y, at, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL)


@kernel
def softmax_forward_looped_kernel(
    x, out, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer, reduced, x_reduced, out_reduced,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr, GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr, TAIL: tl.constexpr, LOG: tl.constexpr, SAFE: tl.constexpr, STASH: tl.constexpr,
):  # fmt: skip
    """A block of rows of any length, three times tile by tile: largest element, sum, result.

    GROUPS: lanes of the sum over group sums; 1 if a row is one group.
    """
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    largest = _row_max(x, n, rows, x_walk, SHAPE, X_FLAGS, TAIL)
    lowest = largest == float("-inf")
    if SAFE:
        largest = tl.where(lowest, 0.0, largest)
    terms = row_terms(largest)
    if GROUPS == 1:
        total, tops = _group_sum(
            x, out, 0, n, rows, x_walk, out_walk, largest, terms, SHAPE, X_FLAGS, OUT_FLAGS, TAIL, LOG, STASH
        )
    else:
        GROUP_SHAPE: tl.constexpr = (SHAPE[0], SHAPE[1], GROUPS, 0)
        lanes = filled(minus_zero(tl.float32), GROUP_SHAPE)
        tops = (k * 0).to(tl.int32)
        groups = (n + GROUP_SIZE - 1) // GROUP_SIZE
        for g in range(groups):
            begin = g * GROUP_SIZE
            end = tl.minimum(begin + GROUP_SIZE, n)
            part, count = _group_sum(
                x, out, begin, end, rows, x_walk, out_walk, largest, terms, SHAPE, X_FLAGS, OUT_FLAGS, TAIL, LOG, STASH
            )
            lanes = add_group(lanes, part, g, rows, SHAPE, GROUPS)
            tops += count
        total = tree_sum(lanes, SHAPE[0])
    if LOG:
        total, factor = log_sum(total, tops, largest, terms, lowest, SAFE)
    else:
        factor = reciprocal_sum(total, lowest, SAFE)
    whole = n // TILE * TILE
    for at in range(0, whole, TILE):
        _finish_tile(
            x, out, at, n, rows, x_walk, out_walk, terms, total, factor,
            SHAPE, X_FLAGS, OUT_FLAGS, False, LOG, STASH,
        )  # fmt: skip
    if TAIL:
        _finish_tile(
            x, out, whole, n, rows, x_walk, out_walk, terms, total, factor,
            SHAPE, X_FLAGS, OUT_FLAGS, True, LOG, STASH,
        )  # fmt: skip


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


def candidates(rows: Rows, profile: Profile) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits.

    Raises
    ------
    CompileError
        If the profile allows none.
    """
    tile = min(LANES, max(4, power_of_two(rows.length)))
    widest = power_of_two(rows.inner)
    if profile.warp_size == 1:
        guess = Setting(max(1, min(widest, (4096 if rows.axis == 0 else 1024) // tile)), 1, rows.length > LANES)
        tried = [guess, replace(guess, looped=True)]
    else:
        tiles = -(-rows.length // LANES)
        kept = max(1, min(widest, (16_384 if rows.axis == 0 else 4096) // (tile * tiles)))
        if rows.axis == 0:
            kept = max(kept, min(widest, 8))
        warps = min(16, max(4, power_of_two(kept * tile * tiles // 1024)))
        guess = Setting(kept, warps, tiles * kept > 8)
        tried = [guess, replace(guess, looped=True)]
        tried += [Setting(k, w, False) for k in (1, 2, 4, 8) if k <= widest for w in (1, 2, 4, 8, 16)]
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
    rows = rows_of(x.shape, (axis,), (x.strides, out.strides), f"nbx.nn.{name}")
    setting = candidates(rows, x.device.profile)[0] if setting is None else setting
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
    log_form = name == "log_softmax"
    constants: dict[str, Constant] = {
        "SHAPE": rows.shape(setting.kept, tile),
        "X_FLAGS": rows.flags(0),
        "OUT_FLAGS": rows.flags(1),
        "TAIL": n % tile != 0,
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
    if x.dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
        raise DTypeError(f"nbx.nn.{name}", "unsupported dtype", got=x.dtype, allowed="float16, bfloat16, float32")
    position = 0 if x.ndim == 0 and axis in (0, -1) else normalize_axis(axis, x.ndim, f"nbx.nn.{name}")
    if out is None:
        result = empty(x.shape, x.dtype, x.device)
    else:
        check_out(name, out, x.shape, x.dtype)
        result = out
        check_writable(out, f"nbx.nn.{name}")
        x = separate(x, out)
    if x.size == 0:
        return result
    source, target = (x, result) if x.ndim else (x.reshape(1), result.reshape(1))
    key = (name, position, safe, setting, layout(source), target.strides)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(name, source, target, position, safe, setting)
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
