import gc
import inspect
import warnings
from contextlib import suppress

import pytest

from nbxtensor.compiler.front_end import quick_front_end, without_collection
from nbxtensor.compiler.source import kernel, tl


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
