"""Convolution in one to three spatial dimensions.

``out[n, o, p] = bias[o] + sum over (c, k) of x[n, c, p * stride + k * dilation - padding] * w[o, c, k]``, for each of
`groups` parts of the channels by itself.

The windows are laid out as a matrix, and the sum is that of `matmul`: over (channel, kernel indices) in row-major
order, so its bits are those of the product, on every device and for every batch. Where the layout already is that
matrix (kernel and stride 1), nothing is copied.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base.errors import ShapeError
from nbxtensor.kernel.declare import operator
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.windows import Padding, PerAxis, windows
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
MATRIX_BYTES = 1 << 27
"""Windows are laid out for so many images at a time as fit in this; the bits do not depend on it."""


def reference(x: Array, w: Array, bias: Array | None = None, **geometry: Any) -> Array:
    """Convolution by its definition, in float64; only for one number per attribute."""
    stride, padding = geometry.get("stride", 1), geometry.get("padding", 0)
    dilation, groups = geometry.get("dilation", 1), geometry.get("groups", 1)
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(padding, padding)] * rank)
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    seen = seen[(slice(None),) * 2 + (slice(None, None, stride),) * rank + (slice(None, None, dilation),) * rank]
    inner, outer = x.shape[1] // groups, w.shape[0] // groups
    axes = [1, *range(2 + rank, 2 + 2 * rank)]
    parts = [
        np.moveaxis(
            np.tensordot(
                seen[:, g * inner : (g + 1) * inner],
                w[g * outer : (g + 1) * outer].astype(np.float64),
                axes=(axes, list(range(1, 2 + rank))),
            ),
            -1,
            1,
        )
        for g in range(groups)
    ]
    out = np.concatenate(parts, axis=1)
    return out if bias is None else out + bias.astype(np.float64).reshape(-1, *[1] * rank)


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((2, 3, 20), np.float32), rng.standard_normal((4, 3, 5), np.float32)
    yield rng.standard_normal((1, 4, 7, 9), np.float32), rng.standard_normal((2, 4, 3, 2), np.float32)


@operator("conv", reference=reference, samples=samples)
def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) over one to three spatial axes.

    Parameters
    ----------
    x
        Input ``[N, C, ...]``.
    w
        Weights ``[O, C / groups, ...]``.
    bias
        One value for each of the O outputs, or None.
    stride, dilation
        One number, or one per spatial axis.
    padding
        Zeros around the input: one number, one per spatial axis, or pairs (before, after).
    groups
        Parts of the channels that are convolved by themselves.

    Returns
    -------
    Tensor
        ``[N, O, ...]`` of the operands' promoted dtype.

    Raises
    ------
    ShapeError
        The shapes do not fit, or the kernel is larger than the padded input.
    ArgumentError
        A stride, dilation or padding is not one number per axis.
    """
    check_tensor("nn.conv", x)
    check_tensor("nn.conv", w)
    if (
        w.ndim != x.ndim
        or groups < 1
        or w.shape[0] % groups
        or w.shape[1] * groups != x.shape[1]
        or (bias is not None and bias.shape != w.shape[:1])
    ):
        raise ShapeError(
            "nbx.nn.conv",
            f"the weights do not fit in {groups} groups",
            got=f"input {x.shape}, weights {w.shape}" + ("" if bias is None else f", bias {bias.shape}"),
            allowed="[N, C, ...], [O, C / groups, ...] and [O]",
        )
    seen = windows("conv", x, w.shape[2:], stride, padding, dilation, 0)
    terms, places, outer = prod(w.shape[1:]), prod(seen.places), w.shape[0] // groups
    matrix = w.reshape(groups, outer, terms)
    step = max(MATRIX_BYTES // max(groups * terms * places * x.dtype.itemsize, 1), 1)
    view = seen.view(groups)
    starts = range(0, max(x.shape[0], 1), step)
    some = [view[i : i + step] for i in starts]
    parts = [table["matmul"](matrix, v.reshape(v.shape[0], groups, terms, places)) for v in some]
    product: Tensor = parts[0] if len(parts) == 1 else table["concat"](parts, axis=0)
    out = product.reshape(x.shape[0], w.shape[0], *seen.places)
    return out if bias is None else table["add"](out, bias.reshape(-1, *[1] * (x.ndim - 2)))
