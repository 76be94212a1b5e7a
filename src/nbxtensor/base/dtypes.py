"""The dtypes: one singleton each.

``bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64`` take part in arithmetic;
``float8_e4m3fn`` and ``float8_e5m2`` are for storage, casts and interchange only.
"""

import builtins
import contextlib
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from nbxtensor.base.errors import DTypeError

Kind: TypeAlias = Literal["b", "i", "u", "f"]


class DType:
    """The type of a tensor's elements. Compare with ``is`` or ``==``; there is one object per dtype.

    Attributes
    ----------
    name
        ``"float32"``.
    kind
        ``"b"`` bool, ``"i"`` signed, ``"u"`` unsigned, ``"f"`` floating point.
    itemsize
        Bytes per element in memory (1 for bool).
    bits
        ``8 * itemsize``.
    triton
        Name of the type in a kernel signature (``"fp32"``, ``"i1"``).
    storage_only
        Whether the dtype has no arithmetic.
    minimum, maximum
        Range of an integer dtype (0 and 1 for bool); None for floats.
    index
        Position in `ALL`; stable within one version only.
    """

    def __init__(self, index: int, name: str, kind: Kind, itemsize: int, triton: str, *, storage_only: bool = False):
        self.index = index
        self.name = name
        self.kind: Kind = kind
        self.itemsize = itemsize
        self.bits = 8 * itemsize
        self.triton = triton
        self.storage_only = storage_only
        self.is_float = kind == "f"
        self.is_integer = kind in "iu"
        self.is_bool = kind == "b"
        self.minimum: int | None = None
        self.maximum: int | None = None
        if kind == "b":
            self.minimum, self.maximum = 0, 1
        elif kind == "i":
            self.minimum, self.maximum = -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        elif kind == "u":
            self.minimum, self.maximum = 0, (1 << self.bits) - 1

    def __repr__(self) -> str:
        return f"nbxtensor.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return dtype, (self.name,)

    def __copy__(self) -> "DType":
        return self

    def __deepcopy__(self, memo: object) -> "DType":
        return self

    @cached_property
    def numpy(self) -> "np.dtype[Any]":
        """The NumPy dtype (from ml_dtypes, imported here at first use, for bfloat16 and float8)."""
        if self.name == "bfloat16" or self.storage_only:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, self.name))
        return np.dtype(self.name)

    @cached_property
    def bits_numpy(self) -> "np.dtype[Any]":
        """A NumPy dtype of the same size that needs no ml_dtypes: the dtype itself, or unsigned bits of its size."""
        if self.name == "bfloat16" or self.storage_only:
            return np.dtype(f"u{self.itemsize}")
        return np.dtype(self.name)


bool_ = DType(0, "bool", "b", 1, "i1")
int8 = DType(1, "int8", "i", 1, "i8")
int16 = DType(2, "int16", "i", 2, "i16")
int32 = DType(3, "int32", "i", 4, "i32")
int64 = DType(4, "int64", "i", 8, "i64")
uint8 = DType(5, "uint8", "u", 1, "u8")
uint16 = DType(6, "uint16", "u", 2, "u16")
uint32 = DType(7, "uint32", "u", 4, "u32")
uint64 = DType(8, "uint64", "u", 8, "u64")
float16 = DType(9, "float16", "f", 2, "fp16")
bfloat16 = DType(10, "bfloat16", "f", 2, "bf16")
float32 = DType(11, "float32", "f", 4, "fp32")
float64 = DType(12, "float64", "f", 8, "fp64")
float8_e4m3fn = DType(13, "float8_e4m3fn", "f", 1, "fp8e4nv", storage_only=True)
float8_e5m2 = DType(14, "float8_e5m2", "f", 1, "fp8e5", storage_only=True)

ALL: tuple[DType, ...] = (
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    float8_e4m3fn,
    float8_e5m2,
)
ARITHMETIC: tuple[DType, ...] = tuple(d for d in ALL if not d.storage_only)
INTEGERS: tuple[DType, ...] = tuple(d for d in ALL if d.is_integer)
FLOATS: tuple[DType, ...] = tuple(d for d in ARITHMETIC if d.is_float)

default_int = int64
default_float = float32

_BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_BY_TRITON: dict[str, DType] = {d.triton: d for d in ALL}
_BY_TYPE: dict[type, DType] = {builtins.bool: bool_, int: default_int, float: default_float}


def dtype(value: object, function: str = "dtype") -> DType:
    """The dtype that `value` names.

    Parameters
    ----------
    value
        A `DType`, a name (``"float32"``), a NumPy dtype or scalar type, or one of the Python types ``bool``, ``int``
        and ``float``, which stand for bool and the default dtypes int64 and float32.
    function
        The public function on whose behalf an error speaks.

    Raises
    ------
    DTypeError
        If there is no such dtype here (complex, object, strings, other byte orders).
    """
    if isinstance(value, DType):
        return value
    found: DType | None = None
    if isinstance(value, str):
        found = _BY_NAME.get(value)
    elif isinstance(value, type) and value in _BY_TYPE:
        found = _BY_TYPE[value]
    elif isinstance(value, (np.dtype, type)):
        with contextlib.suppress(TypeError):
            found = of_numpy(np.dtype(cast("type", value)))
    if found is None:
        raise DTypeError(function, "unknown dtype", got=repr(cast("object", value)), allowed=_BY_NAME)
    return found


@lru_cache(maxsize=256)
def of_numpy(value: "np.dtype[Any]") -> DType | None:
    """The dtype that is NumPy's `value`, or None (other byte orders, complex, object, strings, long double)."""
    return _BY_NAME.get(value.name) if value.isnative else None


def from_triton(name: str) -> DType:
    """The dtype whose type in a kernel signature is `name` (``"fp32"``)."""
    if name not in _BY_TRITON:
        raise DTypeError("from_triton", "unknown type in a kernel signature", got=name, allowed=_BY_TRITON)
    return _BY_TRITON[name]


# The standard's name for the dtype. It hides the built-in in this module, so it comes last.
bool = bool_
