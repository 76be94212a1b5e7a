"""Layer normalisation and its form without a mean, over one axis or several.

``layer_norm(x) = (x - mean) / sqrt(var + eps) * weight + bias`` with the mean of the row and the mean of the squared
differences from it (two passes); ``rms_norm(x) = x / sqrt(mean of squares + eps) * weight``.

Shapes
    Any, any axes, any strides; `weight` and `bias` broadcast to the sizes of the normalised axes.
Dtypes
    float16, bfloat16, float32, computed in float32 and rounded once; weight and bias may be any of these.
Errors
    DTypeError, AxisError, ShapeError for a weight or bias that does not fit, DeviceError for mixed devices.
Accuracy
    Sums in the canonical order, correctly rounded division and square root; within
    ``2^-21 * ((|x| + mean of |x|) / sigma * |weight| + |bias|)``.
Guarantee
    universal: the same bits on every device, for every setting, batch and kernel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import AxisError, DTypeError
from nbxtensor.base.shapes import broadcast_strides, normalize_axes
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer, Scalar
from nbxtensor.kernel.reduce import minus_zero, row_sum, tree_sum
from nbxtensor.kernel.reduce_settings import rows_within
from nbxtensor.kernel.rows import (
    GROUP,
    LANES,
    Rows,
    cached,
    in_row,
    kept_block,
    load_along,
    load_tile,
    offset_of,
    per_row,
    power_of_two,
    rows_of,
    store_tile,
)
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.ops._categories import number
from nbxtensor.tensor.check import check_device, check_tensor
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import launch_key

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32)


@kernel
def value_of(x, row):
    """The element, for the mean."""
    return x


@kernel
def squared_difference(x, row):
    """The squared distance from the row's mean, for the variance."""
    d = x - row
    return d * d


@kernel
def _scaled(v, mean, scale, weight, bias, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    y = (v - mean) * scale
    if WEIGHT and BIAS:
        y = tl.fma(y, weight, bias)
    elif WEIGHT:
        y = y * weight
    elif BIAS:
        y = y + bias
    return y


@kernel
def norm_kernel(
    x, weight, bias, out, eps, n, inner, blocks, x_inner, out_inner, outer, x_outer, out_outer,
    reduced, x_reduced, weight_reduced, bias_reduced, out_reduced,
    SHAPE: tl.constexpr, X_FLAGS: tl.constexpr, OUT_FLAGS: tl.constexpr,
    WEIGHT_UNIT: tl.constexpr, BIAS_UNIT: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    CENTER: tl.constexpr, TILES: tl.constexpr, TAIL: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Normalise a block of rows. TILES: tiles of a row that is held in registers, or 0 to loop over it three times."""
    TILE: tl.constexpr = SHAPE[2]
    program = tl.program_id(0).to(tl.int64)
    k = kept_block(program % blocks, SHAPE)
    row = program // blocks
    x += offset_of(row, outer, x_outer)
    out += offset_of(row, outer, out_outer)
    rows = (k, inner, reduced)
    x_walk = (x_inner, x_reduced)
    out_walk = (out_inner, out_reduced)
    count = n.to(tl.float32)
    mean = (k * 0).to(tl.float32)
    if TILES > 0:
        values = ()
        for j in tl.static_range(TILES):
            v = load_tile(x, j * TILE, n, rows, x_walk, SHAPE, X_FLAGS, TAIL and j == TILES - 1).to(tl.float32)
            values += (v,)
        if CENTER:
            for j in tl.static_range(TILES):
                part = values[j]
                if TAIL and j == TILES - 1:
                    part = tl.where(in_row(j * TILE, n, SHAPE), part, minus_zero(tl.float32))
                if j == 0:
                    acc = part
                else:
                    acc += part
            mean = tl.div_rn(tree_sum(acc, SHAPE[0]), count)
        for j in tl.static_range(TILES):
            part = squared_difference(values[j], per_row(mean, SHAPE))
            if TAIL and j == TILES - 1:
                part = tl.where(in_row(j * TILE, n, SHAPE), part, minus_zero(tl.float32))
            if j == 0:
                squares = part
            else:
                squares += part
        variance = tl.div_rn(tree_sum(squares, SHAPE[0]), count)
    else:
        if CENTER:
            mean = row_sum(x, mean, n, rows, x_walk, value_of, SHAPE, X_FLAGS, TAIL, GROUPS, GROUP_SIZE)
            mean = tl.div_rn(mean, count)
        variance = row_sum(x, mean, n, rows, x_walk, squared_difference, SHAPE, X_FLAGS, TAIL, GROUPS, GROUP_SIZE)
        variance = tl.div_rn(variance, count)
    scale = per_row(tl.div_rn(1.0, tl.sqrt_rn(variance + eps)), SHAPE)
    mean = per_row(mean, SHAPE)
    w = 1.0
    b = 0.0
    if TILES > 0:
        for j in tl.static_range(TILES):
            if WEIGHT:
                w = load_along(
                    weight, j * TILE, n, reduced, weight_reduced, SHAPE, WEIGHT_UNIT, TAIL and j == TILES - 1
                )
            if BIAS:
                b = load_along(bias, j * TILE, n, reduced, bias_reduced, SHAPE, BIAS_UNIT, TAIL and j == TILES - 1)
            y = _scaled(values[j], mean, scale, w, b, WEIGHT, BIAS)
            store_tile(out, y, j * TILE, n, rows, out_walk, SHAPE, OUT_FLAGS, TAIL and j == TILES - 1)
    else:
        whole = n // TILE * TILE
        for at in range(0, whole, TILE):
            v = load_tile(x, at, n, rows, x_walk, SHAPE, X_FLAGS, False).to(tl.float32)
            w1 = w
            b1 = b
            if WEIGHT:
                w1 = load_along(weight, at, n, reduced, weight_reduced, SHAPE, WEIGHT_UNIT, False)
            if BIAS:
                b1 = load_along(bias, at, n, reduced, bias_reduced, SHAPE, BIAS_UNIT, False)
            y = _scaled(v, mean, scale, w1, b1, WEIGHT, BIAS)
            store_tile(out, y, at, n, rows, out_walk, SHAPE, OUT_FLAGS, False)
        if TAIL:
            v = load_tile(x, whole, n, rows, x_walk, SHAPE, X_FLAGS, True).to(tl.float32)
            if WEIGHT:
                w = load_along(weight, whole, n, reduced, weight_reduced, SHAPE, WEIGHT_UNIT, True)
            if BIAS:
                b = load_along(bias, whole, n, reduced, bias_reduced, SHAPE, BIAS_UNIT, True)
            y = _scaled(v, mean, scale, w, b, WEIGHT, BIAS)
            store_tile(out, y, whole, n, rows, out_walk, SHAPE, OUT_FLAGS, True)


def _plan(
    name: str,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    axes: tuple[int, ...],
    looped: bool | None,
) -> Plan:
    function = f"nbx.nn.{name}"
    row_shape = tuple(x.shape[d] for d in axes)
    strides = [x.strides, out.strides]
    for extra in (weight, bias):
        full = [0] * x.ndim
        if extra is not None:
            for d, step in zip(axes, broadcast_strides(extra.shape, extra.strides, row_shape, function), strict=True):
                full[d] = step
        strides.append(tuple(full))
    rows = rows_of(x.shape, axes, strides)
    sizes = {"count": rows.count, "inner": rows.inner, "length": rows.length}
    dtypes_used = [t.dtype for t in (x, weight, bias, out) if t is not None]
    steps = "".join(str(int(rows.unit(i))) for i in range(4))
    flags = [
        f"step {steps}",
        f"along {rows.axis}",
        *(n for n, t in (("weight", weight), ("bias", bias)) if t is not None),
    ]
    key = launch_key("norm", name, sizes, dtypes_used, x.device.target, flags)
    found = candidates(rows, x.device.profile, function, looped)
    return tuned(key, found, lambda chosen: _plan_of(name, x, weight, bias, out, rows, chosen))


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows of a block, warps, and whether a program goes over its rows three times instead of holding them."""

    kept: int
    num_warps: int
    looped: bool


def candidates(rows: Rows, profile: Profile, function: str, looped: bool | None = None) -> tuple[Setting, ...]:
    """The settings worth trying for these rows, best guess first; all give the same bits. `looped` rules some out."""
    on_gpu = profile.warp_size > 1
    tile = tile_of(rows.length)
    tiles = -(-rows.length // tile)
    if looped is None:
        looped = tiles > (8 if rows.axis == 1 else 1) if on_gpu else tiles > 1 or rows.length % tile != 0
    held = tile * (1 if looped else tiles)
    kept = max(1, (4096 if on_gpu else 1024) // held)
    if rows.axis == 0:
        kept = max(kept, 8) if on_gpu else max(32, 16_384 // tile)
    widest = rows_within(power_of_two(rows.inner), tile, profile, function)
    kept = min(widest, kept)
    warps = min(16, max(4, power_of_two(kept * held // 1024)))
    if on_gpu:
        tried = [(kept, warps), (max(1, kept // 2), max(2, warps // 2)), (kept, min(16, 2 * warps)), (kept, warps // 2)]
    else:
        tried = [(kept, warps), (max(1, kept // 2), warps), (min(widest, 2 * kept), warps)]
    return tuple(dict.fromkeys(Setting(k, w, looped) for k, w in tried))


def tile_of(n: int) -> int:
    """Elements of a row in a tile."""
    return min(LANES, max(4, power_of_two(n)))


def _plan_of(
    name: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, out: Tensor, rows: Rows, setting: Setting
) -> Plan:
    kept, looped, n = setting.kept, setting.looped, rows.length
    tile = tile_of(n)
    tiles = -(-n // tile)
    blocks = -(-rows.inner // kept)
    pointers: dict[str, Argument] = {"x": Pointer(x.dtype)}
    constants: dict[str, Constant] = {}
    for key, extra in (("weight", weight), ("bias", bias)):
        if extra is None:
            constants[key] = None
        else:
            pointers[key] = Pointer(extra.dtype)
    groups = -(-n // GROUP)
    arguments: dict[str, Argument] = {
        **pointers,
        "out": Pointer(out.dtype),
        "eps": Scalar(dtypes.float32),
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
        "weight_reduced": rows.reduced_strides[2],
        "bias_reduced": rows.reduced_strides[3],
        "out_reduced": rows.reduced_strides[1],
    }
    constants |= {
        "SHAPE": rows.shape(kept, tile),
        "X_FLAGS": rows.flags(0),
        "OUT_FLAGS": rows.flags(1),
        "WEIGHT_UNIT": rows.unit(2),
        "BIAS_UNIT": rows.unit(3),
        "WEIGHT": weight is not None,
        "BIAS": bias is not None,
        "CENTER": name == "layer_norm",
        "TILES": 0 if looped else tiles,
        "TAIL": rows.tail(tile, x.device.profile),
        "GROUPS": 1 if groups == 1 else min(LANES, max(4, power_of_two(groups))),
        "GROUP_SIZE": GROUP,
    }
    grid = (rows.programs * blocks, 1, 1)
    options = Options(num_warps=setting.num_warps)
    return Plan(name, norm_kernel, x.device, grid, arguments, constants, options, x.size)


_plans: dict[Any, Plan] = plan_cache()


def run(
    name: str,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    axis: int | Sequence[int],
    eps: float,
    looped: bool | None = None,
) -> Tensor:
    function = f"nbx.nn.{name}"
    for what, tensor in (("x", x), ("the weight", weight), ("the bias", bias)):
        if tensor is x or tensor is not None:
            check_tensor(tensor, function, what)
        if tensor is not None and tensor.dtype not in FLOATS:
            raise DTypeError(function, "unsupported dtype", got=tensor.dtype, allowed="float16, bfloat16, float32")
        if tensor is not None:
            check_device(tensor, x.device, function)
    axes = tuple(sorted(normalize_axes(axis, x.ndim, function)))
    if not axes:
        raise AxisError(function, "no axis to normalise over", got=axis)
    out = new(x.shape, x.dtype, x.device)
    key = (name, axes, looped, x.form, *(None if t is None else t.form for t in (weight, bias)))
    if x.size == 0:
        return out
    plan = cached(_plans, key, lambda: _plan(name, x, weight, bias, out, axes, looped))
    plan.run(x.ptr, *(t.ptr for t in (weight, bias) if t is not None), out.ptr, number(f"nn.{name}", "eps", eps))
    return out


def reference_layer_norm(
    x: "np.ndarray[Any, Any]", weight: Any = None, bias: Any = None, *, axis: Any = -1, eps: float = 1e-5
) -> "np.ndarray[Any, Any]":
    wide = x.astype(np.float64)
    d = wide - wide.mean(axis=axis, keepdims=True)
    y = d / np.sqrt((d * d).mean(axis=axis, keepdims=True) + eps)
    if weight is not None:
        y = y * weight.astype(np.float64)
    return y if bias is None else y + bias.astype(np.float64)


def reference_rms_norm(x: "np.ndarray[Any, Any]", weight: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Any:
    wide = x.astype(np.float64)
    y = wide / np.sqrt((wide * wide).mean(axis=axis, keepdims=True) + eps)
    return y if weight is None else y * weight.astype(np.float64)


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 5, 384), np.float32), rng.standard_normal(384, np.float32)
    yield (rng.standard_normal((2, 2049), np.float32),)


@operator("layer_norm", kernels=(norm_kernel,), reference=reference_layer_norm, samples=samples)
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise every row along `axis` to mean 0 and variance 1, then scale and shift.

    Parameters
    ----------
    weight, bias
        Factor and offset for each position of the row, or None.
    axis
        The axis, or several that together are the row.
    eps
        Added to the variance.
    """
    return run("layer_norm", x, weight, bias, axis, eps)


@operator("rms_norm", kernels=(norm_kernel,), reference=reference_rms_norm, samples=samples)
def rms_norm(x: Tensor, weight: Tensor | None = None, *, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Tensor:
    """Divide every row along `axis` by its root mean square; see `layer_norm` for the parameters."""
    return run("rms_norm", x, weight, None, axis, eps)
