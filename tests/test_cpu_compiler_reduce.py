"""Reductions and scans: every axis, every combine, the order that is promised, masks, identities."""

import numpy as np
import pytest

from cpu_compiler_harness import Compiled
from nbxtensor.compiler.source import kernel, tl


@kernel
def _add(a, b):
    return a + b


@kernel
def _xor(a, b):
    return a ^ b


@kernel
def _largest(a, b):
    return tl.maximum(a, b)


@kernel
def _largest_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@kernel
def _least_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@kernel
def _last(a, b):
    return a * 0 + b


ADD, XOR, LARGEST, LARGEST_NAN, LEAST_NAN = 0, 1, 2, 3, 4


@kernel
def _reduce(v, AXIS: tl.constexpr, OP: tl.constexpr):
    if OP == ADD:
        r = tl.reduce(v, AXIS, _add)
    elif OP == XOR:
        r = tl.reduce(v, AXIS, _xor)
    elif OP == LARGEST:
        r = tl.reduce(v, AXIS, _largest)
    elif OP == LARGEST_NAN:
        r = tl.reduce(v, AXIS, _largest_nan)
    else:
        r = tl.reduce(v, AXIS, _least_nan)
    return r


@kernel
def _reduce3(x, y, n, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    a, b, c = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    v = tl.load(x + (a * B + b) * C + c, mask=c < n, other=3)
    r = _reduce(v, AXIS, OP)
    if AXIS == 0:
        tl.store(y + tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :], r)
    elif AXIS == 1:
        tl.store(y + tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None, :], r)
    else:
        tl.store(y + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :], r)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(1, 2, 4), (4, 8, 2), (2, 4, 64), (16, 1, 8), (2, 64, 1)])
def test_every_axis(shape, axis):
    x = np.random.default_rng(0).integers(-9, 9, shape)
    for fn, want in ((ADD, np.add), (XOR, np.bitwise_xor), (LARGEST, np.maximum)):
        n = max(shape[2] - 1, 1)
        v = np.where(np.arange(shape[2]) < n, x, 3)
        y = np.zeros(np.delete(shape, axis), np.int64)
        constants = {"A": shape[0], "B": shape[1], "C": shape[2], "AXIS": axis, "OP": fn}
        Compiled(_reduce3, {"x": "*i64", "y": "*i64", "n": "i32"}, constants)((1,), x, y, n)
        np.testing.assert_array_equal(y, want.reduce(v, axis))


@kernel
def _row(x, y, lo, n, other, C: tl.constexpr, OP: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o, mask=(o < n) & (o >= lo), other=other)
    tl.store(y, _reduce(v, 0, OP))


ROW = {"x": "*fp32", "y": "*fp32", "lo": "i32", "n": "i32", "other": "fp32"}


def _order(v, fn):
    """The promised order: 32 lanes in ascending order, then first half with second half."""
    v = v.reshape(-1, 32)
    total = v[0]
    for row in v[1:]:
        total = fn(total, row)
    while len(total) > 1:
        half = len(total) // 2
        total = fn(total[:half], total[half:])
    return total[0]


@pytest.mark.parametrize(
    ("lo", "n"), [(0, 1024), (0, 0), (0, 1), (5, 1000), (40, 41), (1000, 900), (31, 97), (-5, 2000)]
)
def test_sum_of_floats_has_one_order(lo, n):
    x = (np.random.default_rng(0).standard_normal(1024) * 10.0 ** np.arange(1024).clip(0, 6)).astype(np.float32)
    y = np.zeros(1, np.float32)
    fn = Compiled(_row, ROW, {"C": 1024, "OP": ADD})
    fn((1,), x, y, lo, n, -0.0)
    o = np.arange(1024)
    want = _order(np.where((o < n) & (o >= lo), x, np.float32(-0.0)), np.add)
    assert y.view(np.int32)[0] == want.view(np.int32)


def test_the_sum_of_negative_zeros_is_negative_zero():
    y = np.zeros(1, np.float32)
    fn = Compiled(_row, ROW, {"C": 256, "OP": ADD})
    fn((1,), np.full(256, -0.0, np.float32), y, 0, 256, -0.0)
    assert np.signbit(y[0])


SPECIAL = {
    "zeros": ([-0.0, 0.0, -0.0], 0.0, -0.0),
    "nan first": ([np.nan, 1.0, 2.0], np.nan, np.nan),
    "nan last": ([1.0, 2.0, np.nan], np.nan, np.nan),
    "infinities": ([-np.inf, -np.inf, -np.inf], -np.inf, -np.inf),
    "negative": ([-3.0, -2.0, -5.0], -2.0, -5.0),
}


@pytest.mark.parametrize("size", [2, 4, 32, 256])
@pytest.mark.parametrize("name", SPECIAL)
def test_maximum_orders_zeros_and_passes_nan(name, size):
    values, top, bottom = SPECIAL[name]
    x = np.resize(np.array(values, np.float32), size)
    if size < 3:
        top, bottom = x.max(), x.min()
        if name == "zeros":
            top, bottom = 0.0, -0.0
    for fn, want in ((LARGEST_NAN, top), (LEAST_NAN, bottom)):
        for data in (x, x[::-1].copy(), np.roll(x, 1)):
            y = np.full(1, 9, np.float32)
            Compiled(_row, ROW, {"C": size, "OP": fn})((1,), data, y, 0, size, 0.0)
            assert np.isnan(y[0]) if np.isnan(want) else y[0] == want
            assert np.isnan(want) or np.signbit(y[0]) == np.signbit(np.float32(want))


def test_maximum_without_propagation_skips_nan_unless_all_are():
    fn = Compiled(_row, ROW, {"C": 128, "OP": LARGEST})
    x, y = np.full(128, np.nan, np.float32), np.zeros(1, np.float32)
    fn((1,), x, y, 0, 128, 0.0)
    assert np.isnan(y[0])
    x[77] = -5
    fn((1,), x, y, 0, 128, 0.0)
    assert y[0] == -5


@kernel
def _arg(x, y, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    o = tl.arange(0, C if AXIS == 0 else R)
    tl.store(y + o, tl.argmax(v, AXIS))
    tl.store(y + (C if AXIS == 0 else R) + o, tl.argmin(v, AXIS))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(4, 64), (64, 4), (16, 16), (2, 256)])
def test_argmax_takes_the_first_of_equals(shape, axis):
    x = np.random.default_rng(0).integers(0, 5, shape).astype(np.float32)
    y = np.zeros((2, shape[1 - axis]), np.int32)
    Compiled(_arg, {"x": "*fp32", "y": "*i32"}, {"R": shape[0], "C": shape[1], "AXIS": axis})((1,), x, y)
    np.testing.assert_array_equal(y[0], x.argmax(axis))
    np.testing.assert_array_equal(y[1], x.argmin(axis))


@kernel
def _pair(a, b, c, d):
    return a + c, tl.minimum(b, d)


@kernel
def _scan2(x, y, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    a, b = tl.associative_scan((v, v * 2), AXIS, _pair, reverse=REVERSE)
    tl.store(y + i * C + j, a)
    tl.store(y + R * C + i * C + j, b)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(4, 64), (64, 4), (1, 8), (2, 2)])
def test_scan(shape, axis, reverse):
    x = np.random.default_rng(0).integers(-99, 99, shape)
    y = np.zeros((2, *shape), np.int64)
    constants = {"R": shape[0], "C": shape[1], "AXIS": axis, "REVERSE": reverse}
    Compiled(_scan2, {"x": "*i64", "y": "*i64"}, constants)((1,), x, y)
    v = np.flip(x, axis) if reverse else x
    a, b = np.cumsum(v, axis), np.minimum.accumulate(v * 2, axis)
    np.testing.assert_array_equal(y[0], np.flip(a, axis) if reverse else a)
    np.testing.assert_array_equal(y[1], np.flip(b, axis) if reverse else b)


@kernel
def _scan_masked(x, y, n, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o, mask=o < n, other=1.0)
    tl.store(y + o, tl.cumsum(v, 0))


@pytest.mark.parametrize("n", [0, 1, 77, 128])
def test_scan_of_floats_is_sequential(n):
    x = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    y = np.zeros(128, np.float32)
    Compiled(_scan_masked, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"C": 128})((1,), x, y, n)
    v, total, want = np.where(np.arange(128) < n, x, np.float32(1)), None, []
    for item in v:
        total = item if total is None else total + item
        want.append(total)
    np.testing.assert_array_equal(y, np.array(want))


@kernel
def _canonical(x, y, n, ROWS: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * n + j, mask=j < n, other=-0.0)
    w = tl.sum(tl.reshape(v, (ROWS, C // 4, 2, 2)), 3)
    w = tl.sum(w, 2)
    STEPS: tl.constexpr = (C // 4).bit_length() - 1
    for s in tl.static_range(STEPS):
        w = tl.sum(tl.reshape(w, (ROWS, 2, C // 8 >> s)), 1)
    tl.store(y + tl.arange(0, ROWS), tl.reshape(w, (ROWS,)))


@pytest.mark.parametrize(("rows", "n"), [(1, 4), (1, 5), (4, 100), (2, 1000), (8, 16), (1, 2048)])
def test_chains_of_pairs_keep_their_tree(rows, n):
    size = max(4, 1 << (n - 1).bit_length())
    x = np.random.default_rng(0).standard_normal((rows, n)).astype(np.float32)
    y = np.zeros(rows, np.float32)
    signature = {"x": "*fp32", "y": "*fp32", "n": "i64"}
    Compiled(_canonical, signature, {"ROWS": rows, "C": size})((1,), x, y, n)
    v = np.full((rows, size), -0.0, np.float32)
    v[:, :n] = x
    for _ in range(2):
        v = v[:, 0::2] + v[:, 1::2]
    while v.shape[1] > 1:
        half = v.shape[1] // 2
        v = v[:, :half] + v[:, half:]
    np.testing.assert_array_equal(y, v[:, 0])


@kernel
def _ordered(x, y, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    tl.store(y + tl.arange(0, C), tl.reduce(v, 0, _last))


def test_columns_are_combined_in_ascending_order():
    x = np.random.default_rng(0).integers(0, 99, (16, 32))
    y = np.zeros(32, np.int64)
    Compiled(_ordered, {"x": "*i64", "y": "*i64"}, {"R": 16, "C": 32})((1,), x, y)
    np.testing.assert_array_equal(y, x[-1])
