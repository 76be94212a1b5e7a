"""Convolution in one to three dimensions: ``conv(x, weight, bias, stride, padding, dilation, groups)``.

``out[b, o, p] = bias[o] + sum over c, q of weight[o, c, q] * x[b, c, p * stride + q * dilation - padding]`` (elements
outside `x` are 0; channels c are those of o's group).

Shapes
    x (batch, channels, *spatial), weight (out, channels / groups, *kernel), bias (out,). Any strides.
Dtypes
    float32; float16 and bfloat16 (computed in float32, rounded once); the operands are promoted.
Errors
    ShapeError, ArgumentError, DTypeError, DeviceError.
Accuracy
    That of `matmul` over K = (channel, kernel indices) in row-major order: chains of fused multiply-adds over chunks of
    512, then the chunks in order, then the bias.
Guarantee
    universal.

The kernel is that of `matmul`: a row is an output channel, a column a position along the innermost axis, and the
summed axes run through the input in place (nothing is unfolded). Padding makes a padded copy first.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import DeviceError, DTypeError, ShapeError
from nbxtensor.base.promotion import result_type
from nbxtensor.base.shapes import contiguous_strides, merge_dims
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Plan
from nbxtensor.ops._matmul_kernels import matmul_kernel
from nbxtensor.ops._windows import Padding, PerAxis, windows
from nbxtensor.ops.matmul import Product, plans_of
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, new

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
MANY = 8
"""Outputs of a group from which on it pays to lay a strided input out contiguously: each of them reads it."""
Ints = tuple[int, ...]


def _product(
    x_shape: Ints, x_strides: Ints, w_shape: Ints, w_strides: Ints, out: Ints, stride: Ints, dilation: Ints, groups: int
) -> Product | None:
    """The convolution as a batched product, or None if the weights must be copied first."""
    steps = contiguous_strides(out)
    flat, (a_steps,) = merge_dims(w_shape[1:], [w_strides[1:]])
    if len(flat) != 1:
        return None
    x_moves = (x_strides[1], *(s * d for s, d in zip(x_strides[2:], dilation, strict=True)))
    summed, (_, b_k) = merge_dims(w_shape[1:], [contiguous_strides(w_shape[1:]), x_moves])
    positions, (x_p, out_p) = merge_dims(
        out[2:], [[s * d for s, d in zip(x_strides[2:], stride, strict=True)], steps[2:]]
    )
    inside, per_group = w_shape[1], w_shape[0] // groups
    lead = (out[0], groups, *positions[:-1])
    rest = (0,) * len(positions[:-1])
    batch, (a, b, c, o) = merge_dims(
        lead,
        [
            (0, per_group * w_strides[0], *rest),
            (x_strides[0], inside * x_strides[1], *x_p[:-1]),
            (0, per_group, *rest),
            (steps[0], per_group * steps[1], *out_p[:-1]),
        ],
    )
    return Product(
        m=per_group,
        n=positions[-1],
        k_shape=summed,
        batch=batch,
        a_batch=a,
        b_batch=b,
        out_batch=o,
        a_m=w_strides[0],
        a_k=a_steps[0],
        b_k=b_k,
        b_n=x_p[-1],
        out_m=steps[1],
        bias_batch=c,
    )


@lru_cache(maxsize=1024)
def _plans(
    device: Device,
    types: tuple[DType, DType, DType],
    bias: DType | None,
    x_shape: Ints,
    x_strides: Ints,
    w_shape: Ints,
    w_strides: Ints,
    out: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
) -> tuple[Plan, ...] | None:
    product = _product(x_shape, x_strides, w_shape, w_strides, out, stride, dilation, groups)
    return None if product is None else plans_of("conv", product, types, bias, device, None)


def reference(
    x: "np.ndarray[Any, Any]",
    weight: "np.ndarray[Any, Any]",
    bias: "np.ndarray[Any, Any] | None" = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> "np.ndarray[Any, Any]":
    rank = x.ndim - 2
    s, p, d = (np.broadcast_to(v, rank) for v in (stride, padding, dilation))
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((int(v), int(v)) for v in p)))
    kernel = weight.shape[2:]
    counts = [(wide.shape[i + 2] - d[i] * (kernel[i] - 1) - 1) // s[i] + 1 for i in range(rank)]
    inside, outside = weight.shape[1], weight.shape[0] // groups
    out = np.zeros((x.shape[0], weight.shape[0], *counts))
    for g in range(groups):
        part = wide[:, g * inside : (g + 1) * inside]
        for q in np.ndindex(*kernel):
            at = tuple(slice(q[i] * d[i], q[i] * d[i] + (counts[i] - 1) * s[i] + 1, s[i]) for i in range(rank))
            w = weight[(slice(g * outside, (g + 1) * outside), slice(None), *q)].astype(np.float64)
            out[:, g * outside : (g + 1) * outside] += np.einsum("oc,bc...->bo...", w, part[(..., *at)])
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield tuple(rng.standard_normal(s, np.float32) for s in ((2, 6, 19), (4, 6, 3)))
    yield (*(rng.standard_normal(s, np.float32) for s in ((2, 6, 9, 8), (4, 3, 3, 2), (4,))), (2, 1), 1, (1, 2), 2)


@operator("conv", kernels=(matmul_kernel,), reference=reference, samples=samples)
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (correlate) `x` with `weight`.

    Parameters
    ----------
    x
        (batch, channels, *spatial) with one to three spatial axes.
    weight
        (out, channels / groups, *kernel).
    bias
        (out,) or None.
    stride, dilation
        One number, or one for each spatial axis.
    padding
        Zeros around the input: one number, one for each spatial axis, or pairs (before, after).
    groups
        Number of groups of channels that are convolved apart.
    """
    function = "nbx.nn.conv"
    rank = x.ndim - 2
    if not 1 <= rank <= 3 or weight.ndim != x.ndim:
        raise ShapeError(function, "bad ranks", got=f"{x.shape} and {weight.shape}", allowed="3 to 5 axes, both")
    fits = groups >= 1 and weight.shape[0] % groups == 0 and weight.shape[1] * groups == x.shape[1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        got = f"x {x.shape}, weight {weight.shape}, bias {None if bias is None else bias.shape}, {groups} groups"
        raise ShapeError(function, "sizes do not fit", got=got)
    operands = [t for t in (x, weight, bias) if t is not None]
    if any(t.device is not x.device for t in operands):
        raise DeviceError(function, "operands are on different devices", mend="move them with to_device")
    dtype = result_type(*(t.dtype for t in operands))
    if dtype not in FLOATS:
        raise DTypeError(function, "unsupported dtype", got=dtype, allowed=map(str, FLOATS))
    seen = windows("conv", x, weight.shape[2:], stride, padding, dilation, 0)
    x = seen.x
    out = new((x.shape[0], weight.shape[0], *seen.places), dtype, x.device)
    if out.size == 0:
        return out
    if weight.shape[1] == 0:
        table["copy_into"](out, 0 if bias is None else bias.reshape(-1, *[1] * rank))
        return out
    if not x.is_contiguous and weight.shape[0] >= MANY * groups:
        x = table["copy"](x)
    types = (weight.dtype, x.dtype, dtype)
    fixed = (out.shape, seen.strides, seen.dilations, groups)
    kind = None if bias is None else bias.dtype
    plans = _plans(x.device, types, kind, x.shape, x.strides, weight.shape, weight.strides, *fixed)
    if plans is None:
        weight = table["copy"](weight)
        plans = _plans(x.device, types, kind, x.shape, x.strides, weight.shape, weight.strides, *fixed)
    if bias is not None and not bias.is_contiguous:
        bias = table["copy"](bias)
    for plan in plans or ():
        plan.run(weight.ptr, x.ptr, *(() if bias is None else (bias.ptr,)), out.ptr)
    return out
