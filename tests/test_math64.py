"""The float64 mathematics: accuracy against 80-bit floats and mpmath, special values, constants, operators."""

import ast
import inspect
import math
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import nbxtensor as nbx
from math64_tools import EXACT, LIMITS64, LONG, QUARTER_TURN, QUARTER_TURN_LOW, ulp_exact, ulp_long
from math_tools import apply
from nbxtensor.base.dtypes import float64
from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.scan import scan_ptx, scan_ttir
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device import get
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel import math64
from nbxtensor.kernel.math64 import for_64_bit
from nbxtensor.kernel.math64_parts import poly, real
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.ops.rsqrt import rsqrt_value
from nbxtensor.ops.sqrt import sqrt_value
from numeric import same_bits

INF, NAN = math.inf, math.nan
TINY = 5e-324
NAMES = sorted(LONG)
FUNCTIONS = {n: for_64_bit(getattr(device_math, n)) for n in (*NAMES, "pow", "softplus_scaled")}
# Arguments with large errors, edges of reductions and of what overflows, arguments closest to multiples of pi / 2.
HARD = (
    -0.3510924981214074, 0.34756504161868573, -708.6274741339664, -745.13321910194122, 709.78271289338397,
    0.37294325794, 1.398568322778237, 0.7060615010791221, 0.4030225984734057, 0.7759304142353705, -27.471778294654797,
    717884483.544, 183508510.99947566, 1073741823.9999999, 1073741824.0, 1e22,
    1.7976931348623157e308, 5.319372648326541e255,
    6381956970095103.0, 1.0, 0.9999999999999999, 1.0000000000000002, 0.9683514482883858, -0.13707629638123175,
    -37.51, -38.4, -21.180885477817228, -19.618954674548664, 3.141592653589793, 1.5707963267948966, 22.0, 710.0,
    2.2250738585072014e-308, 1e-310, 5.551115123125783e-17, 36.7, 40.0, 8.5, 5.921587195794507, 0.5, 2.0, 1e-5,
)  # fmt: skip


def quarter_turns(counts: np.ndarray) -> np.ndarray:
    """The float64 closest to multiples of pi / 2."""
    return (counts * QUARTER_TURN + counts * QUARTER_TURN_LOW).astype(np.float64)


def arguments(name: str, count: int) -> np.ndarray:
    """Random bit patterns, normal values of several sizes, hard ones; fresh each time."""
    rng = np.random.default_rng()
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    usual = np.concatenate([rng.normal(0, s, count // 2) for s in (0.1, 1.0, 3.0, 30.0, 300.0)])
    hard = np.array(HARD)
    x = np.concatenate([bits, usual, hard, -hard])
    if name in ("sin", "cos"):
        x = np.concatenate([x, quarter_turns(rng.integers(1, 2**29, count)), quarter_turns(np.arange(1, count))])
    if name in ("log", "log1p"):
        x = np.abs(x)
        x = np.concatenate([x, x[:count].view(np.int64) % 2**62, -rng.uniform(0, 1, count)]).astype(np.float64)
    return x


def run(name: str, device: str, *arrays: np.ndarray) -> np.ndarray:
    return apply(device, FUNCTIONS[name], *arrays, compute=float64, result=float64)


@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_the_stated_ulp(name: str, device: str) -> None:
    x = arguments(name, 40_000)
    got = run(name, device, x)
    with np.errstate(all="ignore"):
        want = LONG[name](x.astype(np.longdouble))
    error = ulp_long(got, want)
    assert error.max() <= LIMITS64[name], x[error.argmax()]


@pytest.mark.parametrize("name", NAMES)
def test_mpmath_agrees(name: str, device: str) -> None:
    x = arguments(name, 100)
    got = run(name, device, x)
    with np.errstate(all="ignore"):
        want = LONG[name](x.astype(np.longdouble)).astype(np.float64)
    usual = np.isfinite(x) & np.isfinite(want) & (want != 0) & (np.abs(x) < 1e100)
    error = ulp_exact(got[usual], x[usual], EXACT[name])
    assert error.max() <= LIMITS64[name], x[usual][error.argmax()]


def test_the_references_notice_an_error() -> None:
    x = np.array([0.5, 1.5])
    y = np.nextafter(np.exp(x), 9.0)
    assert ulp_long(y, np.exp(x.astype(np.longdouble))).min() > 0.5
    assert ulp_exact(y, x, mp.exp).min() > 0.5
    assert np.isinf(ulp_long(np.array([NAN, 1.0]), np.array([1.0, NAN], np.longdouble))).all()


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (709.8, INF), (-745.2, 0.0), (-745.1, TINY)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY), (-50, -1)],
    "log": [(1, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (-INF, NAN), (NAN, NAN), (-TINY, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN), (NAN, NAN), (-TINY, -TINY)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, 1)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY), (30, 1)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (TINY, TINY), (-TINY, -TINY), (7, 1)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN), (40, 1), (-746, 0.0), (-745, TINY)],
    "silu": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (1e308, 1e308), (-1e308, -0.0)],
    "softplus": [(-INF, 0.0), (INF, INF), (NAN, NAN), (709.9, 709.9), (1e308, 1e308), (-745, TINY)],
    "gelu": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (-1e308, -0.0), (1e308, 1e308)],
    "gelu_tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN), (-1e308, -0.0), (1e308, 1e308)],
}


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str, device: str) -> None:
    x, want = (np.array(v) for v in zip(*SPECIAL[name], strict=True))
    got = run(name, device, x)
    assert same_bits(got, want), (x, got, want)


def test_odd_and_even_functions(device: str) -> None:
    x = arguments("sin", 10_000)
    for name in ("sin", "tanh", "erf", "cos"):
        plus = run(name, device, x)
        assert same_bits(run(name, device, -x), plus if name == "cos" else -plus)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_neighbours_do_not_show(name: str, device: str) -> None:
    small = np.random.default_rng().normal(0, 10, 5000)
    mixed = small.copy()
    mixed[::3] = 3e300
    beside = run(name, device, mixed)
    kept = np.arange(5000) % 3 != 0
    assert same_bits(run(name, device, small)[kept], beside[kept])
    assert same_bits(run(name, device, mixed[:1]), beside[:1])


def test_huge_angles_meet_cody_and_waite(device: str) -> None:
    # Around 2^30 the two reductions take turns: both are right on both sides.
    x = 2.0**30 + np.random.default_rng().uniform(-100, 100, 2000)
    for name in ("sin", "cos"):
        assert ulp_exact(run(name, device, x), x, EXACT[name]).max() <= LIMITS64[name]


def test_pow(device: str) -> None:
    rng = np.random.default_rng()
    n = 300
    base = np.concatenate(
        [rng.uniform(0.7, 1.42, n), np.exp(rng.uniform(-700, 700, n)), 1 + rng.uniform(-1, 1, n) / 1e5]
    )
    power = np.concatenate([rng.uniform(-1900, 1900, n), rng.uniform(-1, 1, n), rng.uniform(-6e7, 6e7, n)])
    got = run("pow", device, base, power)
    assert ulp_exact(got, base, lambda x, y: x**y, power).max() <= LIMITS64["pow"]


def test_pow_follows_ieee_754(device: str) -> None:
    values = [0.0, 1.0, 2.0, 0.5, 3.0, INF, 1e300, TINY, 2.5, 4503599627370497.0, 9007199254740994.0]
    grid = np.array([*values, *(-v for v in values), NAN])
    x, y = (a.ravel() for a in np.meshgrid(grid, grid))
    got = run("pow", device, x, y)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    special = ~np.isfinite(want) | (np.abs(want) <= 1.0)
    assert same_bits(got[special & (want == np.round(want))], want[special & (want == np.round(want))])
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
    np.testing.assert_allclose(got, want, rtol=3e-16)


def test_softplus_scaled(device: str) -> None:
    x = np.concatenate([np.random.default_rng().normal(0, 20, 400), [-300.0, 0.0, 5.0, 1e300, -1e300, -INF, INF, NAN]])
    for beta, threshold in ((1.0, 20.0), (2.5, INF), (0.01, 3.0), (-3.0, INF), (1e-5, 20.0)):
        got = np.asarray(nbx.nn.softplus(nbx.asarray(x, device=device), beta, threshold).to_device("cpu"))
        usual = np.abs(x) <= 300
        above = x * beta > threshold
        want = np.where(above, x, 0.0)
        assert same_bits(got[above], x[above])
        want = ulp_exact(
            got[usual & ~above], x[usual & ~above], lambda v, b=beta: EXACT["softplus"](mp.mpf(b) * v) / mp.mpf(b)
        )
        assert want.max() <= 1.5
        zero = 0.0 if beta > 0 else -0.0
        limits = {INF: INF if beta > 0 else zero, -INF: zero if beta > 0 else -INF}
        for end, value in limits.items():
            assert same_bits(got[x == end], np.array([value]))
        assert np.isnan(got[np.isnan(x)]).all()


@kernel
def one(x_ptr, out_ptr, FN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, FN(tl.load(x_ptr + i)))


@kernel
def three(x_ptr, out_ptr, FN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, FN(x, x + 1.0, x + 2.0))


@kernel
def two(x_ptr, out_ptr, FN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, FN(x, x + 1.0))


def source(fn: KernelFunction) -> str:
    frame = {1: one, 2: two, 3: three}[len(fn.parameters)]
    return ttir(frame, {"x_ptr": "*fp64", "out_ptr": "*fp64"}, {"FN": fn, "B": 64})


@pytest.mark.parametrize("fn", [*FUNCTIONS.values(), sqrt_value, rsqrt_value], ids=lambda fn: fn.name)
def test_only_operations_with_one_answer(fn: KernelFunction) -> None:
    text = source(fn)
    assert not scan_ttir(text)
    assert "f32" not in text.replace("f32>> 0", "")  # no step in fp32


def test_machine_code_of_the_gpu_has_none_either() -> None:
    device = get("null:sm_90")
    device.clear()
    x = nbx.empty((4096,), float64, device=device.name)
    for fn in (*FUNCTIONS.values(), sqrt_value, rsqrt_value):
        pointwise(fn.name, fn, (x,) * len(fn.parameters), (float64,) * len(fn.parameters), float64)
    for job in [call.job for call in device.calls]:
        text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
        ptx = lower_to_ptx(job)
        assert not scan_ptx(ptx.text, text), dict(job.constants)["FN"]


@kernel
def constants_value(x):
    return tl.fma(x, real(0.1), poly(x, (1.0 / 3.0, -1.23456789012345678e-10))) + 0.7


def test_constants_keep_all_their_bits(device: str) -> None:
    x = np.array([0.0, 1.0])
    got = apply(device, constants_value, x, compute=float64, result=float64)
    low = -1.23456789012345678e-10
    assert got.tolist() == [low + 0.7, 0.1 + (1.0 / 3.0 + low) + 0.7]
    text = source(constants_value)
    for literal in ("1.000000e-01", "0.33333333333333331", "-1.2345678901234568E-10", "0.69999999999999996"):
        assert literal in text


def _loses_bits(value: object) -> bool:
    return isinstance(value, float) and value == value and float(np.float32(value)) != value


def _wrong_constants(tree: ast.AST, scope: dict[str, Any]) -> list[str]:
    """Constants that Triton would round to fp32: operands of comparisons and calls (but those that keep all bits)."""

    def lost(node: ast.AST) -> bool:
        if isinstance(node, ast.UnaryOp):
            return lost(node.operand)
        if isinstance(node, ast.Name):
            return _loses_bits(scope.get(node.id))
        return isinstance(node, ast.Constant) and _loses_bits(node.value)

    found: list[str] = []
    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called not in ("real", "poly", "tl.full", "_horner_exact", "_next_term", "_tail"):
                operands = list(node.args)
        found += [ast.unparse(node) for operand in operands if lost(operand)]
    return found


def test_no_constant_goes_through_float32() -> None:
    folder = Path(inspect.getfile(math64)).parent
    for path in sorted(folder.glob("math64*.py")):
        module = __import__(f"nbxtensor.kernel.{path.stem}", fromlist=["x"])
        assert not _wrong_constants(ast.parse(path.read_text()), vars(module)), path
    assert _wrong_constants(ast.parse("tl.fma(x, 0.1, y)"), {})
    assert _wrong_constants(ast.parse("x < C"), {"C": -0.1})


OPERATORS = {
    "exp": nbx.exp, "log": nbx.log, "log1p": nbx.log1p, "expm1": nbx.expm1, "sin": nbx.sin, "cos": nbx.cos,
    "tanh": nbx.tanh, "erf": nbx.nn.erf, "sigmoid": nbx.nn.sigmoid, "silu": nbx.nn.silu, "gelu": nbx.nn.gelu,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operators_compute_in_float64(name: str, device: str) -> None:
    x = np.abs(np.random.default_rng().normal(0, 3, (37, 41)))
    tensor = nbx.asarray(x, device=device)
    want = run(name, device, x)
    y = OPERATORS[name](tensor)
    assert y.dtype is float64
    assert same_bits(np.asarray(y.to_device("cpu")), want)
    assert same_bits(np.asarray(OPERATORS[name](tensor[::-1, ::2]).to_device("cpu")), want[::-1, ::2])
    assert OPERATORS[name](tensor, out=tensor) is tensor
    assert same_bits(np.asarray(tensor.to_device("cpu")), want)


def test_other_operators_of_float64(device: str) -> None:
    x = np.abs(np.random.default_rng().normal(0, 3, 1000))
    tensor = nbx.asarray(x, device=device)

    def back(y: nbx.Tensor) -> np.ndarray:
        assert y.dtype is float64
        return np.asarray(y.to_device("cpu"))

    assert same_bits(back(nbx.sqrt(tensor)), np.sqrt(x))
    assert same_bits(back(nbx.nn.rsqrt(tensor)), 1.0 / np.sqrt(x))
    assert same_bits(back(nbx.nn.gelu(tensor, "tanh")), run("gelu_tanh", device, x))
    assert same_bits(back(nbx.nn.softplus(tensor, 1.0, 40.0)), run("softplus", device, x))
    assert same_bits(back(nbx.pow(tensor, 0.1)), run("pow", device, x, np.full(1000, 0.1)))
    assert same_bits(back(nbx.pow(0.1, tensor)), run("pow", device, np.full(1000, 0.1), x))
    assert same_bits(back(nbx.nn.leaky_relu(-tensor, 0.1)), -x * 0.1)
    assert same_bits(back(nbx.nn.elu(-tensor, 0.1)), run("expm1", device, -x) * 0.1)
    assert same_bits(back(nbx.nn.hard_sigmoid(tensor, 0.1, 0.3)), np.minimum(x * 0.1 + 0.3, 1.0))


def test_every_function_has_its_form() -> None:
    for name in (*NAMES, "pow", "softplus_scaled"):
        assert for_64_bit(getattr(device_math, name)).name == f"{name}64"
    assert for_64_bit(sqrt_value) is sqrt_value
