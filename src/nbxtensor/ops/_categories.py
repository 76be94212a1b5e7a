"""What elementwise operators share: which dtypes they take, and in which dtype they compute."""

from collections.abc import Iterable
from typing import Literal

from nbxtensor.base.dtypes import ARITHMETIC, DType, bool_, default_float, float32
from nbxtensor.base.errors import ArgumentError, DTypeError
from nbxtensor.base.promotion import python_scalar, result_type, round_scalar
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.kernel.math import for_16_bit
from nbxtensor.kernel.math64 import for_64_bit
from nbxtensor.kernel.pointwise import Operand, pointwise, recall, recall_pair, remember
from nbxtensor.tensor.check import check_tensor as require_tensor
from nbxtensor.tensor.tensor import Tensor

Category = Literal["numeric", "real", "integer", "integer or bool", "bool", "any"]

_CATEGORIES: dict[Category, tuple[DType, ...]] = {
    "any": ARITHMETIC,
    "numeric": tuple(d for d in ARITHMETIC if not d.is_bool),
    "real": tuple(d for d in ARITHMETIC if d.is_float),
    "integer": tuple(d for d in ARITHMETIC if d.is_integer),
    "integer or bool": tuple(d for d in ARITHMETIC if not d.is_float),
    "bool": (bool_,),
}


def compute_type(dtype: DType) -> DType:
    """The dtype in which kernels see elements of `dtype`: 16-bit floats are widened, for one rounding at the end."""
    return float32 if dtype.is_float and dtype.itemsize < 4 else dtype


def check_dtype(name: str, dtype: DType, allowed: Iterable[DType], mend: str = "convert with astype") -> None:
    """Raise unless `dtype` is among `allowed`."""
    if dtype not in allowed:
        raise DTypeError(
            f"nbx.{name}", "dtype not supported", got=dtype.name, allowed=(d.name for d in allowed), mend=mend
        )


def check_tensor(name: str, value: object) -> Tensor:
    """`value`, which must be a tensor."""
    return value if isinstance(value, Tensor) else require_tensor(value, f"nbx.{name}")


def weak(name: str, scalar: object, dtype: DType) -> int | float:
    """A Python scalar as an element of `dtype`: floats are rounded to it once, here."""
    value = python_scalar(scalar)
    if value is None:
        raise ArgumentError(f"nbx.{name}", "not a tensor or a scalar", got=type(scalar).__name__)
    return round_scalar(value, dtype, f"nbx.{name}") if dtype.is_float else int(value)


def number(name: str, what: str, value: object, dtype: DType = float32) -> float:
    """A parameter of a function that computes in `dtype`, which must be a Python number."""
    scalar = python_scalar(value)
    if scalar is None:
        raise ArgumentError(f"nbx.{name}", f"{what} is not a number", got=repr(value), allowed="int or float")
    return round_scalar(scalar, dtype, f"nbx.{name}")


def unary(
    name: str, fn: KernelFunction, x: Tensor, out: Tensor | None, category: Category, result: DType | None = None
) -> Tensor:
    """An elementwise function of one tensor that computes in the tensor's own kind of number."""
    if (quick := recall(name, fn, x, out)) is not None:
        return quick
    check_tensor(name, x)
    dtype = x.dtype
    check_dtype(name, dtype, _CATEGORIES[category])
    types = (compute_type(dtype),)
    value = pointwise(name, fn, (x,), types, result or dtype, out)
    remember(name, fn, fn, types, result or dtype, out, x)
    return value


def math_types(name: str, dtype: DType) -> tuple[DType, DType]:
    """For mathematics on `dtype`: in which dtype it computes, and that of the result. Raises for float8."""
    if dtype.storage_only:
        check_dtype(name, dtype, ARITHMETIC)
    result = dtype if dtype.is_float else default_float
    return compute_type(result), result


def math_form(fn: KernelFunction, dtype: DType) -> KernelFunction:
    """The form of a mathematical function for operands and a result of `dtype`."""
    return for_16_bit(fn, dtype) if dtype.itemsize == 2 else for_64_bit(fn) if dtype.itemsize == 8 else fn


def float_unary(name: str, fn: KernelFunction, x: Tensor, out: Tensor | None) -> Tensor:
    """A mathematical function of one tensor, in float32 or, for float64, in float64; integers and bool give float32."""
    if (quick := recall(name, fn, x, out)) is not None:
        return quick
    check_tensor(name, x)
    kind, dtype = math_types(name, x.dtype)
    computed = math_form(fn, dtype)
    value = pointwise(name, computed, (x,), (kind,), dtype, out)
    remember(name, fn, computed, (kind,), dtype, out, x)
    return value


def operands(name: str, a: Operand, b: Operand, category: Category) -> tuple[Operand, Operand, DType]:
    """Both operands of a binary function and the dtype they promote to."""
    function = f"nbx.{name}"
    if isinstance(a, Tensor):
        if isinstance(b, Tensor):
            dtype = a.dtype if a.dtype is b.dtype else result_type(a.dtype, b.dtype, function=function)
        elif python_scalar(b) is not None:
            dtype = result_type(a.dtype, b, function=function)
            b = weak(name, b, dtype)
        else:
            check_tensor(name, b)
            dtype = a.dtype
    else:
        check_tensor(name, b)
        assert isinstance(b, Tensor)
        if python_scalar(a) is None:
            check_tensor(name, a)
        dtype = result_type(a, b.dtype, function=function)
        a = weak(name, a, dtype)
    check_dtype(name, dtype, _CATEGORIES[category])
    return a, b, dtype


def binary(
    name: str,
    fn: KernelFunction,
    a: Operand,
    b: Operand,
    out: Tensor | None,
    category: Category,
    result: DType | None = None,
) -> Tensor:
    """An elementwise function of two operands in their common dtype; `result` if the result has another."""
    if (quick := recall_pair(name, fn, a, b, out)) is not None:
        return quick
    a, b, dtype = operands(name, a, b, category)
    types = (compute_type(dtype),) * 2
    value = pointwise(name, fn, (a, b), types, result or dtype, out)
    remember(name, fn, fn, types, result or dtype, out, a, b)
    return value
