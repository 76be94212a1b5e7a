"""silu: x / (1 + exp(-x))."""

import numpy as np

from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import silu as silu_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, Array, reals
from nbxtensor.tensor.tensor import Tensor


def silu_reference(x: Array) -> Array:
    return np.maximum(x, -1e300) / (1.0 + np.exp(-x))


@operator(
    "silu",
    kernels=(silu_value,),
    reference=silu_reference,
    samples=reals,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, INF),
        (-INF, -0.0),
        (NAN, NAN),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.25, "float64": 1.0},
)
def silu(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """x / (1 + exp(-x)), elementwise.

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
    The same bits on every device. At most 1.2 ULP (float64: 1); silu(-inf) is -0.0, the limit.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.silu(nbx.asarray([1.0]))
    Tensor([0.7310586], dtype=float32, device='cpu')
    """
    return float_unary("silu", silu_value, x, out)
