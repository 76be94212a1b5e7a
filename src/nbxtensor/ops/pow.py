"""pow: x1 to the power x2."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import int_pow
from nbxtensor.kernel.math import pow as float_pow
from nbxtensor.kernel.math64 import pow64
from nbxtensor.kernel.pointwise import Operand, pointwise
from nbxtensor.ops._categories import compute_type, operands
from nbxtensor.ops._samples import Array, line
from nbxtensor.tensor.tensor import Tensor


@kernel
def pow_value(a, b):
    if a.dtype == tl.float64:
        r = pow64(a, b)
    elif a.dtype.is_floating():
        r = float_pow(a, b)
    else:
        r = int_pow(a, b)
    return r


def _samples(rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    yield np.abs(line(rng, 0.0, 4.0)), line(rng, -8.0, 8.0)
    yield line(rng, 1.0, 3.0), np.round(line(rng, 0.0, 5.0))
    yield -np.round(line(rng, 1.0, 3.0)), np.round(line(rng, 0.0, 5.0))
    yield rng.uniform(0.5, 2.0, 4097), rng.uniform(-700.0, 700.0, 4097)


def pow_reference(x1: Any, x2: Any) -> Array:
    """NumPy's power, and what it refuses: negative exponents of integers, whose results are truncated."""
    x1 = np.asarray(x1, x2.dtype) if isinstance(x1, int) else np.asarray(x1)
    x2 = np.asarray(x2, x1.dtype) if isinstance(x2, int) else np.asarray(x2)
    if np.result_type(x1, x2).kind != "i":
        return np.power(x1, x2)
    found = np.power(x1, np.maximum(x2, 0))
    unit = np.where(x1 == -1, np.where(x2 % 2 == 0, 1, -1), x1 == 1)
    return np.where(x2 < 0, unit, found).astype(found.dtype)


@operator(
    "pow",
    kernels=(pow_value,),
    reference=pow_reference,
    samples=_samples,
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 2.0, "float64": 1.0},
)
def pow(x1: Operand, x2: Operand, /, *, out: Tensor | None = None) -> Tensor:
    """x1 to the power x2, elementwise.

    Parameters
    ----------
    x1, x2
        Operands of numeric dtypes whose shapes broadcast; one of them may be a Python scalar.
    out
        Tensor of the result's shape and dtype to write into.

    Returns
    -------
    Tensor
        Of the promoted dtype. Floats follow IEEE 754 (pow(x, 0) = pow(1, y) = 1). Integers wrap around; a negative
        exponent gives what truncating the exact result would: 0, or 1 and -1 for those bases.

    Raises
    ------
    DTypeError
        For float8.
    ShapeError
        If the shapes do not broadcast.

    Notes
    -----
    The same bits on every device. At most 2 ULP (float64: 0.8 in all samples).

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.pow(2, nbx.asarray([0.5, 3.0]))
    Tensor([1.4142135, 8.       ], dtype=float32, device='cpu')
    """
    a, b, dtype = operands("pow", x1, x2, "numeric")
    kind = compute_type(dtype)
    return pointwise("pow", pow_value, (a, b), (kind, kind), dtype, out)
