"""Elementwise operators that are a single expression: a row each.

A row names the operator, its device function, the dtypes it takes, its formula and its NumPy reference. Operands are
broadcast and promoted; integer arithmetic wraps around; 16-bit floats are computed in float32 and rounded once.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from nbxtensor.base.dtypes import bool_
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.math import ceil as ceil_exact
from nbxtensor.kernel.math import floor as floor_exact
from nbxtensor.kernel.math import floor_divide as floor_divide_value
from nbxtensor.kernel.math import is_finite, is_inf, is_nan, negate, round_even
from nbxtensor.kernel.math import maximum as maximum_value
from nbxtensor.kernel.math import minimum as minimum_value
from nbxtensor.kernel.math import remainder as remainder_value
from nbxtensor.kernel.math import sign as sign_value
from nbxtensor.kernel.math import trunc as trunc_exact
from nbxtensor.kernel.pointwise import Operand
from nbxtensor.ops._categories import Category, binary, unary
from nbxtensor.ops._samples import Array, pairs, singles
from nbxtensor.tensor.tensor import Tensor


class Unary(Protocol):
    """An elementwise function of one tensor."""

    def __call__(self, x: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...


class Binary(Protocol):
    """An elementwise function of two operands, at least one of them a tensor."""

    def __call__(self, x1: Operand, x2: Operand, /, *, out: Tensor | None = None) -> Tensor: ...


_DOC = """{formula}, elementwise.

    Parameters
    ----------
{operands}
    out
        Tensor of the result's shape and dtype to write into.

    Returns
    -------
    Tensor
        {result}

    Raises
    ------
    DTypeError
        If the dtype is not {category}.
{raises}
    Notes
    -----
    The same bits on every device. {accuracy}
    """
_ONE = "    x\n        Operand of any shape.\n"
_TWO = "    x1, x2\n        Operands whose shapes broadcast; one of them may be a Python scalar.\n"


def _document(
    function: Any, name: str, formula: str, category: Category, result: object, two: bool, exact: bool
) -> None:
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)  # for tracebacks
    function.__doc__ = _DOC.format(
        formula=formula,
        operands=_TWO if two else _ONE,
        result="Of dtype bool." if result else "Of the operands' promoted dtype." if two else "Of the operand's dtype.",
        category=category,
        raises="    ShapeError\n        If the shapes do not broadcast.\n" if two else "",
        accuracy="The result is exact." if exact else "The result is correctly rounded.",
    )


def one(
    name: str,
    fn: KernelFunction,
    category: Category,
    formula: str,
    reference: Callable[..., Any],
    *,
    test: bool = False,
) -> Unary:
    """Declare a function of one operand; `test`: it returns bool."""
    result = bool_ if test else None

    def function(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        return unary(name, fn, x, out, category, result)

    _document(function, name, formula, category, test, two=False, exact=name not in _ROUNDED)
    return operator(name, kernels=(fn,), reference=reference, samples=singles, ulp=_HALF if name in _ROUNDED else None)(
        function
    )


def two(
    name: str,
    fn: KernelFunction,
    category: Category,
    formula: str,
    reference: Callable[..., Any],
    *,
    test: bool = False,
) -> Binary:
    """Declare a function of two operands; `test`: it returns bool."""
    result = bool_ if test else None

    def function(x1: Operand, x2: Operand, /, *, out: Tensor | None = None) -> Tensor:
        return binary(name, fn, x1, x2, out, category, result)

    ulp = _HALF if name in _ROUNDED else _TWO_ULP if name == "floor_divide" else None
    _document(function, name, formula, category, test, two=True, exact=ulp is None)
    return operator(name, kernels=(fn,), reference=reference, samples=pairs, ulp=ulp)(function)


_ROUNDED = frozenset({"add", "subtract", "multiply", "square", "remainder"})
_TWO_ULP = {"float16": 1.0, "bfloat16": 1.0, "float32": 2.0, "float64": 2.0}  # of quotients above 2**24
_HALF = {"float16": 0.5, "bfloat16": 0.5, "float32": 0.5, "float64": 0.5}


@kernel
def add_value(a, b):
    return a + b


@kernel
def subtract_value(a, b):
    return a - b


@kernel
def multiply_value(a, b):
    return a * b


@kernel
def square_value(a):
    return a * a


@kernel
def negative_value(a):
    if a.dtype.is_floating():
        r = negate(a)
    else:
        r = 0 - a
    return r


@kernel
def positive_value(a):
    return a


@kernel
def abs_value(a):
    if a.dtype.is_floating():
        r = tl.abs(a)
    elif a.dtype.is_int_signed():
        r = tl.where(a < 0, 0 - a, a)
    else:
        r = a
    return r


@kernel
def floor_value(a):
    if a.dtype.is_floating():
        r = floor_exact(a)
    else:
        r = a
    return r


@kernel
def ceil_value(a):
    if a.dtype.is_floating():
        r = ceil_exact(a)
    else:
        r = a
    return r


@kernel
def trunc_value(a):
    if a.dtype.is_floating():
        r = trunc_exact(a)
    else:
        r = a
    return r


@kernel
def round_value(a):
    if a.dtype.is_floating():
        r = round_even(a)
    else:
        r = a
    return r


@kernel
def isnan_value(a):
    if a.dtype.is_floating():
        r = is_nan(a)
    else:
        r = a != a
    return r


@kernel
def isinf_value(a):
    if a.dtype.is_floating():
        r = is_inf(a)
    else:
        r = a != a
    return r


@kernel
def isfinite_value(a):
    if a.dtype.is_floating():
        r = is_finite(a)
    else:
        r = a == a
    return r


def _integer_or(np_function: Callable[..., Any]) -> Callable[..., Any]:
    """`np_function` for floats, the identity for integers (NumPy would return floats)."""

    def reference(x: Array) -> Array:
        return x if x.dtype.kind in "iu" else np_function(x)

    return reference


add = two("add", add_value, "numeric", "x1 + x2", np.add)
subtract = two("subtract", subtract_value, "numeric", "x1 - x2", np.subtract)
multiply = two("multiply", multiply_value, "numeric", "x1 * x2", np.multiply)
maximum = two("maximum", maximum_value, "numeric", "The larger of x1 and x2; NaN passes, 0.0 > -0.0", np.maximum)
minimum = two("minimum", minimum_value, "numeric", "The smaller of x1 and x2; NaN passes, -0.0 < 0.0", np.minimum)
floor_divide = two(
    "floor_divide", floor_divide_value, "numeric", "floor(x1 / x2); an integer divided by 0 gives 0", np.floor_divide
)
remainder = two("remainder", remainder_value, "numeric", "x1 - x2 * floor(x1 / x2), with the sign of x2", np.remainder)
negative = one("negative", negative_value, "numeric", "-x", np.negative)
positive = one("positive", positive_value, "numeric", "x", np.positive)
abs = one("abs", abs_value, "numeric", "abs(x)", np.abs)
sign = one("sign", sign_value, "numeric", "-1, 0 or 1 by the sign of x; NaN passes", np.sign)
square = one("square", square_value, "numeric", "x * x", np.square)
floor = one("floor", floor_value, "numeric", "The largest integer not above x", _integer_or(np.floor))
ceil = one("ceil", ceil_value, "numeric", "The smallest integer not below x", _integer_or(np.ceil))
trunc = one("trunc", trunc_value, "numeric", "x without its fraction", _integer_or(np.trunc))
round = one("round", round_value, "numeric", "The nearest integer, ties to even", _integer_or(np.round))
isnan = one("isnan", isnan_value, "numeric", "Whether x is NaN", np.isnan, test=True)
isinf = one("isinf", isinf_value, "numeric", "Whether x is inf or -inf", np.isinf, test=True)
isfinite = one("isfinite", isfinite_value, "numeric", "Whether x is neither NaN nor infinite", np.isfinite, test=True)
