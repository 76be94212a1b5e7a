"""The scan for operations that break "one answer" finds each of them, and nothing in a clean kernel."""

import re

import pytest

pytest.importorskip("triton")

from nbxtensor.compiler.compile import Job
from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.scan import scan_ptx, scan_ttir
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.artifact import Options, Target


@kernel
def _add(a, b):
    return a + b


@kernel
def _larger(a, b):
    return tl.where(a > b, a, b)


@kernel
def exp(x):
    return tl.exp(x)


@kernel
def square_root(x):
    return tl.sqrt(x)


@kernel
def quotient(x):
    return x / (x + 1.0)


@kernel
def remainder(x):
    return x % 3.0


@kernel
def negative(x):
    return 0.0 - x * 3.0  # what `-x` means before Triton 3.8


@kernel
def scalar_negative(x):
    return x + (0.0 - tl.max(x, 0))


@kernel
def half_sum(x):
    return (x.to(tl.float16) + x.to(tl.float16)).to(tl.float32)


@kernel
def bfloat_product(x):
    return (x.to(tl.bfloat16) * x.to(tl.bfloat16)).to(tl.float32)


@kernel
def total(x):
    return x + tl.sum(x, 0)


@kernel
def row_total(x):
    return x + tl.sum(tl.sum(tl.reshape(x, (64, 4)), 1), 0)


@kernel
def running_total(x):
    return tl.cumsum(x, 0)


@kernel
def libdevice(x):
    return tl.extra.cuda.libdevice.log1p(x)


@kernel
def dot_tf32(x):
    y = tl.reshape(x, (16, 16))
    return tl.reshape(tl.dot(y, y), (256,))


@kernel
def dot_half(x):
    y = tl.reshape(x, (16, 16)).to(tl.float16)
    return tl.reshape(tl.dot(y, y), (256,))


FAULTS = [
    (exp, "math.exp differs"),
    (square_root, "math.sqrt differs"),
    (quotient, "'/' is not correctly rounded"),
    (remainder, "'%' on floats"),
    (negative, "0 - x loses the sign"),
    (scalar_negative, "0 - x loses the sign"),
    (half_sum, "16-bit arithmetic"),
    (bfloat_product, "16-bit arithmetic"),
    (total, "tt.reduce applies arith.addf to 256 floats"),
    (row_total, "tt.reduce applies arith.addf to 4 floats"),
    (running_total, "tt.scan applies arith.addf to 256 floats"),
    (libdevice, "libdevice"),
    (dot_tf32, "tf32 rounds"),
    (dot_half, "tensor cores"),
]


@kernel
def clean(x):
    y = tl.fma(x, 2.0, x) * x - 1.0
    y = tl.div_rn(y, x) + tl.sqrt_rn(y) + tl.floor(y)
    pairs = tl.reduce(tl.reshape(y, (128, 2)), 1, _add)
    y += tl.reduce(pairs, 0, _larger)
    y += tl.sum((x > 0).to(tl.int32), 0).to(tl.float32)
    y = (y.to(tl.int32, bitcast=True) ^ -2147483648).to(tl.float32, bitcast=True)
    tile = tl.reshape(y, (16, 16))
    y = tl.reshape(tl.dot(tile, tile, input_precision="ieee"), (256,))
    return y.to(tl.bfloat16).to(tl.float32)


@kernel
def product_and_sum(x):
    return x * 3.0 + tl.floor(x)


@kernel
def apply(x, y, n, FN: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, FN(value), mask=at < n)


@kernel
def atomic(x, y, n, FN: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.atomic_add(y + at, tl.load(x + at), mask=at < n)


SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i64"}


def first_ir(fn: KernelFunction, outer: KernelFunction = apply) -> str:
    return ttir(outer, SIGNATURE, {"FN": fn})


def ptx(fn: KernelFunction, outer: KernelFunction = apply, arch: str = "sm_90") -> str:
    constants = (("FN", fn),)
    job = Job(outer, tuple(SIGNATURE.items()), constants, Options(), frozenset(), Target("cuda", arch))
    return lower_to_ptx(job).text


@pytest.mark.parametrize(("fn", "rule"), FAULTS, ids=lambda v: getattr(v, "name", ""))
def test_ttir_rules(fn, rule):
    found = scan_ttir(first_ir(fn))
    assert any(rule in str(f) for f in found), found
    assert all(f.text == first_ir(fn).splitlines()[f.line - 1].strip() for f in found)


def test_float_atomics_are_found():
    assert [f.rule for f in scan_ttir(first_ir(clean, atomic))] == ["float atomics have no order"]
    assert "float atomics" in str(scan_ptx(ptx(clean, atomic), ""))


def test_fast_math_flags_are_found():
    text = first_ir(product_and_sum)
    assert scan_ttir(text) == []
    flagged = re.sub(r"arith\.addf (%\w+), (%\w+)", r"arith.addf \1, \2 fastmath<contract>", text)
    assert ["fast-math" in f.rule for f in scan_ttir(flagged)] == [True]


def test_a_clean_kernel_has_no_findings():
    text = first_ir(clean)
    assert scan_ttir(text) == []
    assert scan_ptx(ptx(clean), text) == []


@pytest.mark.parametrize(
    ("fn", "word"),
    [(exp, ".approx"), (square_root, ".approx"), (quotient, ".full"), (half_sum, "16-bit")],
    ids=lambda v: getattr(v, "name", ""),
)
def test_ptx_rules(fn, word):
    assert any(word in f.rule for f in scan_ptx(ptx(fn), first_ir(fn)))


def test_flush_to_zero_is_found():
    text = ptx(product_and_sum).replace("cvt.rmi.f32.f32", "cvt.rmi.ftz.f32.f32")
    assert {f.rule for f in scan_ptx(text, first_ir(product_and_sum))} == {".ftz is not IEEE arithmetic"}


def test_tensor_cores_are_found():
    assert any("tensor cores" in f.rule for f in scan_ptx(ptx(dot_half), first_ir(dot_half)))


def test_contraction_is_found():
    """PTX with a fused multiply-add that the TTIR does not have."""
    text = ptx(product_and_sum)
    assert scan_ptx(text, first_ir(product_and_sum)) == []
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("mul."))
    lines[at] = "\tfma.rn.f32 \t%r1, %r2, %r3, %r4;"
    assert [f.rule for f in scan_ptx("\n".join(lines), first_ir(product_and_sum))] == [
        "a multiplication and an addition were contracted"
    ]
