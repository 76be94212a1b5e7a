"""What the device mathematics promises exactly: signs, classes, order, rounding, remainders, casts, integer powers."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from math_tools import apply
from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import ARITHMETIC, DType, bool_
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.math import cast
from nbxtensor.tensor.tensor import new
from numeric import same_bits

FLOATS = (dtypes.float32, dtypes.float64)
INTEGERS = tuple(d for d in ARITHMETIC if d.is_integer)
EDGES = (
    0.0, -0.0, 0.25, -0.3, 0.5, -0.5, 0.7, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, math.inf, -math.inf, math.nan, 255.5, 300.0,
    8388607.5, -8388607.5, 8388608.0, 4503599627370495.5, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64,
    1e-45, -1e-45, 1.17549435e-38, 3.4e38, 5e-324, 1.7e308,
)  # fmt: skip


def floats(dtype: DType, count: int) -> np.ndarray:
    """Edges, random bits and usual magnitudes of a float dtype."""
    rng = np.random.default_rng()
    unit = np.dtype(dtype.numpy)
    bits = rng.integers(0, 256, count * unit.itemsize, dtype=np.uint8).view(unit)
    with np.errstate(over="ignore", invalid="ignore"):
        bits = np.where(np.isnan(bits), unit.type(math.nan), bits)
        return np.concatenate([np.array(EDGES).astype(unit), bits, rng.normal(0, 100, count).astype(unit)])


def integers(dtype: DType, count: int) -> np.ndarray:
    """Random integers of all sizes, small ones and the extremes."""
    rng = np.random.default_rng()
    unit = np.dtype(dtype.numpy)
    info = np.iinfo(unit)
    wide = rng.integers(info.min, info.max, count, unit, endpoint=True)
    wide >>= rng.integers(0, unit.itemsize * 8, count).astype(unit)
    near = rng.integers(max(info.min, -3), 4, count // 4).astype(unit)
    return np.concatenate([np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], unit), wide, near])


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every value with a random other one, the first forty with each other, and all with near multiples."""
    rng = np.random.default_rng()
    few = values[:40]
    a = np.concatenate([values, np.repeat(few, len(few)), values])
    return a, np.concatenate([rng.permutation(values), np.tile(few, len(few)), np.roll(values, 1)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding(device: str, dtype: DType):
    x = floats(dtype, 20_000)
    for name, reference in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round_even", np.rint)):
        got = apply(device, getattr(device_math, name), x, compute=dtype, result=dtype)
        assert same_bits(got, reference(x)), name


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_signs_and_classes(device: str, dtype: DType):
    x = floats(dtype, 5_000)
    one = np.copysign(np.ones_like(x), x)
    expected = {
        "negate": -x,
        "magnitude": np.abs(x),
        "sign": np.where(np.isnan(x), x, np.where(x == 0, x, one)),
        "is_nan": np.isnan(x),
        "is_inf": np.isinf(x),
        "is_finite": np.isfinite(x),
    }
    for name, want in expected.items():
        result = bool_ if want.dtype == bool else dtype
        assert same_bits(apply(device, getattr(device_math, name), x, compute=dtype, result=result), want), name


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_order_of_nan_and_zeros(device: str, dtype: DType):
    a, b = pairs(floats(dtype, 5_000))
    nan = np.isnan(a) | np.isnan(b)
    zeros = (a == 0) & (b == 0)
    for name, reference, negative in (
        ("maximum", np.fmax, np.signbit(a) & np.signbit(b)),
        ("minimum", np.fmin, np.signbit(a) | np.signbit(b)),
    ):
        want = np.where(zeros, np.where(negative, -0.0, 0.0), reference(a, b))
        want = np.where(nan, math.nan, want).astype(a.dtype)
        got = apply(device, getattr(device_math, name), a, b, compute=dtype, result=dtype)
        assert same_bits(got, want), name


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_remainders(device: str, dtype: DType):
    a, b = pairs(floats(dtype, 5_000))
    with np.errstate(all="ignore"):
        expected = {"fmod": np.fmod(a, b), "remainder": np.remainder(a, b), "floor_divide": np.floor_divide(a, b)}
    for name, want in expected.items():
        assert same_bits(apply(device, getattr(device_math, name), a, b, compute=dtype, result=dtype), want), name


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division(device: str, dtype: DType):
    a, b = pairs(integers(dtype, 2_000))
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    with np.errstate(over="ignore"):  # the most negative integer by -1 wraps
        expected = {"floor_divide": np.floor_divide(a, safe), "remainder": np.remainder(a, safe)}
    for name, want in expected.items():
        want = np.where(b == 0, 0, want).astype(a.dtype)
        assert same_bits(apply(device, getattr(device_math, name), a, b, compute=dtype, result=dtype), want), name


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers(device: str, dtype: DType):
    a, b = pairs(integers(dtype, 500))
    modulus = 2 ** (8 * a.dtype.itemsize)

    def power(x: int, y: int) -> int:
        if y < 0:
            return {1: 1, -1: 1 - 2 * (y & 1)}.get(x, 0)
        return pow(x % modulus, y, modulus)

    want = np.array([power(x, y) % modulus for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint64)
    got = apply(device, device_math.int_pow, a, b, compute=dtype, result=dtype)
    assert same_bits(got, want.astype(f"u{a.dtype.itemsize}").view(a.dtype))


@kernel
def cast_kernel(
    x, o0, o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, BLOCK: tl.constexpr, TYPES: tl.constexpr
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(o0 + offsets, cast(value, TYPES[0]))
    tl.store(o1 + offsets, cast(value, TYPES[1]))
    tl.store(o2 + offsets, cast(value, TYPES[2]))
    tl.store(o3 + offsets, cast(value, TYPES[3]))
    tl.store(o4 + offsets, cast(value, TYPES[4]))
    tl.store(o5 + offsets, cast(value, TYPES[5]))
    tl.store(o6 + offsets, cast(value, TYPES[6]))
    tl.store(o7 + offsets, cast(value, TYPES[7]))
    tl.store(o8 + offsets, cast(value, TYPES[8]))
    tl.store(o9 + offsets, cast(value, TYPES[9]))
    tl.store(o10 + offsets, cast(value, TYPES[10]))
    tl.store(o11 + offsets, cast(value, TYPES[11]))
    tl.store(o12 + offsets, cast(value, TYPES[12]))


def all_casts(device: str, x: np.ndarray) -> list[np.ndarray]:
    """`x` cast to each of `ARITHMETIC`, by one kernel."""
    block = 512
    x = np.concatenate([x, np.zeros(-len(x) % block, x.dtype)])
    source = nbx.asarray(x, device=device)
    outs = [new((len(x),), d, source.device) for d in ARITHMETIC]
    plan = Plan(
        "cast",
        cast_kernel,
        source.device,
        (len(x) // block, 1, 1),
        {"x": Pointer(source.dtype), **{f"o{i}": Pointer(d) for i, d in enumerate(ARITHMETIC)}},
        {"BLOCK": block, "TYPES": ARITHMETIC},
        Options(num_warps=1),
    )
    plan.run(source.ptr, *[o.ptr for o in outs])
    return [np.asarray(o.to_device("cpu")) for o in outs]


def halfway(dtype: DType) -> np.ndarray:
    """float64 values at, just above and just below the middle of neighbours of a 16-bit float."""
    codes = np.random.default_rng().integers(0, 2**16, 2000).astype(np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (c.view(dtype.numpy).astype(np.float64) for c in (codes, (codes + 1).astype(np.uint16)))
        middle = (low + high) / 2
        return np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])


def samples(dtype: DType) -> np.ndarray:
    """Arguments for casts from `dtype`; all values of the narrow ones."""
    unit = np.dtype(dtype.numpy)
    if dtype.is_bool:
        return np.array([False, True])
    if unit.itemsize <= 2:
        return np.arange(2 ** (8 * unit.itemsize)).astype(f"u{unit.itemsize}").view(unit)
    if dtype.is_integer:
        near = 2 ** np.arange(24, 8 * unit.itemsize - 1)
        ties = np.concatenate([k + k // 256 * 3 + k // 512 + np.arange(-1, 2) for k in near.astype(np.int64)])
        return np.concatenate([integers(dtype, 4000), ties.astype(unit)])
    wide = np.random.default_rng().uniform(-(2.0**33), 2.0**33, 2000)
    extra = [wide, wide / 2**24]
    if dtype is dtypes.float64:
        extra += [halfway(dtypes.float16), halfway(dtypes.bfloat16)]
    return np.concatenate([floats(dtype, 4000), *(e.astype(unit) for e in extra)])


def nearest_16(value: float | int, dtype: DType) -> float:
    """`value` rounded once to a 16-bit float, by exact fractions."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    digits, smallest, limit = (11, -24, 65520) if dtype is dtypes.float16 else (8, -133, 2**128 - 2**119)
    exact = Fraction(value)
    size = abs(exact)
    if size >= limit:
        return math.copysign(math.inf, exact)
    exponent = smallest
    if size:
        top = size.numerator.bit_length() - size.denominator.bit_length()
        top += 0 if size >= Fraction(2) ** top else -1
        exponent = max(top - digits + 1, smallest)
    unit = Fraction(2) ** exponent
    rounded = float(round(size / unit) * unit)  # ties to even
    return math.copysign(rounded, value) if value else float(value)


def expected_cast(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    unit = np.dtype(target.numpy)
    if target.is_bool:
        return x != 0
    if target.is_float and unit.itemsize == 2 and x.dtype.itemsize >= 4:
        return np.array([nearest_16(v, target) for v in x.tolist()]).astype(np.float32).astype(unit)
    if target.is_integer and source.is_float:
        info = np.iinfo(unit)
        whole = np.trunc(x.astype(np.float64)).tolist()
        return np.array([0 if math.isnan(v) else int(max(min(v, info.max), info.min)) for v in whole], unit)
    return x.astype(unit)


@pytest.mark.parametrize("source", ARITHMETIC, ids=str)
def test_casts(device: str, source: DType):
    x = samples(source)
    for target, got in zip(ARITHMETIC, all_casts(device, x), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            want = expected_cast(x, source, target)
            assert same_bits(got[: len(x)], want), target


def test_sixteen_bit_signs_and_classes(device: str):
    for dtype, unit in ((dtypes.float16, np.float16), (dtypes.bfloat16, ml_dtypes.bfloat16)):
        codes = np.arange(65536, dtype=np.uint16)
        infinity = 0x7C00 if dtype is dtypes.float16 else 0x7F80
        expected = {
            "negate": codes ^ 0x8000,
            "magnitude": codes & 0x7FFF,
            "is_nan": (codes & 0x7FFF) > infinity,
            "is_inf": (codes & 0x7FFF) == infinity,
            "is_finite": (codes & 0x7FFF) < infinity,
        }
        for name, want in expected.items():
            result = bool_ if want.dtype == bool else dtype
            got = apply(device, getattr(device_math, name), codes.view(unit), compute=dtype, result=result)
            assert np.array_equal(got if want.dtype == bool else got.view(np.uint16), want), name
