"""exp: exp(x)."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import exp as exp_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "exp",
    kernels=(exp_value,),
    reference=np.exp,
    samples=reals,
    special=(
        (0.0, 1.0),
        (-0.0, 1.0),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (89.0, INF),
        (-104.0, 0.0),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0},
)
def exp(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """exp(x), elementwise.

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
    The same bits on every device. At most 1 ULP (float64: 0.6, and 0.8 where the result is subnormal);
    subnormal results are kept.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.exp(nbx.asarray([0.0, 1.0]))
    Tensor([1.       , 2.7182817], dtype=float32, device='cpu')
    """
    return float_unary("exp", exp_value, x, out)
