"""The device mathematics of fp32 against float64: random bits, usual magnitudes, worst cases, special values."""

import math

import ml_dtypes
import numpy as np
import pytest

from math_tools import LIMITS, REFERENCES, apply, each
from nbxtensor.base.dtypes import bfloat16, float16, float32
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel.math import for_16_bit
from numeric import same_bits, ulp_error

INF, NAN = math.inf, math.nan
TINY = float(np.float32(1e-45))
# Arguments with the largest errors, and those of public bug reports.
HARD = (
    -5.835593, -80.77184, -81.44755, -103.5, 88.72283, 0.5024792, 0.38769323, 1.5655231, 1.454908, 0.41595718,
    100474.43, 20809.139, 111246.94, 8.9108436e26, -9.5638566e17, 1.4596952e16, 16793388.0, 6.7e8, 1e30, 3.4028235e38,
    -1.8346585, -0.7778041, -0.0038078139, -13.100781,
    1e-7, -3.1415, 0.61937416, 0.82573843, 5.2721e-05, 0.0075508524, -5.111894, -16.703888, -20.0, -89.0, -5.0, 88.8,
    -10.0, -17.0, 0.7853982, 1.5707964, 3.1415927, 2.3561945, 131072.0, 131071.99, 1.1754944e-38, 1e-40, 3e-45,
)  # fmt: skip


def arguments(count: int, seed: int | None = None) -> np.ndarray:
    """Random bit patterns, and normal values of several sizes, fresh each time unless seeded."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = np.concatenate([rng.normal(0, s, count // 3) for s in (0.1, 1.0, 3.0, 30.0)])
    hard = np.array(HARD)
    others = np.concatenate([usual, hard, -hard, [0.0, -0.0, INF, -INF, NAN]]).astype(np.float32)
    return np.concatenate([bits, others])


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_error_is_within_the_stated_ulp(device: str, name: str):
    x = arguments(4000)
    got = apply(device, getattr(device_math, name), x, compute=float32, result=float32)
    with np.errstate(invalid="ignore"):  # signalling NaN
        assert ulp_error(got, each(REFERENCES[name], x), "float32") <= LIMITS[name]


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (88.8, INF), (-104, 0.0), (TINY, 1)],
    "exp2": [(-0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (128, INF), (-149, TINY), (-151, 0.0), (10, 1024)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "log": [(1, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (-INF, NAN), (NAN, NAN)],
    "log2": [(1, 0.0), (0.0, -INF), (INF, INF), (-1, NAN), (NAN, NAN), (8, 3), (TINY, -149), (2.0**-126, -126)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN), (NAN, NAN), (TINY, TINY)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, 1)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN), (89, 1), (-104, 0.0)],
    "silu": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (3e38, 3e38), (-3e38, -0.0)],
    "softplus": [(-INF, 0.0), (INF, INF), (NAN, NAN), (88.8, 88.8), (3e38, 3e38), (-20, 2.0611537e-09)],
    "gelu": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (-3e38, -0.0), (3e38, 3e38)],
    "gelu_tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (-3e38, -0.0), (3e38, 3e38)],
}


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(device: str, name: str):
    x, want = (np.array(v, np.float32) for v in zip(*SPECIAL[name], strict=True))
    got = apply(device, getattr(device_math, name), x, compute=float32, result=float32)
    assert same_bits(got, want), (x, got, want)


def test_odd_and_even_functions(device: str):
    x = arguments(20_000)
    for name in ("sin", "tanh", "erf", "cos"):
        fn = getattr(device_math, name)
        plus = apply(device, fn, x, compute=float32, result=float32)
        minus = apply(device, fn, -x, compute=float32, result=float32)
        assert same_bits(minus, plus if name == "cos" else -plus)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_neighbours_do_not_show(device: str, name: str):
    fn = getattr(device_math, name)
    small = np.random.default_rng().normal(0, 10, 5000).astype(np.float32)
    mixed = small.copy()
    mixed[::3] = 3e37
    alone = apply(device, fn, small, compute=float32, result=float32)
    beside = apply(device, fn, mixed, compute=float32, result=float32)
    kept = np.arange(5000) % 3 != 0
    assert same_bits(alone[kept], beside[kept])
    huge = apply(device, fn, mixed[:1], compute=float32, result=float32)
    assert same_bits(huge, beside[:1])


@pytest.mark.parametrize("name", sorted(REFERENCES))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_16_bit_arguments(device: str, name: str, dtype: str):
    kind, unit, limit = (
        (float16, np.float16, 65520.0) if dtype == "float16" else (bfloat16, ml_dtypes.bfloat16, 3.3961775292304e38)
    )
    x = np.arange(65536, dtype=np.uint16).view(unit)
    want = each(REFERENCES[name], x.astype(np.float32))
    got = apply(device, for_16_bit(getattr(device_math, name), kind), x, compute=float32, result=kind)
    assert ulp_error(got, want, dtype) <= 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = np.where(np.abs(want) >= limit, np.copysign(INF, want), want).astype(np.float32).astype(unit)
    good = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
    assert np.count_nonzero(~good) <= 65  # 0.1 %
    sure = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[sure]), np.signbit(want[sure]))


def test_forms_for_gpus_give_the_same_bits(device: str):
    # Where 1 / (1 + exp(-2x)) has its divisor nearest to a power of two, and elsewhere.
    near = np.arctanh(1.0 - 1.0 / 2.0 ** np.arange(2, 25)).astype(np.float32).view(np.uint32)
    bits = np.concatenate(
        [(near[:, None] + np.arange(-500, 500)).ravel(), np.random.default_rng(11).integers(0, 2**32, 100_000)]
    )
    x = bits.astype(np.uint32).view(np.float32)
    plain = apply(device, device_math.tanh, x, compute=float32, result=float32)
    for_gpu = apply(device, device_math.for_gpu(device_math.tanh), x, compute=float32, result=float32)
    assert device_math.for_gpu(device_math.tanh) is not device_math.tanh
    assert same_bits(plain, for_gpu)
