"""tanh: The hyperbolic tangent of x."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import tanh as tanh_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "tanh",
    kernels=(tanh_value,),
    reference=np.tanh,
    samples=reals,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, 1.0),
        (-INF, -1.0),
        (NAN, NAN),
        (1e-30, 1e-30),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.25, "float64": 1.4},
)
def tanh(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent of x, elementwise.

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
    The same bits on every device. At most 1.25 ULP (float64: 1.4).

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.tanh(nbx.asarray([0.5]))
    Tensor([0.46211717], dtype=float32, device='cpu')
    """
    return float_unary("tanh", tanh_value, x, out)
