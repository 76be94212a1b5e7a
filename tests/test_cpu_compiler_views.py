"""Operations that move elements about: views, gather, cat, sort, large tiles, atomics and histograms."""

from importlib.metadata import version

import numpy as np
import pytest

from cpu_compiler_harness import Compiled, load
from nbxtensor.compiler.cpu.compile import compile_ttir
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Target

# `tl.cat` keeps the order here either way, but Triton 3.6 insists on the permission to reorder, and 3.9 warns of it.
REORDER = tuple(map(int, version("triton").split(".")[:2])) < (3, 9)


@kernel
def _pieces(x, y, C: tl.constexpr):
    o = tl.arange(0, C)
    v = tl.load(x + o)
    a, b = tl.split(tl.reshape(v, (C // 2, 2)))
    j = tl.join(b, a * 2)
    t = tl.trans(tl.reshape(v, (C // 4, 4)))
    g = tl.gather(v, (o * 5) % C, 0)
    c = tl.cat(a, b, can_reorder=REORDER)
    tl.store(y + o, tl.reshape(j, (C,)))
    tl.store(y + C + o, tl.reshape(t, (C,)))
    tl.store(y + 2 * C + o, g)
    tl.store(y + 3 * C + o, c)
    p = tl.permute(tl.reshape(v, (C // 8, 2, 4)), (1, 2, 0))
    tl.store(y + 4 * C + o, tl.reshape(p, (C,)))


@pytest.mark.parametrize("size", [8, 16, 128])
def test_views(size):
    x = np.random.default_rng(0).integers(-99, 99, size).astype(np.int32)
    y = np.zeros((5, size), np.int32)
    Compiled(_pieces, {"x": "*i32", "y": "*i32"}, {"C": size})((1,), x, y)
    a, b = x[0::2], x[1::2]
    np.testing.assert_array_equal(y[0], np.stack([b, a * 2], -1).ravel())
    np.testing.assert_array_equal(y[1], x.reshape(-1, 4).T.ravel())
    np.testing.assert_array_equal(y[2], x[np.arange(size) * 5 % size])
    np.testing.assert_array_equal(y[3], np.concatenate([a, b]))
    np.testing.assert_array_equal(y[4], x.reshape(-1, 2, 4).transpose(1, 2, 0).ravel())


@kernel
def _sort(x, C: tl.constexpr):
    o = tl.arange(0, C)
    tl.store(x + o, tl.sort(tl.load(x + o)))


@pytest.mark.parametrize("size", [2, 16, 256])
def test_sort(size):
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    want = np.sort(x)
    Compiled(_sort, {"x": "*fp32"}, {"C": size})((1,), x)
    np.testing.assert_array_equal(x, want)


@kernel
def _large(x, y, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    v = tl.load(x + i * C + j)
    v = v * v + v
    s = tl.sum(v, 1)
    tl.store(y + j * R + i, v * v * v + v * v + v * s[:, None])


def test_large_tiles_use_large_scratch():
    rows, columns = 64, 2048
    x = np.random.default_rng(0).integers(-3, 3, (rows, columns))
    y = np.zeros((columns, rows), np.int64)
    Compiled(_large, {"x": "*i64", "y": "*i64"}, {"R": rows, "C": columns})((1,), x, y)
    v = x * x + x
    np.testing.assert_array_equal(y, (v**3 + v**2 + v * v.sum(1)[:, None]).T)


@kernel
def _atomics(x, y, z, C: tl.constexpr):
    o = tl.arange(0, C)
    m = o % 3 != 0
    old = tl.atomic_add(x + o // 4, o, mask=m)
    tl.store(y + o, old)
    tl.atomic_max(x + 100 + o * 0, o)
    tl.atomic_min(x + 101 + o * 0, -o)
    tl.atomic_or(x + 102 + o * 0, o)
    tl.atomic_xchg(x + 103, tl.sum(o, 0))
    tl.store(y + C + o, tl.atomic_cas(x + 104 + o % 2, o, o + 2))
    tl.store(z + tl.arange(0, 16), tl.histogram(o % 7, 16))


def test_atomics_and_histogram():
    size = 64
    x, y, z = np.zeros(110, np.int32), np.zeros(2 * size, np.int32), np.zeros(16, np.int32)
    Compiled(_atomics, dict.fromkeys("xyz", "*i32"), {"C": size})((1,), x, y, z)
    o = np.arange(size)
    want, old = np.zeros(110, np.int32), np.zeros(2 * size, np.int32)
    for i in o[o % 3 != 0]:
        old[i] = want[i // 4]
        want[i // 4] += i
    want[100:104] = 63, -63, 63, o.sum()
    for i in o:
        old[size + i] = want[104 + i % 2]
        if want[104 + i % 2] == i:
            want[104 + i % 2] = i + 2
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(y[o[o % 3 != 0]], old[o[o % 3 != 0]])
    np.testing.assert_array_equal(y[size:], old[size:])
    np.testing.assert_array_equal(z, np.bincount(o % 7, minlength=16))


def test_cat_as_its_operation():
    half = np.arange(32, dtype=np.int32)
    text = """module {
tt.func public @k(%a: !tt.ptr<i32>, %b: !tt.ptr<i32>) {
%r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
%s = tt.splat %a : !tt.ptr<i32> -> tensor<32x!tt.ptr<i32>>
%p = tt.addptr %s, %r : tensor<32x!tt.ptr<i32>>, tensor<32xi32>
%x = tt.load %p : tensor<32x!tt.ptr<i32>>
%y = arith.muli %x, %x : tensor<32xi32>
%c = tt.cat %x, %y : tensor<32xi32> -> tensor<64xi32>
%t = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
%u = tt.splat %b : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
%q = tt.addptr %u, %t : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
tt.store %q, %c : tensor<64x!tt.ptr<i32>>
tt.return
}
}
"""
    out = np.zeros(64, np.int32)
    call = load(compile_ttir(text, Target("cpu", "x86-64-v3"), "k")[0], "k")
    pointers = np.array([half.ctypes.data, out.ctypes.data])
    call(pointers.ctypes.data, 0, 1, 1, 1, 1)
    np.testing.assert_array_equal(out, np.concatenate([half, half * half]))
