import inspect
import pickle

import pytest

import nbxtensor as nbx
from nbxtensor.base import errors
from nbxtensor.base.errors import ArgumentError, NbxError
from nbxtensor.base.text import counted
from nbxtensor.tensor.dispatch import OperatorError

TYPES = [t for _, t in inspect.getmembers(errors, inspect.isclass) if issubclass(t, NbxError)] + [OperatorError]


def test_one_format():
    error = ArgumentError("nbx.sum", "the axis is out of range", got=3, allowed=("-2", "1"), mend="count from 0")
    assert str(error) == "nbx.sum: the axis is out of range; got 3; allowed: -2, 1; count from 0"
    assert (error.function, error.problem, error.got) == ("nbx.sum", "the axis is out of range", 3)
    assert (error.allowed, error.mend) == ("-2, 1", "count from 0")
    assert str(ArgumentError("f", "bad")) == "f: bad"
    assert str(ArgumentError("f", "bad", got=0)) == "f: bad; got 0"


@pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.__name__)
def test_every_type_has_a_builtin_base_and_survives_pickling(kind):
    assert kind is NbxError or len(kind.__bases__) == 2
    assert kind.__doc__
    error = kind("f", "bad", got=1, allowed="2", mend="use 2")
    assert pickle.loads(pickle.dumps(kind("f", "bad", got=(1, object)))).got == "(1, <class 'object'>)"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_numbers_and_nouns_agree():
    assert [counted(n, "kernel") for n in (0, 1, 2)] == ["0 kernels", "1 kernel", "2 kernels"]
    assert [counted(n, "axis", "axes") for n in (1, 2)] == ["1 axis", "2 axes"]
    with pytest.raises(errors.AxisError, match="allowed: 1 axis$"):
        nbx.zeros(3).permute_dims(())
    with pytest.raises(errors.IndexingError, match="got 1 index$"):
        nbx.take(nbx.zeros(0), nbx.asarray([0]))
    with pytest.raises(errors.ShapeError, match="cannot hold 1 element;"):
        nbx.zeros(1).reshape(2)
