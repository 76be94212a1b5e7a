"""gelu: x * Phi(x), with the normal distribution's Phi exact or through tanh."""

import math
from typing import Literal

import numpy as np

from nbxtensor.base.errors import ArgumentError
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import gelu as gelu_value
from nbxtensor.kernel.math import gelu_tanh as gelu_tanh_value
from nbxtensor.ops._categories import float_unary
from nbxtensor.ops._samples import INF, NAN, Array, reals
from nbxtensor.tensor.tensor import Tensor


def gelu_reference(x: Array, approximate: str = "none") -> Array:
    """gelu in float64; the negative tail through erfc."""
    x = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * np.maximum(x, -1e3) * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    x = np.maximum(x, -1e300)
    exact = -x.astype(np.longdouble) / np.sqrt(np.longdouble(2.0))
    at = exact.astype(np.float64)
    with np.errstate(all="ignore"):  # far out erfc multiplies the error of its argument by 2 at^2
        slope = np.where(np.isfinite(at), -2.0 / math.sqrt(math.pi) * np.exp(-at * at) * (exact - at), 0.0)
    return 0.5 * x * (np.vectorize(math.erfc, otypes=[np.float64])(at) + slope.astype(np.float64))


@operator(
    "gelu",
    kernels=(gelu_value, gelu_tanh_value),
    reference=gelu_reference,
    samples=reals,
    special=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, INF),
        (-INF, -0.0),
        (NAN, NAN),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 3.65, "float64": 1.25},
)
def gelu(x: Tensor, /, approximate: Literal["none", "tanh"] = "none", *, out: Tensor | None = None) -> Tensor:
    """x * Phi(x), elementwise, where Phi is the normal distribution function.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    approximate
        ``"none"`` for x / 2 * erfc(-x / sqrt(2)); ``"tanh"`` for
        x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))).
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
    ArgumentError
        For another `approximate`.

    Notes
    -----
    The same bits on every device. At most 3.7 ULP (float64: 1.25), in the negative tail too; gelu(-inf) is -0.0, the
    limit.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.gelu(nbx.asarray([1.0]))
    Tensor([0.8413448], dtype=float32, device='cpu')
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError("nbx.nn.gelu", "unknown approximation", got=approximate, allowed=("none", "tanh"))
    return float_unary("gelu", gelu_value if approximate == "none" else gelu_tanh_value, x, out)
