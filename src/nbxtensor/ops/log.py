"""log: The natural logarithm of x."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import log as log_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, positives
from nbxtensor.tensor.tensor import Tensor


@operator(
    "log",
    kernels=(log_value,),
    reference=np.log,
    samples=positives,
    special=(
        (1.0, 0.0),
        (0.0, -INF),
        (-0.0, -INF),
        (-1.0, NAN),
        (INF, INF),
        (NAN, NAN),
        (1e-45, -103.27893),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0},
)
def log(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm of x, elementwise.

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
    The same bits on every device. At most 1 ULP (float64: 0.65); NaN below 0, -inf at 0.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.log(nbx.asarray([1.0, 10.0]))
    Tensor([0.       , 2.3025851], dtype=float32, device='cpu')
    """
    return float_unary("log", log_value, x, out)
