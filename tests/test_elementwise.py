"""Every elementwise operator against its NumPy reference: values, special values, shapes, strides, in place."""

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DTypeError, NbxError, OutOfMemoryError, ShapeError
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.ops import arithmetic, comparison, copy
from numeric import same_bits, ulp_error

BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide", "remainder", "pow"]
INTEGER_BINARY = [name for name in BINARY if name not in ("divide", "pow")]  # those have tests of their own
COMPARE = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
FLOAT_DTYPES = ["float16", "bfloat16", "float32", "float64"]
INTEGER_DTYPES = [d.name for d in dtypes.INTEGERS]


def is_elementwise(op: Operator) -> bool:
    source = inspect.getsource(sys.modules[op.function.__module__])
    return op.samples is not None and ("pointwise(" in source or "unary(" in source)


ELEMENTWISE = sorted(name for name, op in operators.items() if is_elementwise(op))


def rng_of(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    return np.random.default_rng(seed)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return rng_of(request)


def tensor(array: Any, device: str) -> nbx.Tensor:
    return nbx.asarray(array, device=device)


def back(x: nbx.Tensor) -> np.ndarray:
    return np.asarray(x.to_device("cpu"))


def numpy_dtype(name: str) -> np.dtype[Any]:
    return dtypes.dtype(name).numpy


def is_array(a: object) -> bool:
    return isinstance(a, np.ndarray)


def run(op: Operator, args: tuple[Any, ...], device: str) -> np.ndarray:
    return back(op.function(*[tensor(a, device) if is_array(a) else a for a in args]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_floats_meet_their_accuracy(name: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    op = operators[name]
    assert op.samples is not None
    assert op.reference is not None
    kind = numpy_dtype(dtype)
    for sample in op.samples(rng):
        with np.errstate(all="ignore"):
            args = tuple(a.astype(kind) if is_array(a) and a.dtype != bool else a for a in sample)
            wide = tuple(a.astype(np.float64) if is_array(a) and a.dtype != bool else a for a in args)
            if name.startswith("bitwise"):
                with pytest.raises(DTypeError):
                    run(op, args, device)
                return
            result = run(op, args, device)
            expected = op.reference(*wide)
        if result.dtype == bool:
            assert (result == expected).all()
        else:
            assert result.dtype == kind
            assert ulp_error(result, expected, dtype) <= op.ulp.get(dtype, 0.0)


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if operators[n].special])
def test_special_values(name: str, device: str) -> None:
    op = operators[name]
    inputs = np.array([x for x, _ in op.special], np.float32)
    expected = np.array([y for _, y in op.special], np.float32)
    result = run(op, (inputs,), device)
    exact = np.isnan(expected) | np.isinf(expected) | (expected == 0)
    assert same_bits(result[exact], expected[exact])
    np.testing.assert_allclose(result[~exact], expected[~exact], rtol=3e-7)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", [*INTEGER_BINARY, *COMPARE, "bitwise_and", "bitwise_or", "bitwise_xor"])
def test_integers_of_two(name: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 5003, dtype=dtype, endpoint=True)
    b = rng.integers(info.min, info.max, 5003, dtype=dtype, endpoint=True)
    a[:4], b[:4] = [info.min, info.max, 0, 1], [info.max, info.min, 1, 0]
    b[5:1000] = rng.integers(max(info.min, -5), 5, 995, dtype=dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    if name in ("floor_divide", "remainder"):
        expected = np.where(b == 0, 0, expected)
    result = run(operators[name], (a, b), device)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_integer_powers_and_shifts(dtype: str, device: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 1001, dtype=dtype, endpoint=True)
    b = rng.integers(0, info.bits, 1001, dtype=dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(operators["pow"], (a, b), device), a**b)
    np.testing.assert_array_equal(run(operators["bitwise_left_shift"], (a, b), device), a << b)
    np.testing.assert_array_equal(run(operators["bitwise_right_shift"], (a, b), device), a >> b)
    beyond = np.full(1001, info.bits, dtype)
    np.testing.assert_array_equal(run(operators["bitwise_left_shift"], (a, beyond), device), np.zeros_like(a))
    np.testing.assert_array_equal(run(operators["bitwise_right_shift"], (a, beyond), device), np.where(a < 0, -1, 0))


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", ["negative", "abs", "sign", "square", "floor", "round", "bitwise_invert", "positive"])
def test_integers_of_one(name: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 4099, dtype=dtype, endpoint=True)
    with np.errstate(all="ignore"):
        expected = operators[name].reference(a)  # type: ignore[misc]
    np.testing.assert_array_equal(run(operators[name], (a,), device), expected)


@pytest.mark.parametrize("name", [*BINARY[:6], *COMPARE])
def test_float64_is_computed_in_float64(name: str, device: str, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal(4099), rng.standard_normal(4099)
    a[:3] = b[:3]
    assert same_bits(run(operators[name], (a, b), device), getattr(np, name)(a, b))


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_division_with_remainder_is_numpys(name: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    a = (rng.standard_normal(4099) * 100).astype(dtype)
    b = np.round(rng.standard_normal(4099) * 4, 1).astype(dtype)
    a[:6], b[:6] = [1, -1, np.inf, np.nan, 5, -0.0], [np.inf, np.inf, 2, 1, 0, 3]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    np.testing.assert_array_equal(run(operators[name], (a, b), device), expected)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 1023, 1024, 1025, 4095, 4096, 4097, 8193, 100_003])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "float64"])
def test_sizes_and_poisoned_outputs(n: int, dtype: str, device: str) -> None:
    x = (np.arange(n) % 97).astype(numpy_dtype(dtype))
    poison = np.full(n + 64, 99).astype(numpy_dtype(dtype))
    memory = tensor(poison, device)
    if dtype == "bool":
        out = memory[32 : 32 + n]
        nbx.logical_not(tensor(x, device), out=out)
        expected = ~x
    else:
        out = memory[32 : 32 + n]
        nbx.add(tensor(x, device), 1, out=out)
        expected = (x.astype(np.float64) + 1).astype(numpy_dtype(dtype))
    np.testing.assert_array_equal(back(out), expected)
    whole = back(memory)
    np.testing.assert_array_equal(whole[:32], poison[:32])
    np.testing.assert_array_equal(whole[32 + n :], poison[:32])


def layouts(base: nbx.Tensor) -> dict[str, nbx.Tensor]:
    """Views of a (6, 10, 35) tensor."""
    return {
        "contiguous": base,
        "transposed": base.permute_dims((2, 0, 1)),
        "swapped inner": base.permute_dims((0, 2, 1)),
        "sliced": base[1:5, ::3, 2:33],
        "reversed": base[::-1, :, ::-1],
        "offset": base[:, 1:, 1:],
        "column": base[:, :, 7],
        "broadcast": base[:, :1, :].broadcast_to((6, 10, 35)),
        "broadcast inner": base[:, :, 3:4].broadcast_to((4, 6, 10, 35)),
        "one": base[2:3, 4:5, 5:6],
        "0-d": base[2, 4, 5],
        "empty": base[:0],
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_strided_operands_give_the_bits_of_their_copies(dtype: str, device: str, rng: np.random.Generator) -> None:
    host = (rng.standard_normal((6, 10, 35)) * 50).astype(dtype)
    other = (rng.standard_normal((6, 10, 35)) * 50).astype(dtype)
    for (label, a), b in zip(
        layouts(tensor(host, device)).items(), layouts(tensor(other, device)).values(), strict=True
    ):
        expected = back(a) + back(b)
        assert same_bits(back(a + b), expected), label
        assert same_bits(back(copy.copy(a)), back(a)), label
        contiguous = tensor(np.ascontiguousarray(back(b)), device)
        assert same_bits(back(a + contiguous), expected), label
        out = tensor(np.zeros((*a.shape, 2), dtype), device)[..., 1]
        nbx.add(a, b, out=out)
        assert same_bits(back(out), expected), label


def test_eight_dimensions(device: str, rng: np.random.Generator) -> None:
    shape = (2, 3, 2, 3, 2, 3, 2, 3)
    order = (7, 2, 5, 0, 3, 6, 1, 4)
    a = rng.standard_normal(shape).astype(np.float32)
    b = rng.standard_normal(tuple(shape[i] for i in order)).astype(np.float32)
    result = tensor(a, device).permute_dims(order) * tensor(b, device)
    assert same_bits(back(result), a.transpose(order) * b)


def test_broadcasting(device: str, rng: np.random.Generator) -> None:
    for left, right in [((4, 1, 5), (3, 1)), ((7,), ()), ((1, 1), (2, 3, 4)), ((5, 1), (1, 6)), ((0, 3), (1, 3))]:
        a, b = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
        assert same_bits(back(tensor(a, device) - tensor(b, device)), a - b)


def test_three_operands(device: str, rng: np.random.Generator) -> None:
    c = rng.random((5, 1, 7)) < 0.5
    a, b = rng.standard_normal((3, 7)).astype(np.float32), rng.standard_normal((5, 3, 1)).astype(np.float32)
    assert same_bits(back(nbx.where(tensor(c, device), tensor(a, device), tensor(b, device))), np.where(c, a, b))
    assert same_bits(back(nbx.where(tensor(c, device), tensor(a, device), -1.5)), np.where(c, a, np.float32(-1.5)))
    x = tensor(a, device)
    assert same_bits(back(nbx.clip(x, -0.5, 0.25)), np.clip(a, np.float32(-0.5), np.float32(0.25)))
    assert same_bits(back(nbx.clip(x, min=0)), np.clip(a, 0, None))
    assert same_bits(back(nbx.clip(x, max=tensor(b, device))), np.minimum(a, b))


def test_raw_bits_travel(device: str) -> None:
    raw = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800001, 0x00000001, 0xFF800000], np.uint32)
    x = tensor(raw.view(np.float32), device)
    assert (back(copy.copy(x)).view(np.uint32) == raw).all()
    chosen = nbx.where(tensor(np.array([True, False] * 3), device), x, x)
    assert (back(chosen).view(np.uint32) == raw).all()
    target = tensor(np.zeros(6, np.float32), device)
    target[::-1] = x
    assert (back(target).view(np.uint32) == raw[::-1]).all()


def test_python_scalars_on_either_side(device: str) -> None:
    host = np.array([1.0, -2.0, 3.5, 7.0], np.float32)
    x = tensor(host, device)
    cases = [
        (2 - x, 2 - host),
        (2 / x, 2 / host),
        (x > 3, host > 3),
        (2**x, 2**host),
        (7 // x, 7 // host),
        (7 % x, 7 % host),
        (x - 2, host - 2),
        (x / 2, host / 2),
        (x // 2, host // 2),
        (x % 2, host % 2),
        (-x, -host),
        (abs(x), abs(host)),
        (x == 3.5, host == 3.5),
        (x != 3.5, host != 3.5),
        (True + x, host + 1),
    ]
    for result, expected in cases:
        got = back(result)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=2e-7)
    ints = tensor(np.array([3, -4, 5], np.int16), device)
    assert (ints + 1).dtype is dtypes.int16
    assert (ints + 1.5).dtype is dtypes.float32
    with pytest.raises(ArgumentError, match="out of range"):
        ints + 100_000
    half = tensor(np.array([1.0], np.float16), device)
    assert same_bits(back(half + 0.1), np.array([1.0], np.float16) + np.float16(0.1))


def test_in_place_and_overlapping_outputs(device: str) -> None:
    host = np.arange(5000, dtype=np.float32)
    x = tensor(host.copy(), device)
    x += 1
    assert same_bits(back(x), host + 1)
    y = tensor(host.copy(), device)
    nbx.add(y[:-1], y[1:], out=y[1:])
    assert same_bits(back(y), np.concatenate([host[:1], host[:-1] + host[1:]]))
    z = tensor(host.copy(), device)
    nbx.negative(z[::-1], out=z)
    assert same_bits(back(z), -host[::-1])
    w = tensor(host.copy(), device)
    w[1:] = w[:-1]
    assert same_bits(back(w), np.concatenate([host[:1], host[:-1]]))


def rounded_once(x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    """float64 to `to`. ml_dtypes makes bfloat16 of float32 and would round twice, so that one is rounded to odd."""
    if to.name != "bfloat16":
        return x.astype(to)
    near = x.astype(np.float32)
    low = np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    odd = np.where(low.astype(np.float64) == x, low, (low.view(np.uint32) | 1).view(np.float32))
    return np.where(np.isfinite(near), odd, near).astype(to)


@pytest.mark.parametrize("source", [d.name for d in dtypes.ARITHMETIC])
@pytest.mark.parametrize("target", [d.name for d in dtypes.ARITHMETIC])
def test_casts(source: str, target: str, device: str, rng: np.random.Generator) -> None:
    from_, to = numpy_dtype(source), numpy_dtype(target)
    if source == "bool":
        x = rng.random(513) < 0.5
    elif from_.kind in "iu":
        info = np.iinfo(source)
        x = rng.integers(info.min, info.max, 513, dtype=source, endpoint=True)
    else:
        with np.errstate(over="ignore"):
            x = (rng.standard_normal(513) * 10.0 ** rng.integers(-3, 12, 513)).astype(from_)
        x[:4] = np.array([np.nan, np.inf, -np.inf, -0.0]).astype(from_)
    result = back(tensor(x, device).astype(target))
    assert result.dtype == to
    with np.errstate(all="ignore"):
        if source == "bool" or target == "bool" or from_.kind in "iu":
            expected = (
                x.astype(to) if from_.kind not in "iu" or to.kind in "iubf" else rounded_once(x.astype(np.float64), to)
            )
        elif to.kind in "iu":
            info = np.iinfo(target)
            wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=1e300, neginf=-1e300)
            expected = np.array([min(max(int(v), info.min), info.max) for v in wide], to)
        else:
            expected = rounded_once(x, to) if source == "float64" else x.astype(to)
    if target == "bfloat16" and from_.kind in "iu" and from_.itemsize == 8:
        np.testing.assert_allclose(result.astype(np.float64), x.astype(np.float64), rtol=2.0**-8)
    else:
        assert same_bits(result, expected)


def test_errors_name_what_is_allowed(device: str) -> None:
    x = tensor(np.ones((2, 3), np.float32), device)
    with pytest.raises(ShapeError, match="broadcast"):
        x + tensor(np.ones((4, 3), np.float32), device)
    with pytest.raises(DTypeError, match="got float8_e5m2"):
        nbx.sin(nbx.empty((3,), nbx.float8_e5m2, device=device))
    with pytest.raises(DTypeError, match="out has the wrong dtype"):
        nbx.add(x, x, out=tensor(np.ones((2, 3), np.int32), device))
    with pytest.raises(ShapeError, match="out has the wrong shape"):
        nbx.add(x, x, out=tensor(np.ones((3, 2), np.float32), device))
    with pytest.raises(ArgumentError, match="share memory"):
        nbx.add(x, x, out=tensor(np.ones(3, np.float32), device).broadcast_to((2, 3)))
    with pytest.raises(NbxError, match="not a tensor"):
        nbx.sin(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="bool"):
        nbx.where(x, x, x)
    with pytest.raises(DTypeError):
        nbx.bitwise_and(x, x)
    with pytest.raises(ArgumentError, match="approximation"):
        nbx.nn.gelu(x, approximate="fast")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="beta"):
        nbx.nn.softplus(x, beta=0.0)
    for beta in (float("inf"), float("nan"), 1e50, -1e50, 1e-50):  # as float32
        with pytest.raises(ArgumentError, match="beta does not fit"):
            nbx.nn.softplus(x, beta=beta)
    steep = nbx.nn.softplus(tensor(np.array([1e38, -1e38, 0.0], np.float32), device), 1e3, float("inf"))
    assert same_bits(back(steep), np.array([1e38, 0.0, np.log(2.0) / 1e3], np.float32))


def test_softplus_parameters(device: str) -> None:
    host = np.linspace(-30, 30, 1001).astype(np.float32)
    for beta, threshold in [(1.0, 20.0), (2.0, 5.0), (0.5, float("inf")), (-1.0, 20.0)]:
        expected = operators["softplus"].reference(host.astype(np.float64), beta, threshold)  # type: ignore[misc]
        result = back(nbx.nn.softplus(tensor(host, device), beta, threshold))
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_gelu_tanh(device: str) -> None:
    host = np.linspace(-12, 12, 4001).astype(np.float32)
    expected = operators["gelu"].reference(host, "tanh")  # type: ignore[misc]
    np.testing.assert_allclose(back(nbx.nn.gelu(tensor(host, device), "tanh")), expected, rtol=1e-5, atol=1e-7)


def test_modules_are_used() -> None:
    assert arithmetic.add is nbx.add
    assert comparison.equal is nbx.equal


def test_out_of_memory_names_the_operator_and_the_largest_tensors(device: str) -> None:
    kept = nbx.zeros((1000, 777), device=device)
    huge = nbx.broadcast_to(nbx.ones((1,), device=device), (1 << 46,))
    with pytest.raises(OutOfMemoryError, match=r"nbx\.exp: .*bytes asked.*free.*\(float32 \(1000, 777\)\)"):
        nbx.exp(huge)
    with pytest.raises(OutOfMemoryError, match=r"nbx\.add: "):
        huge + huge
    with pytest.raises(OutOfMemoryError, match=r"nbx\.subtract: "):
        nbx.subtract(huge, huge)
    assert same_bits(back(kept + 1), np.ones((1000, 777), np.float32))
