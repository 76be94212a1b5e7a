"""Tensors as text, the way NumPy prints arrays. Large tensors are cut before anything is copied from the device."""

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nbxtensor.tensor.host import Array, to_bits, to_numpy

if TYPE_CHECKING:
    from nbxtensor.tensor.tensor import Tensor

NO_VALUES = "<null>"


def values(x: "Tensor") -> str:
    """The values as NumPy's ``str`` shows them."""
    return _text(x, " ", "") if x.device.computes else NO_VALUES


def represent(x: "Tensor") -> str:
    """The values, dtype and device; the shape too where the values do not tell it."""
    prefix = "Tensor("
    if not x.device.computes:
        return f"{prefix}{NO_VALUES}, shape={x.shape}, dtype={x.dtype}, device='{x.device.name}')"
    shape = f", shape={x.shape}" if math.prod(x.shape) == 0 and len(x.shape) != 1 else ""
    return f"{prefix}{_text(x, ', ', prefix)}{shape}, dtype={x.dtype}, device='{x.device.name}')"


def _text(x: "Tensor", separator: str, prefix: str) -> str:
    options: Any = np.get_printoptions()
    edge = options["edgeitems"]
    cut = math.prod(x.shape) > options["threshold"]
    array = _corners(x, edge) if cut else to_numpy(x, "print")
    if x.dtype.itemsize < 4 and x.dtype.is_float:
        array = array.astype(np.float32)  # shortest digits of the 16-bit value, in NumPy's own format
        array = array.astype(np.float16) if x.dtype.name == "float16" else array
    threshold = 0 if cut else options["threshold"]
    return np.array2string(array, separator=separator, prefix=prefix, threshold=threshold)


def _corners(x: "Tensor", edge: int) -> Array:
    """Both ends of every long axis, with one item between them for the dots to stand for."""
    pieces = [_ends(n, edge) for n in x.shape]
    shape = tuple(min(n, 2 * edge + 1) for n in x.shape)
    result = np.zeros(shape, x.dtype.bits_numpy)
    for corner in itertools.product(*pieces):
        result[tuple(target for _, target in corner)] = to_bits(x[tuple(source for source, _ in corner)], "print")
    return result.view(x.dtype.numpy)


def _ends(n: int, edge: int) -> list[tuple[slice, slice]]:
    if n <= 2 * edge + 1:
        return [(slice(0, n), slice(0, n))]
    return [(slice(0, edge), slice(0, edge)), (slice(n - edge, n), slice(edge + 1, 2 * edge + 1))]
