"""erf: The error function of x."""

import math

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import erf as erf_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "erf",
    kernels=(erf_value,),
    reference=np.vectorize(math.erf, otypes=[np.float64]),
    samples=reals,
    special=((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.1, "float64": 1.65},
)
def erf(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The error function of x, elementwise.

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
    The same bits on every device. At most 1.1 ULP (float64: 1.65).

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.erf(nbx.asarray([0.5]))
    Tensor([0.5204999], dtype=float32, device='cpu')
    """
    return float_unary("erf", erf_value, x, out)
