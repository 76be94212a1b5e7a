"""softplus: log(1 + exp(beta * x)) / beta, and x itself above the threshold."""

import numpy as np

from nbxtensor.base.dtypes import default_float, float32
from nbxtensor.base.errors import ArgumentError
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import for_16_bit
from nbxtensor.kernel.math import softplus as softplus_value
from nbxtensor.kernel.math import softplus_scaled as softplus_scaled_value
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.ops._categories import check_float32_math, check_tensor, number
from nbxtensor.ops._samples import INF, NAN, Array, singles
from nbxtensor.tensor.tensor import Tensor

# Above this, softplus(x) rounds to x in float32, so a threshold has nothing left to do.
EXACT_THRESHOLD = 18.0


def softplus_reference(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """softplus in the precision of `x`, threshold included."""
    return np.where(beta * x > threshold, x, np.logaddexp(0.0, beta * x) / beta)


@operator(
    "softplus",
    kernels=(softplus_value, softplus_scaled_value),
    reference=softplus_reference,
    samples=singles,
    special=(
        (0.0, 0.6931472),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (-20.0, 2.0611536e-09),
        (-10.0, 4.53989e-5),
        (-17.0, 4.139937e-8),
        (88.8, 88.8),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 2.0},
)
def softplus(x: Tensor, /, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta * x)) / beta, elementwise, and x where beta * x > threshold.

    Parameters
    ----------
    x
        Operand of any shape; integers and bool are computed as float32.
    beta
        Steepness; not 0.
    threshold
        Value of ``beta * x`` above which the result is `x`; may be inf.
    out
        Tensor of the result's shape and dtype to write into; it may be `x`.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32.

    Raises
    ------
    DTypeError
        For float64 and float8.
    ArgumentError
        If `beta` is 0 or NaN.

    Notes
    -----
    The same bits on every device. At most 2 ULP for beta = 1; the tail is not lost: softplus(-20) is 2.0611536e-09.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.softplus(nbx.asarray([-20.0, 0.0]))
    Tensor([2.0611537e-09, 6.9314718e-01], dtype=float32, device='cpu')
    """
    check_tensor("nn.softplus", x)
    beta, threshold = number("nn.softplus", "beta", beta), number("nn.softplus", "threshold", threshold)
    if not abs(beta) > 0:
        raise ArgumentError("nbx.nn.softplus", "beta must not be 0", got=beta, allowed="any other number")
    check_float32_math("nn.softplus", x.dtype)
    dtype = x.dtype if x.dtype.is_float else default_float
    if beta == 1.0 and threshold >= EXACT_THRESHOLD:
        fn = for_16_bit(softplus_value) if dtype.itemsize == 2 else softplus_value
        return pointwise("softplus", fn, (x,), (float32,), dtype, out)
    return pointwise("softplus", softplus_scaled_value, (x, beta, threshold), (float32,) * 3, dtype, out)
