"""The CPU compiler: small kernels against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from cpu_compiler_harness import Compiled, load
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.cpu.compile import compile_ttir
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.artifact import Target
from nbxtensor.device.cpu_level import cpu_flags, supported_levels


@kernel
def _fused(x, y, n, BLOCK: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    o = p * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = tl.load(x + o, mask=m, other=0.0).to(tl.float32)
    z = tl.fma(v, v, v)
    if p > 3:
        z = z * 2.0
        q = 1
    else:
        q = 2
    for i in range(q):
        z += i
    tl.store(y + o, z, mask=m)


@pytest.mark.parametrize("n", [1, 31, 1024, 4999, 5000])
def test_pointwise_with_branches_and_tail(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(5000).astype(ml_dtypes.bfloat16)
    y = np.full(5000, 7, np.float32)
    Compiled(_fused, {"x": "*bf16", "y": "*fp32", "n": "i64"}, {"BLOCK": 1024})((5,), x, y, n)
    v = x.astype(np.float64)
    z = (v * v + v).astype(np.float32)
    want = np.where(np.arange(5000) // 1024 > 3, z * 2, z + 0 + 1)
    np.testing.assert_array_equal(y[:n], want[:n])
    assert (y[n:] == 7).all()


@kernel
def _row(x, y, n, C: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, C)
    v = tl.load(x + p * n + o, mask=o < n, other=-0.0)
    w = tl.reshape(v, (C // 4, 2, 2))
    w = tl.sum(w, 2)
    w = tl.sum(w, 1)
    w = tl.sum(tl.reshape(w, (2, C // 8)), 0)
    top = tl.max(v, 0)
    where = tl.argmax(v, 0)
    s = tl.cumsum(v.to(tl.int32), 0)
    tl.store(y + C // 8 + o[:, None] * 3 + tl.arange(0, 4)[None, :], (s + where)[:, None] * top)
    tl.store(y + tl.arange(0, C // 8), w)


def test_reductions_and_scan():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    y = np.zeros(1024 * 3 + 1 + 128, np.float32)
    Compiled(_row, {"x": "*fp32", "y": "*fp32", "n": "i64"}, {"C": 1024})((1,), x, y, 1000)
    v = np.full(1024, -0.0, np.float32)
    v[:1000] = x
    w = v.reshape(256, 2, 2)
    w = w[..., 0] + w[..., 1]
    w = w[..., 0] + w[..., 1]
    np.testing.assert_array_equal(y[:128], w[:128] + w[128:])
    s = np.cumsum(v.astype(np.int32))
    np.testing.assert_array_equal(y[128 : 128 + 3 * 1024 : 3], (s + v.argmax()).astype(np.float32) * v.max())


def test_both_levels_compile_and_give_the_same_bits():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(5000).astype(ml_dtypes.bfloat16)
    results = []
    for level in ("x86-64-v3", "x86-64-v4"):
        text = ttir(_fused, {"x": "*bf16", "y": "*fp32", "n": "i64"}, {"BLOCK": 1024})
        binary, _ = compile_ttir(text, Target("cpu", level), "fused")
        call = load(binary, "fused")
        if level in supported_levels(cpu_flags()):
            y = np.zeros(5000, np.float32)
            slots = np.array([x.ctypes.data, y.ctypes.data, 4999], np.int64)
            call(slots.ctypes.data, 0, 5, 5, 1, 1)
            results.append(y)
    for y in results[1:]:
        np.testing.assert_array_equal(y.view(np.int32), results[0].view(np.int32))


def test_the_same_text_gives_the_same_object():
    text = ttir(_row, {"x": "*fp32", "y": "*fp32", "n": "i64"}, {"C": 256})
    target = Target("cpu", "x86-64-v3")
    assert compile_ttir(text, target, "row") == compile_ttir(text, target, "row")


def test_a_range_of_programs():
    x, y = np.ones(4096, ml_dtypes.bfloat16), np.zeros(4096, np.float32)
    text = ttir(_fused, {"x": "*bf16", "y": "*fp32", "n": "i64"}, {"BLOCK": 1024})
    call = load(compile_ttir(text, Target("cpu", "x86-64-v3"), "fused")[0], "fused")
    slots = np.array([x.ctypes.data, y.ctypes.data, 4096], np.int64)
    call(slots.ctypes.data, 1, 3, 4, 1, 1)
    assert (y[1024:3072] == 3).all()
    assert (y[:1024] == 0).all()
    assert (y[3072:] == 0).all()


@pytest.mark.parametrize("target", [Target("cpu", "pentium"), Target("cuda", "sm_90")])
def test_unknown_targets_are_refused(target):
    with pytest.raises(CompileError, match="CPU"):
        compile_ttir(ttir(_row, {"x": "*fp32", "y": "*fp32", "n": "i64"}, {"C": 8}), target, "row")
