"""``tl.dot`` on the CPU: one ascending chain of fma per element, whatever the tile."""

import ml_dtypes
import numpy as np
import pytest

from cpu_compiler_harness import Compiled
from nbxtensor.compiler.source import kernel, tl


@kernel
def _matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, T: tl.constexpr):
    i = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    j = (tl.program_id(1) * BN + tl.arange(0, BN)).to(tl.int64)
    k = tl.arange(0, BK).to(tl.int64)
    acc = tl.zeros((BM, BN), c.dtype.element_ty)
    pa = a + i[:, None] * K + k[None, :]
    if T:
        pb = b + k[:, None] + j[None, :] * K
    else:
        pb = b + k[:, None] * N + j[None, :]
    for at in range(0, K, BK):
        x = tl.load(pa, mask=(i[:, None] < M) & (k[None, :] + at < K), other=0.0)
        y = tl.load(pb, mask=(k[:, None] + at < K) & (j[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee", out_dtype=c.dtype.element_ty)
        pa += BK
        pb += BK if T else BK * N
    tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


def _chain(a, b):
    """The sum that the compiler promises; 64 bits of mantissa make each step exact before it is rounded."""
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out = (a[:, k : k + 1] * b[k : k + 1] + out).astype(np.float32)
    return out


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tile", [(16, 16, 16), (32, 64, 32)])
def test_chain(tile, transposed, dtype):
    rng = np.random.default_rng(0)
    kind = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    m, n, k = 37, 75, 51
    a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)
    c = np.full((m, n), np.nan, np.float32)
    signature = {"a": f"*{dtype}", "b": f"*{dtype}", "c": "*fp32", "M": "i64", "N": "i64", "K": "i64"}
    fn = Compiled(_matmul, signature, {"BM": tile[0], "BN": tile[1], "BK": tile[2], "T": transposed})
    right = np.ascontiguousarray(b.T) if transposed else b
    fn((-(-m // tile[0]), -(-n // tile[1])), a, right, c, m, n, k)
    np.testing.assert_array_equal(c, _chain(a, b))


def test_float64():
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((20, 30)), rng.standard_normal((30, 40)), np.zeros((20, 40))
    signature = {"a": "*fp64", "b": "*fp64", "c": "*fp64", "M": "i64", "N": "i64", "K": "i64"}
    fn = Compiled(_matmul, signature, {"BM": 16, "BN": 16, "BK": 16, "T": False})
    fn((2, 3), a, b, c, 20, 40, 30)
    np.testing.assert_allclose(c, a @ b, rtol=1e-14, atol=1e-14)


@kernel
def _batched(a, b, c, B: tl.constexpr, M: tl.constexpr):
    o = (tl.arange(0, B)[:, None, None] * M + tl.arange(0, M)[None, :, None]) * M + tl.arange(0, M)[None, None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o), input_precision="ieee"))


def test_batched():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, 16, 16)).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    Compiled(_batched, dict.fromkeys("abc", "*fp32"), {"B": 2, "M": 16})((1,), a, b, c)
    for i in range(2):
        np.testing.assert_array_equal(c[i], _chain(a[i], b[i]))


@kernel
def _two_products(a, b, c, M: tl.constexpr):
    o = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    x, y = tl.load(a + o), tl.load(b + o)
    start = tl.dot(x, y, input_precision="ieee")
    first = tl.dot(y, x, start, input_precision="ieee")
    second = tl.dot(x, x, start, input_precision="ieee")
    tl.store(c + o, start)
    tl.store(c + M * M + o, first)
    tl.store(c + 2 * M * M + o, second)


def test_an_accumulator_that_is_used_again_is_not_overwritten():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (16, 16)).astype(np.float32) for _ in range(2))
    c = np.zeros((3, 16, 16), np.float32)
    Compiled(_two_products, dict.fromkeys("abc", "*fp32"), {"M": 16})((1,), a, b, c)
    np.testing.assert_array_equal(c, np.stack([a @ b, a @ b + b @ a, a @ b + a @ a]))
