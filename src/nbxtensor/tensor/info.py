"""Questions about dtypes, as the Array API standard asks them."""

from typing import Any, NamedTuple

from nbxtensor.base import dtypes, promotion
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError, DTypeError

result_type = promotion.result_type


class FloatInfo(NamedTuple):
    """Limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


_FLOATS: dict[str, tuple[int, int, float]] = {  # mantissa bits, exponent of the smallest normal, largest
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127),
    "float32": (23, -126, (2 - 2.0**-23) * 2.0**127),
    "float64": (52, -1022, (2 - 2.0**-52) * 2.0**1023),
    "float8_e4m3fn": (3, -6, 448.0),
    "float8_e5m2": (2, -14, 57344.0),
}
_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "",
    "numeric": "iuf",
}


def _of(value: Any, function: str) -> DType:
    return dtypes.dtype(value if isinstance(value, (str, type)) else getattr(value, "dtype", value), function)


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating-point dtype (or of a tensor's)."""
    dtype = _of(type, "nbx.finfo")
    if not dtype.is_float:
        raise DTypeError("nbx.finfo", "not a floating-point dtype", got=dtype, allowed=_FLOATS)
    mantissa, exponent, largest = _FLOATS[dtype.name]
    return FloatInfo(dtype.bits, 2.0**-mantissa, largest, -largest, 2.0**exponent, dtype)


def iinfo(type: Any, /) -> IntInfo:
    """Limits of an integer dtype (or of a tensor's)."""
    dtype = _of(type, "nbx.iinfo")
    if not dtype.is_integer or dtype.minimum is None or dtype.maximum is None:
        raise DTypeError("nbx.iinfo", "not an integer dtype", got=dtype, allowed=map(str, dtypes.INTEGERS))
    return IntInfo(dtype.bits, dtype.maximum, dtype.minimum, dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is `kind`: a dtype, a kind's name such as ``"integral"``, or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)  # pyright: ignore[reportUnknownVariableType]
    given = dtypes.dtype(dtype, "nbx.isdtype")
    if isinstance(kind, DType):
        return given is kind
    if kind not in _KINDS:
        raise ArgumentError("nbx.isdtype", "unknown kind", got=repr(kind), allowed=_KINDS)
    return given.kind in _KINDS[kind]


def can_cast(source: Any, target: Any, /) -> bool:
    """Whether promotion allows `source` (a dtype or a tensor) to become the dtype `target`."""
    return promotion.can_cast(_of(source, "nbx.can_cast"), _of(target, "nbx.can_cast"))
