import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbxtensor.base import dtypes, promotion
from nbxtensor.base.dtypes import ALL, ARITHMETIC, FLOATS, INTEGERS, DType
from nbxtensor.base.errors import ArgumentError, DTypeError
from nbxtensor.base.promotion import can_cast, promote, python_scalar, result_type

PAIRS = list(itertools.product(ARITHMETIC, repeat=2))
IEEE = [d for d in ARITHMETIC if d.name != "bfloat16"]


def test_table_is_complete_and_symmetric():
    for a, b in PAIRS:
        assert (a, b) in promotion.TABLE
        assert promotion.TABLE[a, b] is promotion.TABLE[b, a]
    assert len(promotion.TABLE) == len(PAIRS) + 2


@pytest.mark.parametrize(("a", "b"), list(itertools.product(IEEE, repeat=2)), ids=str)
def test_same_kind_agrees_with_numpy(a: DType, b: DType):
    expected = np.promote_types(a.numpy, b.numpy)
    signed_with_uint64 = {a.kind, b.kind} == {"i", "u"} and dtypes.uint64 in (a, b)
    if signed_with_uint64:
        with pytest.raises(DTypeError, match="astype"):
            promote(a, b)
    elif a.is_float == b.is_float or "b" in (a.kind, b.kind):
        assert promote(a, b).numpy == expected
    else:
        assert promote(a, b) is (a if a.is_float else b)


def test_bfloat16():
    assert promote(dtypes.bfloat16, dtypes.float16) is dtypes.float32
    assert promote(dtypes.bfloat16, dtypes.float32) is dtypes.float32
    assert promote(dtypes.bfloat16, dtypes.float64) is dtypes.float64
    for d in (dtypes.bool_, *INTEGERS):
        assert promote(dtypes.bfloat16, d) is dtypes.bfloat16


def test_promotion_is_a_join():
    """Associative wherever all pairs have a common dtype, so the order of operands does not matter."""
    for a, b, c in itertools.product(ARITHMETIC, repeat=3):
        if {"i", "u"} <= {a.kind, b.kind, c.kind} and dtypes.uint64 in (a, b, c):
            continue  # uint64 with a signed dtype: an error in some orders
        assert promote(promote(a, b), c) is promote(a, promote(b, c)), (a, b, c)


@pytest.mark.parametrize("d", [d for d in ALL if d.storage_only], ids=str)
def test_float8_promotes_with_itself_only(d: DType):
    assert promote(d, d) is d
    for other in ALL:
        if other is not d:
            with pytest.raises(DTypeError, match=f"{d.name} and {other.name}"):
                promote(d, other)
    with pytest.raises(DTypeError, match="no arithmetic"):
        result_type(d, 1.0)


def test_weak_scalars():
    for d in ARITHMETIC:
        assert result_type(d, True) is d
        assert result_type(d, 2.5) is (d if d.is_float else dtypes.float32)
        assert result_type(1, d) is (dtypes.int64 if d.is_bool else d)
    assert result_type(dtypes.int8, 1000, 2.5) is dtypes.float32
    assert result_type(True) is dtypes.bool_
    assert result_type(True, 1) is dtypes.int64
    assert result_type(1, 2.0) is dtypes.float32


def test_numpy_scalars_are_weak():
    assert result_type(dtypes.float16, np.float64(2)) is dtypes.float16
    assert result_type(dtypes.float16, np.float32(2)) is dtypes.float16
    assert result_type(dtypes.uint8, np.int64(255)) is dtypes.uint8
    assert result_type(dtypes.int8, np.bool_(True)) is dtypes.int8
    for value in (np.float64(1.5), np.float16(1.5), ml_dtypes.bfloat16(1.5)):
        assert type(python_scalar(value)) is float
    assert type(python_scalar(np.uint8(3))) is int
    assert type(python_scalar(np.bool_(1))) is bool
    for value in ("1", None, np.str_("1"), np.datetime64("2020"), np.complex64(1), 1j, np.zeros(())):
        assert python_scalar(value) is None


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_int_scalar_out_of_range(d: DType):
    assert d.minimum is not None
    assert d.maximum is not None
    result_type(d, d.minimum, d.maximum)
    for value in (d.minimum - 1, d.maximum + 1):
        with pytest.raises(ArgumentError, match=f"out of range for {d.name}; got {value}; allowed: {d.minimum} to"):
            result_type(d, value)
    result_type(d, d.maximum + 1, 1.0)
    result_type(dtypes.float16, 10**30)


def test_result_type_takes_every_form():
    assert result_type("int8", np.dtype("int16"), np.uint8) is dtypes.int16
    assert result_type(np.zeros(1, np.float64), dtypes.int8) is dtypes.float64
    with pytest.raises(ArgumentError):
        result_type()
    with pytest.raises(DTypeError, match="unknown dtype"):
        result_type(dtypes.int8, "nonsense")


def test_can_cast():
    assert can_cast(dtypes.int8, dtypes.int16)
    assert not can_cast(dtypes.int16, dtypes.int8)
    assert can_cast(dtypes.int64, dtypes.float16)
    assert not can_cast(dtypes.uint64, dtypes.int64)
    for d in ALL:
        assert can_cast(d, d)
    for d in FLOATS:
        assert not can_cast(d, dtypes.int64)


@given(st.floats() | st.integers(-(2**70), 2**70), st.sampled_from(ARITHMETIC))
def test_cast_scalar_matches_numpy_or_refuses(value: float, d: DType):
    try:
        cast = promotion.cast_scalar(value, d, "setitem")
    except ArgumentError:
        assert d.is_integer
        whole = int(value) if abs(value) < 1e300 else None
        assert whole is None or not d.minimum <= whole <= d.maximum
    else:
        if d.is_integer:
            assert cast == int(np.asarray(int(value), dtype=d.numpy))
        elif d.is_bool:
            assert cast is bool(value)
        else:
            assert cast == float(value) or value != value


def test_cast_scalar_refuses_what_no_float_holds():
    with pytest.raises(ArgumentError, match="too large"):
        promotion.cast_scalar(10**400, dtypes.float32, "setitem")
