"""Pooling: the largest or the mean element of each window over one to three spatial dimensions.

Both are reductions of a view, so they copy nothing but the padding, and their bits are those of `max` and `mean`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.windows import Padding, PerAxis, windows
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


def _seen(x: Array, kernel: tuple[int, ...], stride: tuple[int, ...] | None) -> Array:
    rank = len(kernel)
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=tuple(range(2, 2 + rank)))
    return seen[(slice(None),) * 2 + tuple(slice(None, None, s) for s in stride or kernel)]


def reference_max(x: Array, kernel: tuple[int, ...], stride: tuple[int, ...] | None = None) -> Array:
    return _seen(x, kernel, stride).max(axis=tuple(range(-len(kernel), 0)))


def reference_mean(x: Array, kernel: tuple[int, ...], stride: tuple[int, ...] | None = None) -> Array:
    return _seen(x.astype(np.float64), kernel, stride).mean(axis=tuple(range(-len(kernel), 0)))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((2, 3, 20), np.float32), (3,), (2,)
    yield rng.standard_normal((1, 2, 7, 9), np.float32), (3, 2)


def _pool(
    name: str,
    reduce: str,
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: Padding,
    dilation: PerAxis,
    filler: float,
) -> Tensor:
    check_tensor(f"nn.{name}", x)
    seen = windows(name, x, kernel, kernel if stride is None else stride, padding, dilation, filler)
    rank = x.ndim - 2
    return table[reduce](seen.view(), axis=tuple(range(2 + rank, 2 + 2 * rank)))


@operator("max_pool", reference=reference_max, samples=samples)
def max_pool(
    x: Tensor, kernel: PerAxis, stride: PerAxis | None = None, padding: Padding = 0, dilation: PerAxis = 1
) -> Tensor:
    """The largest element of each window; a window with a NaN gives NaN.

    Parameters
    ----------
    x
        Input ``[N, C, ...]``.
    kernel
        Size of the window: one number, or one per spatial axis.
    stride
        Steps between windows; those of the kernel by default.
    padding
        Elements around the input that are never the largest: one number, one per spatial axis, or pairs.
    dilation
        Steps inside a window.

    Raises
    ------
    ShapeError
        The window is larger than the padded input.
    ArgumentError
        An argument is not one number per axis.
    """
    lowest = float("-inf") if x.dtype.minimum is None else x.dtype.minimum
    return _pool("max_pool", "max", x, kernel, stride, padding, dilation, lowest)


@operator("avg_pool", reference=reference_mean, samples=samples)
def avg_pool(x: Tensor, kernel: PerAxis, stride: PerAxis | None = None, padding: Padding = 0) -> Tensor:
    """The mean of each window; padding counts as zeros.

    Parameters
    ----------
    x
        Input ``[N, C, ...]``.
    kernel
        Size of the window: one number, or one per spatial axis.
    stride
        Steps between windows; those of the kernel by default.
    padding
        Zeros around the input: one number, one per spatial axis, or pairs (before, after).

    Raises
    ------
    ShapeError
        The window is larger than the padded input.
    ArgumentError
        An argument is not one number per axis.
    """
    return _pool("avg_pool", "mean", x, kernel, stride, padding, 1, 0)
