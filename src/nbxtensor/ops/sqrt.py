"""sqrt: The square root of x."""

import numpy as np

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, positives
from nbxtensor.tensor.tensor import Tensor


@kernel
def sqrt_value(x):
    if x.dtype == tl.float64:
        r = tl.sqrt(x)  # correctly rounded, as all operations of this dtype are
    else:
        r = tl.sqrt_rn(x)
    return r


@operator(
    "sqrt",
    kernels=(sqrt_value,),
    reference=np.sqrt,
    samples=positives,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (4.0, 2.0),
        (-1.0, NAN),
        (INF, INF),
        (NAN, NAN),
    ),
    ulp={"float16": 0.5, "bfloat16": 0.5, "float32": 0.5, "float64": 0.5},
)
def sqrt(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The square root of x, elementwise.

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
    The same bits on every device. Correctly rounded.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.sqrt(nbx.asarray([2.0]))
    Tensor([1.4142135], dtype=float32, device='cpu')
    """
    return float_unary("sqrt", sqrt_value, x, out)
