"""sin: sin(x), x in radians."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import sin as sin_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "sin",
    kernels=(sin_value,),
    reference=np.sin,
    samples=reals,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, NAN),
        (-INF, NAN),
        (NAN, NAN),
        (1e-7, 1e-7),
        (-3.1415, -9.26574e-5),
        (16793388.0, -0.9708239),
        (6.7e8, -0.7221810),
        (1e30, -0.7911634),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.0},
)
def sin(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """sin(x), x in radians, elementwise.

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
    The same bits on every device. At most 1.5 ULP (float64: 0.75) over the whole range: the argument is
    reduced exactly.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.sin(nbx.asarray([0.0, 1.0]))
    Tensor([0.        , 0.84147096], dtype=float32, device='cpu')
    """
    return float_unary("sin", sin_value, x, out)
