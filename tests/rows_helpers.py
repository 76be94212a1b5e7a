"""Helpers of the tests of operators over rows: the canonical sum in NumPy, bits, and layouts of one array."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import nbxtensor as nbx

LANES, GROUP = 2048, 65_536
Array = np.ndarray[Any, Any]


def _tree(x: Array) -> Array:
    x = x[..., 0::2] + x[..., 1::2]
    x = x[..., 0::2] + x[..., 1::2]
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def canonical_sum(x: Array) -> Array:
    """The canonical sum over the last axis, in the dtype of `x` (float32 or float64)."""
    n = x.shape[-1]
    groups = -(-n // GROUP)
    parts = []
    for g in range(groups):
        part = x[..., g * GROUP : (g + 1) * GROUP]
        lanes = -(-part.shape[-1] // LANES) * LANES
        padded = np.full((*x.shape[:-1], lanes), -0.0, x.dtype)
        padded[..., : part.shape[-1]] = part
        acc = padded[..., :LANES].copy()
        for at in range(LANES, lanes, LANES):
            acc = acc + padded[..., at : at + LANES]
        parts.append(_tree(acc))
    return parts[0] if groups == 1 else canonical_sum(np.stack(parts, axis=-1))


def bits(x: Any) -> Array:
    """The bits of an array, every NaN the same."""
    a = np.asarray(x)
    if a.dtype.kind != "f" and a.dtype.name != "bfloat16":
        return a
    whole = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
    return np.ascontiguousarray(whole).view(f"u{a.dtype.itemsize}")


def layouts(x: Array, device: str) -> Iterator[tuple[str, nbx.Tensor]]:
    """Tensors with the elements of `x` in other layouts: transposed, reversed, strided, offset."""
    yield "contiguous", nbx.asarray(x.copy(), device=device)
    axes = tuple(reversed(range(x.ndim)))
    yield "transposed", nbx.asarray(x.transpose(axes).copy(), device=device).permute_dims(axes)
    yield "reversed", nbx.asarray(x[..., ::-1].copy(), device=device)[..., ::-1]
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 3), x.dtype)
    wide[..., 3::2] = x
    yield "strided", nbx.asarray(wide, device=device)[..., 3::2]
    if x.ndim > 1:
        tall = np.zeros((2 * x.shape[0] + 1, *x.shape[1:]), x.dtype)
        tall[1::2] = x
        yield "rows apart", nbx.asarray(tall, device=device)[1::2]
