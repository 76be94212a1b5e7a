"""expm1: exp(x) - 1."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import expm1 as expm1_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "expm1",
    kernels=(expm1_value,),
    reference=np.expm1,
    samples=reals,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, INF),
        (-INF, -1.0),
        (NAN, NAN),
        (1e-30, 1e-30),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.0},
)
def expm1(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """exp(x) - 1, elementwise.

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
    The same bits on every device. At most 1.5 ULP (float64: 0.6), near 0 too.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.expm1(nbx.asarray([1e-9]))
    Tensor([1.e-09], dtype=float32, device='cpu')
    """
    return float_unary("expm1", expm1_value, x, out)
