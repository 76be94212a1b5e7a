"""Type promotion: one literal table, and weak Python scalars.

The integer and floating-point parts are the table of the Python Array API standard. Where the standard leaves the
result open, these rules hold:

* bool promotes to any other dtype.
* An integer dtype with a floating-point dtype gives the floating-point dtype, whatever their sizes (as in PyTorch).
* float16 with bfloat16 gives float32.
* uint64 with a signed integer dtype has no common type: an error.
* The float8 dtypes are for storage: they promote with nothing but themselves.

A Python scalar never widens a dtype of its own kind or of a higher one. An int with bool gives int64; a float with bool
or an integer dtype gives float32. An int that the resulting integer dtype cannot hold is an error. A NumPy scalar
counts as the Python scalar of its value.
"""

import math
from typing import Any, TypeAlias, cast

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError

Scalar: TypeAlias = int | float  # bool is a subclass of int

_TABLE = """
       b1  i1  i2  i4  i8  u1  u2  u4  u8  f2  bf  f4  f8
b1     b1  i1  i2  i4  i8  u1  u2  u4  u8  f2  bf  f4  f8
i1     i1  i1  i2  i4  i8  i2  i4  i8  --  f2  bf  f4  f8
i2     i2  i2  i2  i4  i8  i2  i4  i8  --  f2  bf  f4  f8
i4     i4  i4  i4  i4  i8  i4  i4  i8  --  f2  bf  f4  f8
i8     i8  i8  i8  i8  i8  i8  i8  i8  --  f2  bf  f4  f8
u1     u1  i2  i2  i4  i8  u1  u2  u4  u8  f2  bf  f4  f8
u2     u2  i4  i4  i4  i8  u2  u2  u4  u8  f2  bf  f4  f8
u4     u4  i8  i8  i8  i8  u4  u4  u4  u8  f2  bf  f4  f8
u8     u8  --  --  --  --  u8  u8  u8  u8  f2  bf  f4  f8
f2     f2  f2  f2  f2  f2  f2  f2  f2  f2  f2  f4  f4  f8
bf     bf  bf  bf  bf  bf  bf  bf  bf  bf  f4  bf  f4  f8
f4     f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f8
f8     f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8
"""


def _parse(table: str) -> dict[tuple[DType, DType], DType | None]:
    head, *rows = (line.split() for line in table.strip().splitlines())
    short = dict(zip(head, dtypes.ARITHMETIC, strict=True))
    parsed = {(d, d): d for d in dtypes.ALL}
    return parsed | {
        (short[row], short[column]): short.get(cell)
        for row, *cells in rows
        for column, cell in zip(head, cells, strict=True)
    }


TABLE: dict[tuple[DType, DType], DType | None] = _parse(_TABLE)
"""``TABLE[a, b]``: the common dtype of two dtypes, None where there is none; pairs with float8 are absent."""


def promote(a: DType, b: DType, function: str = "result_type") -> DType:
    """The common dtype of two dtypes."""
    if a is b:
        return a
    common = TABLE.get((a, b))
    if common is None:
        raise DTypeError(
            function,
            "these dtypes have no common dtype",
            got=f"{a.name} and {b.name}",
            mend="convert one of them with astype",
        )
    return common


def python_scalar(value: object) -> Scalar | None:
    """`value` as a plain bool, int or float if it is a Python or NumPy scalar, else None."""
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        return value  # pyright: ignore[reportReturnType]
    if isinstance(value, float):  # NumPy's float64 among them
        return float(value)
    if isinstance(value, int):  # an IntEnum
        return int(value)
    if isinstance(value, np.generic):
        found: Any = cast("Any", value)
        of = dtypes.of_numpy(found.dtype)
        if of is not None:
            return bool(found) if of.kind == "b" else float(found) if of.kind == "f" else int(found)
    return None


def promote_scalar(a: DType, scalar: Scalar, function: str = "result_type") -> DType:
    """The dtype of an operation between a tensor of dtype `a` and a Python scalar; checks that it holds the scalar."""
    if isinstance(scalar, bool):
        return a
    if isinstance(scalar, float):
        result = a if a.kind == "f" else dtypes.default_float
    else:
        result = dtypes.default_int if a.kind == "b" else a
        if result.kind != "f":
            check_fits(scalar, result, function)
    if result.storage_only:
        raise DTypeError(function, "no arithmetic in this dtype", got=a.name, mend="convert with astype first")
    return result


def check_fits(value: int, dtype: DType, function: str = "result_type") -> None:
    """Raise unless the integer (or bool) `dtype` can hold `value`."""
    low, high = dtype.minimum, dtype.maximum
    if low is not None and high is not None and not low <= value <= high:
        raise ArgumentError(
            function,
            f"the Python integer is out of range for {dtype.name}",
            got=value,
            allowed=f"{low} to {high}",
            mend="convert the tensor to a wider dtype with astype",
        )


def _as_float(value: Scalar, function: str) -> float:
    try:
        return float(value)
    except OverflowError:
        problem = "the Python integer is too large for a float"
        raise ArgumentError(function, problem, allowed="integers below 2^1024") from None


_LARGEST_FLOAT32 = float.fromhex("0x1.fffffep127")


def round_scalar(value: Scalar, dtype: DType, function: str) -> float:
    """`value` as an element of the float `dtype`: what is too large becomes infinite.

    A float32 is left as it is within the dtype's range, for the launch rounds it.
    """
    number = _as_float(value, function)
    if dtype.itemsize == 8 or (dtype.itemsize == 4 and -_LARGEST_FLOAT32 <= number <= _LARGEST_FLOAT32):
        return number
    with np.errstate(over="ignore"):
        return float(dtype.numpy.type(number))


def cast_scalar(value: Scalar, dtype: DType, function: str) -> Scalar:
    """`value` as it is stored in `dtype`: floats are cut towards zero for integers, an int out of range is an error."""
    if dtype.kind == "f":
        return _as_float(value, function)
    if dtype.kind == "b":
        return bool(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ArgumentError(function, f"{dtype.name} cannot hold the value", got=value)
        value = int(value)
    check_fits(value, dtype, function)
    return int(value)


def result_type(*operands: Any, function: str = "result_type") -> DType:
    """The dtype that results from combining dtypes, tensors and Python scalars.

    Parameters
    ----------
    operands
        Dtypes (in any form `dtypes.dtype` takes), objects with a ``dtype``, Python or NumPy scalars. Scalars alone
        give bool, int64 or float32.

    Raises
    ------
    DTypeError
        If two dtypes have no common dtype.
    ArgumentError
        If a Python int does not fit the resulting integer dtype, or nothing is given.
    """
    found: DType | None = None
    scalars: list[Scalar] = []
    for operand in operands:
        scalar = None if isinstance(operand, DType) else python_scalar(operand)
        if scalar is not None:
            scalars.append(scalar)
            continue
        named = operand if isinstance(operand, type) else getattr(operand, "dtype", operand)
        each = dtypes.dtype(named, function)
        found = each if found is None else promote(found, each, function)
    if found is None:
        if not scalars:
            raise ArgumentError(function, "at least one dtype, tensor or scalar is needed")
        found = dtypes.bool_
    for scalar in sorted(scalars, key=lambda s: not isinstance(s, float)):  # a float first: it decides the kind
        found = promote_scalar(found, scalar, function)
    return found


def can_cast(source: DType, target: DType) -> bool:
    """Whether promotion allows `source` to become `target` (``int8`` to ``int16``, not back)."""
    return TABLE.get((source, target)) is target
