"""The device mathematics compiles for every dtype it takes, and uses only operations that have one answer."""

import pytest

from nbxtensor.compiler.scan import scan_ttir
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.kernel import math

FLOATS = ("fp32", "fp64")
HALVES = ("fp16", "bf16")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
TAKES: dict[str, tuple[str, ...]] = {
    "bits_of": FLOATS + HALVES,
    "negate": FLOATS + HALVES + INTS,
    "magnitude": FLOATS + HALVES + INTS,
    "is_nan": FLOATS + HALVES + INTS,
    "is_inf": FLOATS + HALVES + INTS,
    "is_finite": FLOATS + HALVES + INTS,
    "sign": FLOATS + INTS,
    "round_even": FLOATS,
    "trunc": FLOATS,
    "floor": FLOATS,
    "ceil": FLOATS,
    "f64_to_f32_odd": ("fp64",),
    "int_to_f32_sticky": ("i32", "i64", "u32", "u64"),
    "copy_sign": FLOATS + HALVES,
    "maximum": FLOATS + INTS,
    "minimum": FLOATS + INTS,
    "fmod": FLOATS,
    "quotient": FLOATS,
    "remainder": FLOATS + INTS,
    "floor_divide": FLOATS + INTS,
    "int_pow": INTS,
    **dict.fromkeys(
        ("exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh", "tanh_gpu", "erf", "pow"), ("fp32",)
    ),
    **dict.fromkeys([n for n in math.__all__ if n.endswith(("_bf16", "_f16"))], ("fp32",)),
    **dict.fromkeys(("sigmoid", "silu", "softplus", "gelu", "gelu_tanh"), ("fp32",)),
}
BINARY = {"pow", "copy_sign", "maximum", "minimum", "fmod", "quotient", "remainder", "floor_divide", "int_pow"}
OTHERS = {"cast", "float_to_int", "softplus_scaled"}


@kernel
def one(x_ptr, out_ptr, FN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, FN(tl.load(x_ptr + i)))


@kernel
def two(x_ptr, y_ptr, out_ptr, FN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, FN(tl.load(x_ptr + i), tl.load(y_ptr + i)))


def source(name: str, dtype: str) -> str:
    constants = {"FN": getattr(math, name), "B": 64}
    if name in BINARY:
        return ttir(two, {"x_ptr": f"*{dtype}", "y_ptr": f"*{dtype}", "out_ptr": f"*{dtype}"}, constants)
    return ttir(one, {"x_ptr": f"*{dtype}", "out_ptr": f"*{dtype}"}, constants)


def test_every_function_is_listed_here():
    assert {n for n in math.__all__ if isinstance(getattr(math, n), KernelFunction)} == set(TAKES) | OTHERS


@pytest.mark.parametrize("name", sorted(TAKES))
def test_only_operations_with_one_answer(name: str):
    for dtype in TAKES[name]:
        assert not scan_ttir(source(name, dtype))


def test_the_scan_finds_a_fault():
    @kernel
    def bad(x):
        return x / 3.0 + tl.exp(x)

    assert len(scan_ttir(ttir(one, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, {"FN": bad, "B": 64}))) == 2
