"""Blocks are loaded before they are stored, however two pointers overlap."""

import numpy as np
import pytest

from cpu_compiler_harness import Compiled
from nbxtensor.compiler.source import kernel, tl


@kernel
def _strided(x, y, sx, sy, n, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    m = (i < n) & (j < n)
    tl.store(y + i * sy + j, tl.load(x + i * sx + j, mask=m) + 1, mask=m)


@pytest.mark.parametrize("shift", [0, 1, -1, 5, 33, -40, 2000, -2000, 64 * 64])
@pytest.mark.parametrize("n", [64, 50])
def test_two_arguments_that_overlap(shift, n):
    memory = np.arange(16384, dtype=np.int32)
    at = 5000
    want = memory.copy()
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    want[at + shift + i * 65 + j] = memory[at + i * 64 + j] + 1
    x, y = memory.ctypes.data + 4 * at, memory.ctypes.data + 4 * (at + shift)
    signature = {"x": "*i32", "y": "*i32", "sx": "i64", "sy": "i64", "n": "i32"}
    Compiled(_strided, signature, {"R": 64, "C": 64})((1,), x, y, 64, 65, n)
    np.testing.assert_array_equal(memory, want)


@kernel
def _rows(x, y, size, n, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R).to(tl.int64)
    source = (r % size) * n + (r // size)
    j = tl.arange(0, C)[None, :]
    tl.store(y + (R - 1 - r)[:, None] * C + j, tl.load(x + source[:, None] + j * 2))


@pytest.mark.parametrize("shift", [0, 100, -100, 4000])
def test_offsets_made_by_division(shift):
    memory = np.arange(16384, dtype=np.int64)
    at = 5000
    want = memory.copy()
    r, j = np.arange(16), np.arange(32)[None, :]
    want[at + shift + (15 - r)[:, None] * 32 + j] = memory[at + (r % 3 * 90 + r // 3)[:, None] + j * 2]
    x, y = memory.ctypes.data + 8 * at, memory.ctypes.data + 8 * (at + shift)
    signature = {"x": "*i64", "y": "*i64", "size": "i64", "n": "i64"}
    Compiled(_rows, signature, {"R": 16, "C": 32})((1,), x, y, 3, 90)
    np.testing.assert_array_equal(memory, want)


@kernel
def _wrapping(x, y, s, C: tl.constexpr):
    o = tl.arange(0, C)
    tl.store(y + ((o * s) & (C - 1)), tl.load(x + ((o * s + 1) & (C - 1))) * 2)


@pytest.mark.parametrize("s", [1, 3, 2**26 + 1])
def test_offsets_that_wrap_around_in_place(s):
    x = np.arange(64, dtype=np.int32)
    o = (np.arange(64) * s) % 2**32
    want = x.copy()
    want[o & 63] = x[(o + 1) & 63] * 2
    Compiled(_wrapping, {"x": "*i32", "y": "*i32", "s": "i32"}, {"C": 64})((1,), x, x, s)
    np.testing.assert_array_equal(x, want)


@kernel
def _loop(x, y, s, n, C: tl.constexpr):
    o = tl.arange(0, C)
    p, q = x + o, y + o
    for _ in range(n):
        tl.store(q, tl.load(p) + 1)
        p += s
        q += C


@pytest.mark.parametrize("shift", [0, 1, -1, 300])
def test_carried_pointers_that_overlap(shift):
    memory = np.arange(4096, dtype=np.int32)
    at, want = 1000, memory.copy()
    for k in range(4):
        want[at + shift + 64 * k : at + shift + 64 * k + 64] = want[at + 60 * k : at + 60 * k + 64] + 1
    x, y = memory.ctypes.data + 4 * at, memory.ctypes.data + 4 * (at + shift)
    Compiled(_loop, {"x": "*i32", "y": "*i32", "s": "i32", "n": "i32"}, {"C": 64})((1,), x, y, 60, 4)
    np.testing.assert_array_equal(memory, want)


@kernel
def _indirect(x, k, C: tl.constexpr):
    o = tl.arange(0, C)
    tl.store(x + o, tl.load(x + tl.load(k + o)))


def test_permutation_in_place():
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal(256).astype(np.float32), rng.permutation(256)
    want = x[k]
    Compiled(_indirect, {"x": "*fp32", "k": "*i64"}, {"C": 256})((1,), x, k)
    np.testing.assert_array_equal(x, want)


@kernel
def _store_between(x, y, z, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    tl.store(y + o, v + 1)
    w = tl.load(z + o)
    tl.store(z + o, v + w)


def test_a_store_between_a_load_and_its_use():
    x, z = np.arange(64, dtype=np.int32), np.full(64, 1000, np.int32)
    Compiled(_store_between, dict.fromkeys("xyz", "*i32"), {"C": 64})((1,), x, x, z)
    np.testing.assert_array_equal(z, np.arange(64) + 1000)
    np.testing.assert_array_equal(x, np.arange(64) + 1)


@kernel
def _atomic_between(x, y, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    tl.atomic_add(x + (C - 1 - o), v)
    tl.store(y + o, v)


def test_an_atomic_between_a_load_and_its_use():
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    Compiled(_atomic_between, dict.fromkeys("xy", "*i32"), {"C": 64})((1,), x, y)
    np.testing.assert_array_equal(y, np.arange(64))
    assert (x == 63).all()


@kernel
def _sum(a, b):
    return a + b


@kernel
def _scalar_after_store(x, y, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    tl.store(y + o, v * 2)
    tl.store(y + C, tl.reduce(v, 0, _sum))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_store_between_a_load_and_its_reduction_to_a_scalar(size):
    x = np.arange(1, 9, dtype=np.int32)
    Compiled(_scalar_after_store, dict.fromkeys("xy", "*i32"), {"C": size})((1,), x, x)
    start = np.arange(1, size + 1)
    np.testing.assert_array_equal(x[: size + 1], [*(start * 2), start.sum()])


@kernel
def _two_scans(x, y, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.cumsum(tl.load(x + o), 0)
    tl.store(y + o, v)
    w = tl.cumsum(tl.load(x + o) * 3, 0)
    tl.store(y + C + o, w)
    tl.store(y + 2 * C, tl.reduce(v, 0, _sum))
    tl.store(y + 2 * C + 1, tl.reduce(w, 0, _sum))


@pytest.mark.parametrize("size", [2, 4])
def test_scratch_memory_lives_until_its_reduction_to_a_scalar(size):
    x = np.arange(1, size + 1, dtype=np.int32)
    y = np.zeros(2 * size + 2, np.int32)
    Compiled(_two_scans, dict.fromkeys("xy", "*i32"), {"C": size})((1,), x, y)
    total = np.cumsum(x)
    np.testing.assert_array_equal(y, [*total, *(3 * total), total.sum(), 3 * total.sum()])
