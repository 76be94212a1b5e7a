import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import ALL, DType, dtype
from nbxtensor.base.errors import DTypeError


def test_names_are_module_attributes_and_unique():
    for d in ALL:
        assert getattr(dtypes, d.name) is d
        assert ALL[d.index] is d
    assert len({d.triton for d in ALL}) == len(ALL)


@pytest.mark.parametrize("d", ALL, ids=str)
def test_agrees_with_numpy(d: DType):
    assert d.numpy.itemsize == d.itemsize == d.bits_numpy.itemsize
    assert dtype(d.numpy) is d
    assert dtype(d.name) is d
    assert dtype(d.numpy.type) is d
    assert dtypes.from_triton(d.triton) is d
    if d.is_integer:
        info = np.iinfo(d.numpy)
        assert (d.minimum, d.maximum) == (info.min, info.max)
    assert d.is_float == (d.numpy.kind in "fV" or d.numpy.type.__module__ == "ml_dtypes")


@pytest.mark.parametrize("d", ALL, ids=str)
def test_is_a_singleton(d: DType):
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d
    assert copy.copy(d) is d


def test_python_types_are_the_defaults():
    assert dtype(bool) is dtypes.bool_
    assert dtype(int) is dtypes.int64
    assert dtype(float) is dtypes.float32


@pytest.mark.parametrize(
    "bad", ["f4", "complex64", complex, object, str, np.dtype(">f4"), np.complex64, np.longdouble, 3, None, "float8"]
)
def test_unknown_dtypes_are_refused(bad: object):
    with pytest.raises(DTypeError, match=r"nbx\.empty: unknown dtype; got .*allowed: bool, int8"):
        dtype(bad, "nbx.empty")


def test_ml_dtypes_names():
    assert dtypes.bfloat16.numpy == ml_dtypes.bfloat16
    assert dtypes.float8_e4m3fn.numpy == ml_dtypes.float8_e4m3fn
    assert dtypes.float8_e5m2.numpy == ml_dtypes.float8_e5m2
