import gc
import inspect
import warnings
from contextlib import suppress

import pytest

from nbxtensor.compiler.front_end import quick_front_end, without_collection
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import ttir


@kernel
def twice(x):
    return x * 2.0


def test_a_kernel_cannot_be_called():
    with pytest.raises(TypeError, match="launch"):
        twice(1.0)


def test_stand_in_gives_names():
    assert tl.constexpr == "tl.constexpr"


def test_what_the_front_end_is_spared_comes_back():
    code_generator = pytest.importorskip("triton.compiler.code_generator")
    before, filters = dict(vars(code_generator)), list(warnings.filters)
    with suppress(ValueError), quick_front_end(), without_collection():
        assert not gc.isenabled()
        assert code_generator.inspect.signature(len) == inspect.signature(len)
        assert code_generator.inspect.getcallargs is inspect.getcallargs
        warnings.warn("fine", DeprecationWarning, stacklevel=1)
        raise ValueError
    assert gc.isenabled()
    assert vars(code_generator) == before
    assert warnings.filters == filters


NAN = float("nan")


@kernel
def or_nan(x, yes):
    return tl.where(yes, x, NAN)


@kernel
def positive(x):
    return or_nan(x, x > 0)


@kernel
def negative(x):
    return or_nan(x, x < 0)


@kernel
def nan_on_two_ways(x):
    return positive(x) + negative(x)


@kernel
def apply(out_ptr, x, FN: tl.constexpr):
    tl.store(out_ptr, FN(x))


def test_a_helper_that_is_met_on_two_ways_may_read_nan():
    pytest.importorskip("triton")
    assert "0x7FC00000" in ttir(apply, {"out_ptr": "*fp32", "x": "fp32"}, {"FN": nan_on_two_ways})
