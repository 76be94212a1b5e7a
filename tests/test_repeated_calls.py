"""The quick ways of repeated calls give what the first call gave."""

import math
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError
from numeric import same_bits


def tensor(array: Any, device: str) -> nbx.Tensor:
    return nbx.asarray(array, device=device)


def back(x: nbx.Tensor) -> np.ndarray:
    return np.asarray(x.to_device("cpu"))


def test_repeated_calls_with_numbers_and_out_are_those_of_the_first(device: str) -> None:
    values = np.linspace(-3, 3, 100).astype(np.float32)
    x, other = tensor(values, device), tensor(values[::-1].copy(), device)
    out = nbx.empty((100,), device=device)
    for number in (0.1, 3, -0.0, 2**24 + 1, 1e39, math.inf, math.nan, True):
        with np.errstate(over="ignore"):
            rounded = np.float64(number).astype(np.float32)
        for _ in range(2):
            assert same_bits(back(x + number), values + rounded)
            assert same_bits(back(number - x), rounded - values)
            assert same_bits(back(nbx.multiply(x, number, out=out)), values * rounded)
            assert same_bits(back(x > number), values > rounded)
    for _ in range(3):  # `out` is an operand, shares memory with one, or is nobody's
        both = tensor(values.copy(), device)
        assert nbx.add(both, other, out=both) is both
        assert same_bits(back(both), values + values[::-1])
        shifted = tensor(values.copy(), device)
        nbx.add(shifted[:-1], other[:-1], out=shifted[1:])
        assert same_bits(back(shifted[1:]), values[:-1] + values[:0:-1])
        shifted = tensor(values.copy(), device)
        nbx.exp(shifted[1:], out=shifted[:-1])
        assert same_bits(back(shifted[:-1]), back(nbx.exp(tensor(values[1:].copy(), device))))
        in_place = tensor(values.copy(), device)
        nbx.negative(in_place, out=in_place)
        assert same_bits(back(in_place), -values)
    frozen = values.copy()
    frozen.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ArgumentError, match="read-only"):
            nbx.add(nbx.asarray(values), nbx.asarray(values), out=nbx.asarray(frozen))
    nbx.add(nbx.asarray(values), nbx.asarray(values), out=nbx.asarray(values.copy()))
    with pytest.raises(ArgumentError, match="read-only"):
        nbx.add(nbx.asarray(values), nbx.asarray(values), out=nbx.asarray(frozen))


def test_a_repeated_call_is_the_same_operator(device: str) -> None:
    x = tensor(np.linspace(-3, 3, 101).astype(np.float32), device)
    first = [back(nbx.nn.gelu(x)), back(nbx.nn.gelu(x, "tanh")), back(nbx.maximum(x, -x)), back(nbx.minimum(x, -x))]
    again = [back(nbx.nn.gelu(x)), back(nbx.nn.gelu(x, "tanh")), back(nbx.maximum(x, -x)), back(nbx.minimum(x, -x))]
    assert all(same_bits(a, b) for a, b in zip(first, again, strict=True))
    assert not same_bits(first[0], first[1])
    assert x.astype("float16").dtype is nbx.nn.silu(x.astype("float16")).dtype


def test_softmax_again(device: str) -> None:
    x = tensor(np.linspace(-3, 3, 60).reshape(3, 20).astype(np.float32), device)
    rows, columns = back(nbx.nn.softmax(x)), back(nbx.nn.softmax(x, 0))
    logs = back(nbx.nn.log_softmax(x))
    assert same_bits(back(nbx.nn.softmax(x)), rows)
    assert same_bits(back(nbx.nn.softmax(x, 0)), columns)
    assert same_bits(back(nbx.nn.log_softmax(x)), logs)
    assert same_bits(back(nbx.nn.softmax(x.mT, 0)), rows.T)
