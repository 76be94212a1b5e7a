"""Tensors of more than 2^31 elements: the end, and a property of the whole. They need a GPU with 120 GB free."""

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.device import get
from numeric import same_bits

NEEDED = 120 << 30

pytestmark = pytest.mark.gpu


@pytest.fixture
def big(device: str) -> str:
    here = get(device)
    if not device.startswith("cuda") or here.memory_info()[0] < NEEDED:
        pytest.skip(f"needs a GPU with {NEEDED >> 30} GB free")
    return device


def periodic(n: int, period: int, device: str) -> nbx.Tensor:
    """0 to period - 1, over and over (int64)."""
    return nbx.arange(n, device=device) % period


def test_silu(big: str) -> None:
    n, period = 2**31 + 1, 65_521
    base = nbx.asarray(np.linspace(-20, 20, period, dtype=np.float32), device=big).astype(nbx.bfloat16)
    index = periodic(n, period, big)
    x = nbx.take(base, index)
    y = nbx.nn.silu(x)
    del x
    want = nbx.nn.silu(base)
    assert same_bits(y[-70_000:].copy().numpy(), nbx.take(want, index[-70_000:]).numpy())
    assert bool(nbx.all(y == nbx.take(want, index)))


def test_softmax(big: str) -> None:
    shape = (669, 128, 50_259)
    base = nbx.asarray(np.random.default_rng(0).standard_normal(50_259).astype(np.float32), device=big)
    scale = nbx.asarray(np.linspace(0.1, 9, 669 * 128, dtype=np.float32).reshape(669, 128, 1), device=big)
    x = scale * base
    assert x.shape == shape
    y = nbx.nn.softmax(x)
    for row in ((0, 0), (340, 77), (668, 127)):
        assert same_bits(y[row].copy().numpy(), nbx.nn.softmax(x[row]).numpy())
    sums = nbx.sum(y, axis=-1).numpy()
    assert np.abs(sums - 1).max() < 1e-5
    assert bool(nbx.all(nbx.argmax(y, axis=-1) == nbx.argmax(base)))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_one_row(name: str, big: str) -> None:
    n, period = 2**31 + 5, 4096  # so many equal periods that the sum of a period times their number is nearly the total
    base = nbx.asarray(np.linspace(-3, 3, period, dtype=np.float32), device=big).astype(nbx.bfloat16)
    index = periodic(n, period, big)
    x = nbx.take(base, index)
    poison = nbx.full((n,), 77.0, dtype=nbx.bfloat16, device=big)
    del poison  # the result takes its place
    y = getattr(nbx.nn, name)(x)
    del x
    assert bool(nbx.all(y == nbx.take(y[:period], index)))  # equal elements give equal results, up to the end
    wide = np.asarray(base.to_device("cpu")).astype(np.float64)
    total = np.exp(wide).sum() * (n // period) + np.exp(wide[: n % period]).sum()
    expected = np.exp(wide) / total if name == "softmax" else wide - np.log(total)
    got = np.asarray(y[:period].copy().to_device("cpu")).astype(np.float64)
    assert np.abs(got / expected - 1).max() <= 2.0**-8


def test_cumulative_sum(big: str) -> None:
    n = 2**31 + 1
    x = (periodic(n, 251, big) - 100).astype(nbx.int8)
    y = nbx.cumulative_sum(x)
    assert int(y[0]) == -100
    assert int(y[-1]) == int(nbx.sum(x))
    assert bool(nbx.all(y[1:] - y[:-1] == x[1:]))


def test_sort(big: str) -> None:
    n = 2**31 + 5
    x = ((nbx.arange(n, device=big) * 97 + 13) % 251).astype(nbx.uint8)
    values, indices = nbx.sort_with_indices(x)
    assert bool(nbx.all(values[1:] >= values[:-1]))
    assert bool(nbx.all(nbx.take(x, indices) == values))
    same = values[1:] == values[:-1]
    assert bool(nbx.all((indices[1:] > indices[:-1]) | ~same))  # stable, so no index comes twice among equals
    assert int(values[-1]) == 250
    for value in (0, 13, 250):
        assert int(nbx.sum(values == value)) == int(nbx.sum(x == value))
