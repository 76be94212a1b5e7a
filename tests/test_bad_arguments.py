"""Arguments of the wrong kind: a typed error in one line, whatever the function."""

import inspect
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, AxisError, DeviceError, DTypeError, NbxError, ShapeError
from nbxtensor.kernel.declare import operators

JUNK = [
    None,
    "abc",
    [1, 2],
    {},
    object(),
    1j,
    3,
    np.ones((2, 3), np.float32),
    np.array(["a"]),
    slice(1),
    ...,
    nbx.float32,
]
VIEWS = [
    "reshape",
    "permute_dims",
    "matrix_transpose",
    "broadcast_to",
    "expand_dims",
    "squeeze",
    "flip",
    "unstack",
    "broadcast_arrays",
    "to_numpy",
    "empty_like",
    "zeros_like",
    "tril",
]
NO_TENSOR = {"full", "zeros", "ones", "arange", "linspace", "copy_into"}


def functions() -> list[str]:
    nbx.add  # noqa: B018 (fills the table)
    nbx.nn.relu  # noqa: B018
    return sorted({*operators, *VIEWS} - NO_TENSOR)


def find(name: str):
    if name in operators:
        return operators[name].function
    return getattr(nbx, name)


def required(function) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.default is p.empty and p.kind in kinds for p in inspect.signature(function).parameters.values()) or 1


@pytest.mark.parametrize("name", functions())
def test_what_is_no_tensor_is_refused(name: str):
    function = find(name)
    count = required(function)
    for junk in JUNK:
        with pytest.raises(NbxError) as caught:
            function(*(junk,) * count)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("nbx.")


@pytest.mark.parametrize("junk", [5, [1], object(), np.ones(2)], ids=["int", "list", "object", "array"])
def test_out_and_device_are_checked(junk: object):
    x = nbx.asarray([1.0, 2.0])
    with pytest.raises(ArgumentError, match="out is not a tensor"):
        nbx.abs(x, out=junk)
    with pytest.raises(ArgumentError, match="out is not a tensor"):
        nbx.nn.softmax(x, out=junk)
    with pytest.raises(NbxError, match="not a device or the name of one"):
        nbx.zeros(2, device=junk)


def test_a_message_is_one_line_of_bounded_length():
    error = ArgumentError("f", "bad", got=np.arange(10000.0).reshape(100, 100).tolist())
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    assert "\n" not in str(ArgumentError("f", "bad", got="a\nb"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_scalar_beyond_the_dtype_becomes_infinite(dtype: str, device: str):
    x = nbx.asarray([1.0, -1.0], dtype=dtype, device=device)
    largest = float(nbx.finfo(dtype).max)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scalar in (1e39, -1e300, 65520.0, 1e4, largest, 10**39, float("inf")):
            with np.errstate(over="ignore"):
                value = np.array(scalar, np.float64).astype(x.dtype.numpy)
            want = value.astype(np.float64) * np.array([1.0, -1.0])
            np.testing.assert_array_equal(nbx.to_numpy(x * scalar).astype(np.float64), want)
            np.testing.assert_array_equal(nbx.to_numpy(nbx.less(x, scalar)), [value > 1, value > -1])
            filled = nbx.full((2,), scalar, dtype=dtype, device=device)
            np.testing.assert_array_equal(nbx.to_numpy(filled).astype(np.float64), [float(value)] * 2)
            x[0] = scalar
            assert float(x[0]) == float(value)
            x[0] = 1.0
    with pytest.raises(ArgumentError, match="too large"):
        x + 10**400


def test_parameters_of_functions_are_numbers(device: str):
    x = nbx.asarray([1.0, -1.0], device=device)
    for call in (
        lambda p: nbx.nn.leaky_relu(x, p),
        lambda p: nbx.nn.elu(x, p),
        lambda p: nbx.nn.softplus(x, threshold=p),
        lambda p: nbx.nn.layer_norm(x, eps=p),
    ):
        for junk in ("abc", None, [1.0], 1j):
            with pytest.raises(ArgumentError, match="not a number"):
                call(junk)
        call(1e300)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
@pytest.mark.parametrize(
    "function",
    [
        nbx.sin, nbx.nn.softplus, nbx.nn.softmax, nbx.nn.log_softmax, nbx.sort,
        partial(nbx.cumulative_sum, axis=-1), partial(nbx.cumulative_max, axis=0),
    ],
)  # fmt: skip
def test_a_result_on_another_device_is_refused(function: Any, shape: tuple[int, int], device: str):
    here, there = nbx.ones(shape, device=device), nbx.empty(shape, device="null")
    for x, out in ((here, there), (there, here)):
        with pytest.raises(DeviceError, match="operands are on different devices"):
            function(x, out=out)
    with pytest.raises(DeviceError, match="operands are on different devices"):
        nbx.argsort(here, out=nbx.empty(shape, nbx.int64, device="null"))
    assert (nbx.to_numpy(here) == 1.0).all()


def test_axes_of_a_scalar_are_ints(device: str):
    x = nbx.asarray(np.float32(2.0), device=device)
    for function in (nbx.nn.softmax, nbx.nn.log_softmax):
        for axis in (0.0, 0j, None, "0", np.array([0, 1]), np.array(0.0), 1, -2):
            with pytest.raises(AxisError):
                function(x, axis)
        assert float(function(x, np.int64(-1))) == float(function(x, -1, safe=1))


def test_sizes_and_counts_are_ints():
    x = nbx.asarray([[1.0, 2.0]])
    for call in (
        lambda p: nbx.linspace(0, 1, p),
        lambda p: nbx.eye(p),
        lambda p: nbx.tile(x, p),
        lambda p: nbx.repeat(x, p),
        lambda p: nbx.pad(x, p),
        lambda p: nbx.sum(x, axis=p),
        lambda p: nbx.reshape(x, p),
        lambda p: nbx.triu(x, k=p),
    ):
        for junk in ("abc", 2.5, object(), nbx.asarray(1.0)):
            with pytest.raises(NbxError):
                call(junk)
    with pytest.raises(ArgumentError, match="not finite"):
        nbx.linspace(0, float("inf"), 3)
    with pytest.raises(ShapeError):
        nbx.arange(0, 1e300)
    assert nbx.sum(x, axis=nbx.asarray(1)).shape == (1,)
    assert nbx.tril(nbx.ones((2, 2)), k=10**20).tolist() == [[1, 1], [1, 1]]


def test_fill_values_fit_their_dtype():
    x = nbx.asarray([1, 2], dtype="uint8")
    for value in (300, -1, float("nan")):
        with pytest.raises(ArgumentError):
            nbx.pad(x, 1, value=value)
        with pytest.raises(ArgumentError):
            nbx.full((2,), value, dtype="uint8")


@pytest.mark.parametrize(
    ("dtype", "bound"), [("int8", "int64"), ("float32", "float64"), ("uint8", "int8"), ("int8", "float32")]
)
def test_clip_refuses_a_bound_that_would_be_cut(dtype: str, bound: str):
    x = nbx.asarray([1, 100], dtype=dtype)
    for bounds in ({"max": 3}, {"min": 3}, {"min": 1, "max": 3}):
        tensors = {name: nbx.asarray(value, dtype=bound) for name, value in bounds.items()}
        with pytest.raises(DTypeError, match=r"nbx\.clip"):
            nbx.clip(x, **tensors)
    assert nbx.clip(nbx.asarray([1.0, 9.0]), max=nbx.asarray(3.0, dtype="float16")).tolist() == [1.0, 3.0]
    with pytest.raises(DTypeError):
        nbx.clip(nbx.asarray([True]), max=nbx.asarray(False))
