"""Convolution: ``conv(x, w, bias, stride, padding, dilation, groups)``.

``out[n, o, p] = sum over c, t of x[n, c, p * stride - before + t * dilation] * w[o, c, t] + bias[o]``

Shapes
    x is (N, C, *spatial) with one to three spatial axes, w is (O, C / groups, *taps), bias is (O,); the result is
    (N, O, *places), places = (size + padding - dilation * (taps - 1) - 1) // stride + 1. Output channel o sees the
    channels of its group alone. Any strides are read where they are.
Dtypes
    Operands are promoted. float32; float16 and bfloat16 (computed in float32, rounded once); float64.
Errors
    ShapeError for sizes that do not match, ArgumentError for stride, padding, dilation or groups that do not fit,
    DTypeError for other dtypes, DeviceError.
Accuracy
    One fused multiply-add for each product, taps on padding included (they multiply +0.0). The chain runs over
    (channel, tap) in row-major order in chunks of 512; the sums of the chunks are added in order, from 0; the bias
    comes last. So the error is at most ``(513 + K / 512) * 2^-24 * (sum |x||w| + |bias|)`` in float32, K products.
Guarantee
    universal: the order depends on (channel, tap) alone, never on tiles, batch, strides in memory or device.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError, DTypeError, ShapeError
from nbxtensor.base.promotion import result_type
from nbxtensor.kernel.conv import conv_direct_kernel, conv_kernel
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.window import lay_out_kernel
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._conv_launches import Problem, Tile, launches_of
from nbxtensor.ops._samples import Array
from nbxtensor.ops._walk import LineTile, walk_over
from nbxtensor.ops._window import Padding, Sizes, Window, per_axis, window_of
from nbxtensor.tensor.check import check_device
from nbxtensor.tensor.tensor import Tensor, empty

NAME = "nbx.nn.conv"


def _checked(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> tuple[Window, tuple[int, ...]]:
    """The window and the places of a convolution whose arguments are right."""
    for operand in (x, w, *([] if bias is None else [bias])):
        check_device(check_tensor("nn.conv", operand), x.device, NAME)
    if not 3 <= x.ndim <= 5:
        raise ShapeError(NAME, "x has the wrong rank", got=x.shape, allowed="(N, C, *spatial), 1 to 3 spatial axes")
    if w.ndim != x.ndim:
        raise ShapeError(NAME, "w has the wrong rank", got=w.shape, allowed=f"{x.ndim} axes, as x: {x.shape}")
    if 0 in w.shape[2:]:
        raise ShapeError(NAME, "the kernel is empty", got=w.shape, allowed="at least one tap along each axis")
    (count,) = per_axis(groups, 1, "groups", NAME)
    if x.shape[1] % count or w.shape[0] % count:
        raise ArgumentError(
            NAME,
            "groups does not fit",
            got=groups,
            allowed=f"a positive int that divides the channels {x.shape[1]} of x and {w.shape[0]} of w",
        )
    if w.shape[1] * groups != x.shape[1]:
        raise ShapeError(
            NAME,
            "the channels differ",
            got=f"x {x.shape}, w {w.shape}, groups {groups}",
            allowed="w.shape[1] * groups == x.shape[1]",
        )
    if bias is not None and bias.shape != (w.shape[0],):
        raise ShapeError(NAME, "bias has the wrong shape", got=bias.shape, allowed=f"{(w.shape[0],)}")
    if prod(w.shape[1:]) >= 2**31:
        raise ShapeError(NAME, "too many products in one output element", got=w.shape, allowed="fewer than 2^31")
    window = window_of(w.shape[2:], stride, padding, dilation, NAME)
    return window, window.places(x.shape[2:], NAME)


def _direct_reference(x: Array, w: Array, window: Window, places: tuple[int, ...], groups: int) -> Array:
    """One slice of `x` for each tap; `x` is padded."""
    n, o, per = x.shape[0], w.shape[0], w.shape[1]
    out = np.zeros((n, groups, o // groups, *places), np.result_type(x, w))
    grouped = x.reshape(n, groups, per, *x.shape[2:])
    for tap in np.ndindex(*window.taps):
        cut = tuple(
            slice(t * d, t * d + (p - 1) * s + 1, s)
            for t, d, s, p in zip(tap, window.dilation, window.stride, places, strict=True)
        )
        factor = w[(slice(None), slice(None), *tap)].reshape(groups, o // groups, per)
        out += np.einsum("goc,ngc...->ngo...", factor, grouped[(..., *cut)])
    return out.reshape(n, o, *places)


def conv_reference(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Convolution in float64."""
    window = window_of(w.shape[2:], stride, padding, dilation, NAME)
    places = window.places(x.shape[2:], NAME)
    width = ((0, 0), (0, 0), *zip(window.before, window.after, strict=True))
    out = _direct_reference(np.pad(x.astype(np.float64), width), w.astype(np.float64), window, places, groups)
    return out if bias is None else out + bias.astype(np.float64).reshape(-1, *(1,) * len(places))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Convolutions in one to three dimensions: tiled and direct, chains shorter and longer than a chunk."""

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    yield normal(2, 24, 37), normal(20, 24, 5), normal(20), 1, 2
    yield normal(1, 70, 9, 19), normal(9, 70, 3, 3), None, (1, 2), ((1, 0), (2, 1)), (2, 1)
    yield normal(2, 12, 9, 30), normal(12, 1, 3, 3), normal(12), 1, 1, 1, 12
    yield normal(1, 4, 5, 6, 7), normal(8, 2, 2, 3, 2), None, 1, 1, 1, 2
    yield normal(3, 33, 6, 7), normal(17, 33, 1, 1), normal(17)


@operator("conv", kernels=(conv_kernel, conv_direct_kernel, lay_out_kernel), reference=conv_reference, samples=samples)
def conv(
    x: Tensor,
    w: Tensor,
    /,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) over one to three spatial axes.

    Parameters
    ----------
    x
        Input, (N, C, *spatial).
    w
        Weights, (O, C / groups, *taps).
    bias
        (O,), added last; or None.
    stride
        Step between places: an int, or one an axis.
    padding
        Zeros around the input: an int, one an axis, or one pair (before, after) an axis.
    dilation
        Distance of taps: an int, or one an axis.
    groups
        Number of groups into which the channels fall; every output channel sees the input channels of its group.

    Returns
    -------
    Tensor
        (N, O, *places), contiguous.

    Raises
    ------
    ShapeError, ArgumentError, DTypeError, DeviceError
        See the text of the module.

    Notes
    -----
    The same bits on every device and for every batch size.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> x = nbx.asarray([[[1.0, 2.0, 3.0, 4.0]]])
    >>> nbx.nn.conv(x, nbx.asarray([[[1.0, -1.0]]]))
    Tensor([[[-1., -1., -1.]]], dtype=float32, device='cpu')
    """
    return _conv(x, w, bias, stride, padding, dilation, groups, None)


def _conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    settings: Tile | LineTile | None,
) -> Tensor:
    window, places = _checked(x, w, bias, stride, padding, dilation, groups)
    dtype = result_type(x.dtype, w.dtype, *([] if bias is None else [bias.dtype]), function=NAME)
    if not dtype.is_float or dtype.storage_only:
        raise DTypeError(
            NAME, "dtype not supported", got=dtype.name, allowed=("float16", "bfloat16", "float32", "float64"),
            mend="convert with astype",
        )  # fmt: skip
    out = empty((x.shape[0], w.shape[0], *places), dtype, x.device)
    if out.size == 0:
        return out
    walk, taps = walk_over(x.shape, x.strides, places, window, w.strides[2:])
    problem = Problem(
        walk=walk,
        groups=groups,
        m=w.shape[0] // groups,
        channels=w.shape[1],
        w=(*w.strides[:2], *taps),
        bias=0 if bias is None else bias.strides[0],
        types=(x.dtype, w.dtype, None if bias is None else bias.dtype, dtype),
    )
    launches_of(problem, x.device, settings).run(x, w.ptr, *([] if bias is None else [bias.ptr]), out.ptr)
    return out
