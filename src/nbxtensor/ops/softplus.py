"""softplus: log(1 + exp(beta * x)) / beta, and x itself above the threshold."""

import numpy as np

from nbxtensor.base.dtypes import float32, float64
from nbxtensor.base.errors import ArgumentError
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import softplus as softplus_value
from nbxtensor.kernel.math import softplus_scaled as softplus_scaled_value
from nbxtensor.kernel.math64 import for_64_bit
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.ops._categories import check_tensor, math_form, math_types, number
from nbxtensor.ops._samples import INF, NAN, Array, reals
from nbxtensor.tensor.tensor import Tensor

# Above this, softplus(x) rounds to x, so a threshold has nothing left to do.
EXACT_THRESHOLD = {float32: 18.0, float64: 37.0}


def softplus_reference(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """softplus in the precision of `x`, threshold included."""
    return np.where(beta * x > threshold, x, np.logaddexp(0.0, beta * x) / beta)


@operator(
    "softplus",
    kernels=(softplus_value, softplus_scaled_value),
    reference=softplus_reference,
    samples=reals,
    special=(
        (0.0, 0.6931472),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (-20.0, 2.0611536e-09),
        (-10.0, 4.53989e-5),
        (-17.0, 4.139937e-8),
        (88.8, 88.8),
    ),
    ulp={"float16": 1.0, "bfloat16": 1.0, "float32": 1.5, "float64": 1.0},
)
def softplus(x: Tensor, /, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta * x)) / beta, elementwise, and x where beta * x > threshold.

    Parameters
    ----------
    x
        Operand of any shape; float64 is computed in float64, integers and bool as float32.
    beta
        Steepness; not 0.
    threshold
        Value of ``beta * x`` above which the result is `x`; may be inf.
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
        If `beta` is 0, infinite or NaN in the dtype of the computation.

    Notes
    -----
    The same bits on every device. At most 1.5 ULP (float64: 0.75) for beta = 1; the tail is not lost:
    softplus(-20) is 2.0611536e-09.

    Examples
    --------
    >>> import nbxtensor as nbx
    >>> nbx.nn.softplus(nbx.asarray([-20.0, 0.0]))
    Tensor([2.0611537e-09, 6.9314718e-01], dtype=float32, device='cpu')
    """
    check_tensor("nn.softplus", x)
    kind, dtype = math_types("nn.softplus", x.dtype)
    given = number("nn.softplus", "beta", beta, kind)
    with np.errstate(over="ignore", under="ignore"):
        beta = float(np.dtype(kind.name).type(given))
    if not 0 < abs(beta) < INF:
        allowed = f"a number that is neither 0 nor infinite in {kind.name}"
        raise ArgumentError("nbx.nn.softplus", "beta does not fit", got=given, allowed=allowed)
    # Where beta * x overflows, the result is x however large the threshold is.
    threshold = min(number("nn.softplus", "threshold", threshold, kind), float(np.finfo(kind.name).max))
    if beta == 1.0 and threshold >= EXACT_THRESHOLD[kind]:
        return pointwise("softplus", math_form(softplus_value, dtype), (x,), (kind,), dtype, out)
    fn = for_64_bit(softplus_scaled_value) if kind is float64 else softplus_scaled_value
    return pointwise("softplus", fn, (x, beta, threshold), (kind,) * 3, dtype, out)
