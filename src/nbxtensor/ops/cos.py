"""cos: cos(x), x in radians."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import cos as cos_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, reals
from nbxtensor.tensor.tensor import Tensor


@operator(
    "cos",
    kernels=(cos_value,),
    reference=np.cos,
    samples=reals,
    special=(
        (0.0, 1.0),
        (-0.0, 1.0),
        (INF, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.0},
)
def cos(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """cos(x), x in radians, elementwise.

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
    >>> nbx.cos(nbx.asarray([0.0, 1.0]))
    Tensor([1.       , 0.5403023], dtype=float32, device='cpu')
    """
    return float_unary("cos", cos_value, x, out)
