"""log1p: log(1 + x)."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import log1p as log1p_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, positives
from nbxtensor.tensor.tensor import Tensor


@operator(
    "log1p",
    kernels=(log1p_value,),
    reference=np.log1p,
    samples=positives,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INF),
        (-2.0, NAN),
        (INF, INF),
        (NAN, NAN),
        (1e-30, 1e-30),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.0},
)
def log1p(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x), elementwise.

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
    The same bits on every device. At most 1.5 ULP (float64: 0.65), near 0 too.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.log1p(nbx.asarray([1e-9]))
    Tensor([1.e-09], dtype=float32, device='cpu')
    """
    return float_unary("log1p", log1p_value, x, out)
