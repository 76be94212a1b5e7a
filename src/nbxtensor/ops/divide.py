"""divide: x1 / x2; reciprocal: 1 / x."""

import numpy as np

from nbxtensor.base.dtypes import default_float
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import quotient as divide_value
from nbxtensor.kernel.pointwise import Operand, pointwise
from nbxtensor.ops._categories import check_tensor, compute_type, operands
from nbxtensor.ops._samples import pairs, singles
from nbxtensor.tensor.tensor import Tensor

_HALF = {"float16": 0.5, "bfloat16": 0.5, "float32": 0.5, "float64": 0.5}


@kernel
def reciprocal_value(a):
    return divide_value(tl.full(a.shape, 1.0, a.dtype), a)


@operator("divide", kernels=(divide_value,), reference=np.divide, samples=pairs, ulp=_HALF)
def divide(x1: Operand, x2: Operand, /, *, out: Tensor | None = None) -> Tensor:
    """x1 / x2, elementwise.

    Parameters
    ----------
    x1, x2
        Operands whose shapes broadcast; one of them may be a Python scalar.
    out
        Tensor of the result's shape and dtype to write into.

    Returns
    -------
    Tensor
        Of the promoted dtype; integers and bool are divided in float32.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.

    Notes
    -----
    The same bits on every device. The result is correctly rounded.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.divide(1, nbx.asarray([3.0]))
    Tensor([0.33333334], dtype=float32, device='cpu')
    """
    a, b, dtype = operands("divide", x1, x2, "any")
    if not dtype.is_float:
        dtype = default_float
        a, b = (o if isinstance(o, Tensor) else float(o) for o in (a, b))
    kind = compute_type(dtype)
    return pointwise("divide", divide_value, (a, b), (kind, kind), dtype, out)


@operator("reciprocal", kernels=(reciprocal_value,), reference=np.reciprocal, samples=singles, ulp=_HALF)
def reciprocal(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """1 / x, elementwise.

    Parameters
    ----------
    x
        Operand of any shape; integers and bool are computed in float32.
    out
        Tensor of the result's shape and dtype to write into.

    Returns
    -------
    Tensor
        Of the dtype of `x` if that is a float, else float32.

    Notes
    -----
    The same bits on every device. The result is correctly rounded.
    """
    return divide(1, check_tensor("reciprocal", x), out=out)
