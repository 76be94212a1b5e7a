"""pow of fp32 and softplus with its parameters, against float64."""

import math

import numpy as np
import pytest

from math_tools import apply
from nbxtensor.base.dtypes import float32
from nbxtensor.compiler.source import kernel
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel.math import softplus_scaled
from numeric import same_bits, ulp_error

EDGES = (
    0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 0.5, -0.5, 2, -2, 3, -3, 1.5, -1.5, 8388607.5, 8388608, 8388609,
    16777215, 16777216, -16777217, 1e-45, -1e-45, 1e-40, 3.4028235e38, -3.4028235e38, 0.99999994, 1.0000001,
    -0.99999994, 127, 128, -149, -150, -126.5, 1e30, -1e30, 4194303.5, 4194304.5, 8388607,
)  # fmt: skip


def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.power(x.astype(np.float64), y.astype(np.float64))


def test_special_cases(device: str):
    edges = np.array(EDGES, np.float32)
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    want = reference(x, y)
    got = apply(device, device_math.pow, x, y, compute=float32, result=float32)
    assert ulp_error(got, want, "float32") <= 1.2
    with np.errstate(over="ignore", under="ignore"):
        rounded = want.astype(np.float32)
    exact = np.isnan(want) | np.isin(np.abs(rounded), (0.0, 1.0, np.inf))
    whole = np.isin(np.abs(x), (0.0, 1.0, np.inf)) | np.isin(np.abs(y), (0.0, np.inf)) | np.isnan(x) | np.isnan(y)
    assert same_bits(got[exact & whole], rounded[exact & whole])
    sure = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[sure]), np.signbit(want[sure]))


def test_error(device: str):
    rng = np.random.default_rng()
    count = 20_000
    wide = np.exp(rng.uniform(-80, 80, count))
    near = 1 + rng.normal(0, 0.01, count)
    middle = rng.uniform(0.5, 2, count)
    x = np.concatenate([wide, near, middle, middle]).astype(np.float32)
    with np.errstate(all="ignore"):
        y = rng.uniform(-104, 89, len(x)) / np.log(x.astype(np.float64))
    y[-count:] = rng.uniform(-4, 4, count)
    y = y.astype(np.float32)
    got = apply(device, device_math.pow, x, y, compute=float32, result=float32)
    assert ulp_error(got, reference(x, y), "float32") <= 1.2


def test_exact_powers(device: str):
    x, y = np.repeat(np.arange(-150.0, 151), 6), np.tile(np.arange(-1.0, 5), 301)
    want = reference(x, y)
    exact = (np.abs(want) <= 2**24) & (y >= 0)
    got = apply(device, device_math.pow, x.astype(np.float32), y.astype(np.float32), compute=float32, result=float32)
    assert same_bits(got[exact], want[exact].astype(np.float32))


@kernel
def softplus_steep(x):
    return softplus_scaled(x, 2.5, 20.0)


@kernel
def softplus_flat(x):
    return softplus_scaled(x, 0.25, 2.0)


@pytest.mark.parametrize(("fn", "beta", "threshold"), [(softplus_steep, 2.5, 20.0), (softplus_flat, 0.25, 2.0)])
def test_softplus_parameters(device: str, fn, beta: float, threshold: float):
    rng = np.random.default_rng()
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 3e38, -3e38, 8.0, 8.000001, 1e-40]
    x = np.concatenate([*(rng.normal(0, s, 10_000) for s in (0.1, 3, 30)), edges]).astype(np.float32)
    z = x.astype(np.float64) * beta
    with np.errstate(all="ignore"):
        want = np.where(z > threshold, x, np.where(z > 0, z + np.log1p(np.exp(-z)), np.log1p(np.exp(z))) / beta)
    assert ulp_error(apply(device, fn, x, compute=float32, result=float32), want, "float32") <= 2.7
