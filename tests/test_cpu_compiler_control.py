"""Loops, branches, masks, aliasing and everything that goes through scratch memory."""

import numpy as np
import pytest

from cpu_compiler_harness import Compiled
from nbxtensor.compiler.source import kernel, tl

I64 = {"x": "*i64", "y": "*i64"}


@kernel
def _shift_in_place(x, n, C: tl.constexpr):
    o = tl.arange(0, C)
    tl.store(x + o + 1, tl.load(x + o, mask=o < n), mask=o < n)


@pytest.mark.parametrize("n", [1, 100, 256])
def test_a_block_is_loaded_before_it_is_stored(n):
    x = np.arange(300, dtype=np.float32)
    want = x.copy()
    want[1 : n + 1] = x[:n]
    Compiled(_shift_in_place, {"x": "*fp32", "n": "i64"}, {"C": 256})((1,), x, n)
    np.testing.assert_array_equal(x, want)


@kernel
def _transpose(x, y, C: tl.constexpr):
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    tl.store(y + i * C + j, tl.load(x + j * C + i))


@pytest.mark.parametrize("size", [2, 16, 64])
def test_transpose_in_place_through_two_arguments(size):
    fn = Compiled(_transpose, {"x": "*fp32", "y": "*fp32"}, {"C": size})
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    want = x.T.copy()
    y = np.zeros_like(x)
    fn((1,), x, y)
    np.testing.assert_array_equal(y, want)
    fn((1,), x, x)
    np.testing.assert_array_equal(x, want)


@kernel
def _two_stores(x, y, z, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    tl.store(y + o, v + 1)
    tl.store(z + o, v * 2)
    w = tl.load(x + o)
    tl.store(z + C + o, w)


def test_loads_keep_their_place_between_stores():
    fn = Compiled(_two_stores, dict.fromkeys("xyz", "*i32"), {"C": 128})
    x, z = np.arange(128, dtype=np.int32), np.zeros(256, np.int32)
    fn((1,), x, x, z)
    np.testing.assert_array_equal(z, np.concatenate([np.arange(128) * 2, np.arange(128) + 1]))


@kernel
def _reload_in_loop(x, n, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    for i in range(n):
        tl.store(x + o, v + i)


def test_a_load_before_a_loop_is_not_repeated_after_its_stores():
    x = np.zeros(64, np.int32)
    Compiled(_reload_in_loop, {"x": "*i32", "n": "i32"}, {"C": 64})((1,), x, 4)
    assert (x == 3).all()


@kernel
def _swap(x, y, n, C: tl.constexpr):
    o = tl.arange(0, C)
    a, b = tl.load(x + o), tl.load(y + o)
    for i in range(n):
        a, b = b, a + i
    tl.store(x + o, a)
    tl.store(y + o, b)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_carried_tensors_are_assigned_at_once(n):
    a, b = np.arange(64), np.arange(64) * 10
    x, y = a.copy(), b.copy()
    for i in range(n):
        a, b = b, a + i
    Compiled(_swap, {**I64, "n": "i32"}, {"C": 64})((1,), x, y, n)
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, b)


@kernel
def _carried_turn(x, n, C: tl.constexpr):
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    s = tl.zeros((C,), tl.int64)
    for k in range(n):
        v = tl.trans(v) + k
        s += tl.sum(v, 1)
        v += s[None, :]
    tl.store(x + i * C + j, v)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_carried_tensor_read_elsewhere_than_written(n):
    x = np.random.default_rng(0).integers(-9, 9, (16, 16))
    v, s = x.copy(), np.zeros(16, np.int64)
    for k in range(n):
        v = v.T + k
        s = s + v.sum(1)
        v = v + s[None, :]
    Compiled(_carried_turn, {"x": "*i64", "n": "i32"}, {"C": 16})((1,), x, n)
    np.testing.assert_array_equal(x, v)


@kernel
def _nested(x, y, n, m, C: tl.constexpr):
    o = tl.arange(0, C)
    p = x + o
    total = tl.zeros((C,), tl.int64)
    count = 0
    for i in range(n):
        q = p
        for j in range(m):
            if (i + j) % 2 == 0:
                total += tl.load(q, mask=o < C - j, other=100)
                count += 1
            else:
                total -= j
            q += C
        p += C * m
    tl.store(y + o, total + count)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (1, 1), (3, 4)])
def test_nested_loops_with_branches_and_carried_pointers(n, m):
    size = 32
    x = np.random.default_rng(0).integers(-99, 99, (max(n, 1), max(m, 1), size))
    y = np.zeros(size, np.int64)
    Compiled(_nested, {**I64, "n": "i32", "m": "i32"}, {"C": size})((1,), x, y, n, m)
    total, count = np.zeros(size, np.int64), 0
    for i in range(n):
        for j in range(m):
            if (i + j) % 2 == 0:
                total += np.where(np.arange(size) < size - j, x[i, j], 100)
                count += 1
            else:
                total -= j
    np.testing.assert_array_equal(y, total + count)


@kernel
def _countdown(x, n, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.zeros((C,), tl.int64)
    for i in range(n, 0, -2):
        v = v * 3 + i
    tl.store(x + o, v)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_loop_that_counts_down(n):
    x, want = np.zeros(16, np.int64), 0
    for i in range(n, 0, -2):
        want = want * 3 + i
    Compiled(_countdown, {"x": "*i64", "n": "i32"}, {"C": 16})((1,), x, n)
    assert (x == want).all()


@kernel
def _while(x, y, n):
    s = tl.load(x)
    k = 0
    while s < n:
        s = s * 2 + 1
        k += 1
    tl.store(y, s)
    tl.store(y + 1, k)


def test_while():
    x, y = np.array([1]), np.zeros(2, np.int64)
    Compiled(_while, {**I64, "n": "i64"})((1,), x, y, 100)
    assert y.tolist() == [127, 6]


@kernel
def _while_tensor(x, n, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    while tl.max(v, 0) < n:
        v = v + tl.sum(v, 0)
    tl.store(x + o, v)


def test_while_with_tensors():
    x = np.arange(32)
    v = x.copy()
    while v.max() < 5000:
        v = v + v.sum()
    Compiled(_while_tensor, {"x": "*i64", "n": "i64"}, {"C": 32})((1,), x, 5000)
    np.testing.assert_array_equal(x, v)


@kernel
def _offset(x, y, start, C: tl.constexpr):
    o = start + tl.arange(0, C)
    wide = o.to(tl.int64)
    tl.store(y + tl.arange(0, C), wide)
    tl.store(x + (o & (C - 1)), tl.arange(0, C))


@pytest.mark.parametrize("start", [0, 2**31 - 16, 2**31 - 64, -7])
def test_32_bit_offsets_wrap_around(start):
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int64)
    Compiled(_offset, {"x": "*i32", "y": "*i64", "start": "i32"}, {"C": 64})((1,), x, y, start)
    want = (np.arange(64) + start + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(x[want & 63], np.arange(64))


@kernel
def _wrapped_mask(y, start, n, C: tl.constexpr):
    o = start + tl.arange(0, C)
    tl.store(y + tl.arange(0, C), tl.full((C,), 1, tl.int32), mask=o < n)


@pytest.mark.parametrize("start", [0, 2**31 - 16, 2**31 - 64, -7])
def test_masks_of_wrapped_offsets(start):
    y = np.zeros(64, np.int32)
    Compiled(_wrapped_mask, {"y": "*i32", "start": "i32", "n": "i32"}, {"C": 64})((1,), y, start, 10)
    np.testing.assert_array_equal(y, (np.arange(64) + start + 2**31) % 2**32 - 2**31 < 10)


@kernel
def _masks(x, y, lo, hi, row, C: tl.constexpr):
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, C)[None, :]
    m = (i < row) & (j >= lo) & (j < hi)
    v = tl.load(x + i * C + j, mask=m, other=-5)
    tl.store(y + i * C + j, v, mask=(hi > j) & (i <= row))


@pytest.mark.parametrize(
    ("lo", "hi", "row"), [(0, 64, 8), (0, 0, 8), (3, 61, 5), (32, 64, 7), (33, 35, 1), (5, 3, 8), (-9, 99, 20)]
)
@pytest.mark.parametrize("kind", ["i8", "i32", "fp64", "bf16"])
def test_masks_with_two_ends(lo, hi, row, kind):
    import ml_dtypes

    dtype = {"i8": np.int8, "i32": np.int32, "fp64": np.float64, "bf16": ml_dtypes.bfloat16}[kind]
    rng = np.random.default_rng(0)
    x = rng.integers(-99, 99, (8, 64)).astype(dtype)
    y = np.full((8, 64), 77, dtype)
    i, j = np.arange(8)[:, None], np.arange(64)[None, :]
    v = np.where((i < row) & (j >= lo) & (j < hi), x, np.array(-5, dtype))
    want = np.where((hi > j) & (i <= row), v, y)
    signature = {"x": f"*{kind}", "y": f"*{kind}", "lo": "i32", "hi": "i64", "row": "i32"}
    Compiled(_masks, signature, {"C": 64})((1,), x, y, lo, hi, row)
    np.testing.assert_array_equal(y, want)


@kernel
def _guarded_division(x, y, n, C: tl.constexpr):
    o = tl.arange(0, C)
    d = tl.load(y + o, mask=o < n, other=0)
    tl.store(x + o, tl.load(x + o) // d, mask=o < n)


def test_lanes_that_are_masked_off_do_not_divide():
    x, y = np.full(64, -(2**31), np.int32), np.full(64, 7, np.int32)
    y[:2] = -1
    Compiled(_guarded_division, {"x": "*i32", "y": "*i32", "n": "i32"}, {"C": 64})((1,), x, y, 33)
    assert (x[2:33] == -(2**31) // 7 + 1).all()
    assert (x[33:] == -(2**31)).all()


@kernel
def _bools(x, y, z, C: tl.constexpr):
    o = tl.arange(0, C)
    a = tl.load(x + o)
    b = tl.load(y + o) > 1.5
    tl.store(z + o, a & b)
    tl.store(x + o, a ^ b)


def test_bool_memory_is_bytes():
    rng = np.random.default_rng(0)
    x, y, z = rng.random(64) < 0.5, rng.random(64).astype(np.float32) * 3, np.zeros(64, bool)
    a = x.copy()
    Compiled(_bools, {"x": "*i1", "y": "*fp32", "z": "*i1"}, {"C": 64})((1,), x, y, z)
    np.testing.assert_array_equal(z, a & (y > 1.5))
    np.testing.assert_array_equal(x, a ^ (y > 1.5))


@kernel
def _ids(y):
    a, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (c * tl.num_programs(1) + b) * tl.num_programs(0) + a
    tl.store(y + at, a + 10 * b + 100 * c + 1000 * tl.num_programs(2))


def test_program_ids():
    y = np.zeros((4, 3, 2), np.int32)
    Compiled(_ids, {"y": "*i32"})((2, 3, 4), y)
    a, b, c = np.arange(2), np.arange(3)[:, None], np.arange(4)[:, None, None]
    np.testing.assert_array_equal(y, a + 10 * b + 100 * c + 4000)


@kernel
def _scalars(y, a, b, c, d, e):
    tl.store(y, a.to(tl.float64) + b + c.to(tl.float64) + d.to(tl.float64) + e.to(tl.float64))


def test_scalar_arguments():
    y = np.zeros(1)
    signature = {"y": "*fp64", "a": "fp32", "b": "fp64", "c": "i32", "d": "i64", "e": "i8"}
    Compiled(_scalars, signature)((1,), y, 0.5, 0.25, -3, 2**40, -7)
    assert y[0] == 0.75 - 10 + 2**40


@kernel
def _kept(x, y, n, C: tl.constexpr):
    o = tl.arange(0, C)
    a = tl.load(x + o)
    for i in range(n):
        a = a * 2 + i
    b = a
    for i in range(n):
        b = b - i * 7
    tl.store(y + o, a)
    tl.store(y + C + o, b)


def test_a_tensor_survives_the_loop_that_starts_from_it():
    x, y = np.arange(64), np.zeros(128, np.int64)
    Compiled(_kept, {**I64, "n": "i32"}, {"C": 64})((1,), x, y, 3)
    a = x.copy()
    for i in range(3):
        a = a * 2 + i
    np.testing.assert_array_equal(y, np.concatenate([a, a - 21]))


@kernel
def _guarded_scalar(x, y, n, C: tl.constexpr):
    if_there = tl.load(x + n, mask=n < 4, other=7)
    o = tl.arange(0, C)[:, None]
    row = tl.load(x + n + o * 0, mask=n < 4, other=8)
    tl.store(y + o * 2 + tl.arange(0, 2)[None, :], row + if_there)


def test_scalar_loads_that_are_masked_off_touch_no_memory():
    y = np.zeros(64, np.int64)
    fn = Compiled(_guarded_scalar, {**I64, "n": "i64"}, {"C": 32})
    fn((1,), 0, y, 2**40)
    assert (y == 15).all()
    fn((1,), np.arange(5), y, 3)
    assert (y == 6).all()


@kernel
def _stages(x, C: tl.constexpr, STAGES: tl.constexpr):
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    for _ in tl.static_range(STAGES):
        v = v * 2 + tl.sum(v, 1)[None, :]
        v = v - tl.max(v, 0)[:, None]
    tl.store(x + i * C + j, v)


def test_scratch_memory_is_used_again():
    x = np.random.default_rng(0).integers(-9, 9, (32, 32))
    v = x.copy()
    for _ in range(6):
        v = v * 2 + v.sum(1)[None, :]
        v = v - v.max(0)[:, None]
    fn = Compiled(_stages, {"x": "*i64"}, {"C": 32, "STAGES": 6})
    fn((1,), x)
    np.testing.assert_array_equal(x, v)
    assert fn.resources.stack_bytes < 6 * 32 * 32 * 8
