"""rsqrt: 1 / sqrt(x)."""

import numpy as np

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import quotient
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, Array, positives
from nbxtensor.ops.sqrt import sqrt_value
from nbxtensor.tensor.tensor import Tensor


@kernel
def rsqrt_value(x):
    return quotient(tl.full([], 1.0, x.dtype), sqrt_value(x))


def rsqrt_reference(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


@operator(
    "rsqrt",
    kernels=(rsqrt_value,),
    reference=rsqrt_reference,
    samples=positives,
    special=(
        (0.0, INF),
        (-0.0, -INF),
        (4.0, 0.5),
        (-1.0, NAN),
        (INF, 0.0),
        (NAN, NAN),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.5},
)
def rsqrt(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """1 / sqrt(x), elementwise.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32.

    Raises
    ------
    DTypeError
        For float8.

    Notes
    -----
    The same bits on every device. At most 1.5 ULP: a correctly rounded root, then a correctly rounded division.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.rsqrt(nbx.asarray([4.0]))
    Tensor([0.5], dtype=float32, device='cpu')
    """
    return float_unary("rsqrt", rsqrt_value, x, out)
