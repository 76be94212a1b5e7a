"""sigmoid: 1 / (1 + exp(-x))."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import sigmoid as sigmoid_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, Array, reals
from nbxtensor.tensor.tensor import Tensor


def sigmoid_reference(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


@operator(
    "sigmoid",
    kernels=(sigmoid_value,),
    reference=sigmoid_reference,
    samples=reals,
    special=(
        (0.0, 0.5),
        (-0.0, 0.5),
        (INF, 1.0),
        (-INF, 0.0),
        (NAN, NAN),
        (89.0, 1.0),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.05, "float64": 1.0},
)
def sigmoid(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x)), elementwise.

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
    The same bits on every device. At most 1.05 ULP (float64: 0.8); small results keep their relative accuracy,
    subnormals included.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.sigmoid(nbx.asarray([0.0, 2.0]))
    Tensor([0.5      , 0.8807971], dtype=float32, device='cpu')
    """
    return float_unary("sigmoid", sigmoid_value, x, out)
