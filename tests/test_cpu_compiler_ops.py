"""Every elementwise operation on vectors and on scalars, from TTIR text, with the values that go wrong."""

import re

import ml_dtypes
import numpy as np
import pytest

from cpu_compiler_harness import load
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.cpu.compile import compile_ttir
from nbxtensor.device.artifact import Target

N = 64
NUMPY = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def _text(line: str, ins: list[str], out: str, n: int) -> str:
    """A kernel that applies one operation to `n` elements (0: to scalars); in `line`, T0, T1, .. and R are types."""

    def shaped(t: str) -> str:
        return f"tensor<{n}x{t}>" if n else t

    rows = [f"%r = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>"] if n else []
    args: list[str] = []
    for i, t in enumerate([*ins, out]):
        m = "i8" if t == "i1" else t
        pointer = f"tensor<{n}x!tt.ptr<{m}>>" if n else f"!tt.ptr<{m}>"
        args.append(f"%a{i}: !tt.ptr<{m}>")
        if n:
            rows.append(f"%s{i} = tt.splat %a{i} : !tt.ptr<{m}> -> {pointer}")
            rows.append(f"%p{i} = tt.addptr %s{i}, %r : {pointer}, tensor<{n}xi32>")
        where = f"%p{i}" if n else f"%a{i}"
        if i < len(ins):
            rows.append(f"%m{i} = tt.load {where} : {pointer}")
            if t == "i1":
                rows.append(f"%x{i} = arith.trunci %m{i} : {shaped('i8')} to {shaped('i1')}")
            line = line.replace(f"%x{i}", f"%m{i}") if t != "i1" else line
            line = line.replace(f"T{i}", shaped(t))
        else:
            before, _, line = line.rpartition("; ")
            rows += [before] if before else []
            rows.append("%y = " + line.replace("R", shaped(t)))
            if t == "i1":
                rows.append(f"%z = arith.extui %y : {shaped('i1')} to {shaped('i8')}")
            rows.append(f"tt.store {where}, {'%z' if t == 'i1' else '%y'} : {pointer}")
    body = re.sub(r"C\((\w+)\)", r"dense<\1>" if n else r"\1", "\n".join(rows))
    return f"module {{\ntt.func public @k({', '.join(args)}) {{\n{body}\ntt.return\n}}\n}}\n"


def _run(line: str, ins: list[str], out: str, *data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Results of the vector and of the scalar form."""
    size = len(data[0])
    data = tuple(np.ascontiguousarray(d, NUMPY[t]) for d, t in zip(data, ins, strict=True))
    found = []
    for n in (N, 0):
        binary, _ = compile_ttir(_text(line, ins, out, n), Target("cpu", "x86-64-v3"), "k")
        call = load(binary, "k")
        result = np.zeros(size, NUMPY[out])
        for at in range(0, size, n or 1):
            pointers = np.array([d[at:].ctypes.data for d in (*data, result)], np.int64)
            call(pointers.ctypes.data, 0, 1, 1, 1, 1)
        found.append(result)
    return found[0], found[1]


def _check(line: str, ins: list[str], out: str, want: np.ndarray, *data: np.ndarray) -> None:
    for result in _run(line, ins, out, *data):
        if np.dtype(NUMPY[out]).kind in "iub":
            np.testing.assert_array_equal(result, want)
        else:
            bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[result.itemsize]
            want = want.astype(NUMPY[out])
            nan = np.isnan(want.astype(np.float64))
            np.testing.assert_array_equal(np.isnan(result.astype(np.float64)), nan)
            np.testing.assert_array_equal(result.view(bits)[~nan], want.view(bits)[~nan])


def _ints(elem: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    info = np.iinfo(NUMPY[elem])
    edge = np.array([0, 1, -1, 2, -2, 7, info.min, info.max, info.min + 1, info.max - 1], np.int64)
    small = rng.integers(-9, 9, N)
    wide = rng.integers(info.min, info.max, N * 2 - len(edge) - len(small), dtype=np.int64)
    return rng.permutation(np.concatenate([edge, small, wide])).astype(NUMPY[elem])


def _pairs(elem: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = _ints(elem, 1), _ints(elem, 2)
    info = np.iinfo(NUMPY[elem])
    a[:3], b[:3] = [info.min, 5, info.min], [-1, 0, 0]
    return a, b


def _wrap(values: list[int], elem: str) -> np.ndarray:
    bits = 8 * np.dtype(NUMPY[elem]).itemsize
    wrapped = [(v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for v in values]
    return np.array(wrapped, np.int64).astype(NUMPY[elem])


def _unsigned(v: int, bits: int) -> int:
    return v % (1 << bits)


def _divide(a: int, b: int, bits: int) -> int:
    b = b or 1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


INTEGER = {
    "addi": lambda a, b, w: a + b,
    "subi": lambda a, b, w: a - b,
    "muli": lambda a, b, w: a * b,
    "andi": lambda a, b, w: a & b,
    "ori": lambda a, b, w: a | b,
    "xori": lambda a, b, w: a ^ b,
    "minsi": lambda a, b, w: min(a, b),
    "maxsi": lambda a, b, w: max(a, b),
    "minui": lambda a, b, w: min(_unsigned(a, w), _unsigned(b, w)),
    "maxui": lambda a, b, w: max(_unsigned(a, w), _unsigned(b, w)),
    "divsi": _divide,
    "remsi": lambda a, b, w: a - (b or 1) * _divide(a, b, w),
    "divui": lambda a, b, w: _unsigned(a, w) // (_unsigned(b, w) or 1),
    "remui": lambda a, b, w: _unsigned(a, w) % (_unsigned(b, w) or 1),
    "shli": lambda a, b, w: a << _unsigned(b, w) if _unsigned(b, w) < w else 0,
    "shrui": lambda a, b, w: _unsigned(a, w) >> _unsigned(b, w) if _unsigned(b, w) < w else 0,
    "shrsi": lambda a, b, w: a >> min(_unsigned(b, w), w - 1),
}


@pytest.mark.parametrize("elem", ["i8", "i16", "i32", "i64"])
def test_integer_arithmetic(elem):
    a, b = _pairs(elem)
    width = 8 * a.itemsize
    for name, fn in INTEGER.items():
        want = _wrap([fn(int(x), int(y), width) for x, y in zip(a, b, strict=True)], elem)
        _check(f"arith.{name} %x0, %x1 : T0", [elem, elem], elem, want, a, b)
    want = _wrap(
        [_unsigned(int(x), width) * _unsigned(int(y), width) >> width for x, y in zip(a, b, strict=True)], elem
    )
    _check("tt.mulhiui %x0, %x1 : T0", [elem, elem], elem, want, a, b)
    _check("math.absi %x0 : T0", [elem], elem, _wrap([abs(int(x)) for x in a], elem), a)


@pytest.mark.parametrize("elem", ["i8", "i32", "i64"])
def test_integer_comparison(elem):
    a, b = _pairs(elem)
    b[20:30] = a[20:30]
    u = a.view(f"u{a.itemsize}"), b.view(f"u{a.itemsize}")
    for name, want in {
        "eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b,
        "ult": u[0] < u[1], "ule": u[0] <= u[1], "ugt": u[0] > u[1], "uge": u[0] >= u[1],
    }.items():  # fmt: skip
        _check(f"arith.cmpi {name}, %x0, %x1 : T0", [elem, elem], "i1", want, a, b)


def test_booleans():
    a, b = np.arange(N) % 2 == 0, np.arange(N) % 3 == 0
    for name, want in {"andi": a & b, "ori": a | b, "xori": a ^ b, "addi": a ^ b, "muli": a & b}.items():
        _check(f"arith.{name} %x0, %x1 : T0", ["i1", "i1"], "i1", want, a, b)
    _check("arith.extsi %x0 : T0 to R", ["i1"], "i32", -a.astype(np.int32), a)
    _check("arith.extui %x0 : T0 to R", ["i1"], "i64", a.astype(np.int64), a)
    _check("arith.uitofp %x0 : T0 to R", ["i1"], "f32", a.astype(np.float32), a)
    _check("arith.select %x0, %x1, %x2 : T0, T1", ["i1", "i8", "i8"], "i8", np.where(a, 3, b), a, np.full(N, 3), b)


def test_integer_casts():
    for source in ("i8", "i16", "i32", "i64"):
        a = _ints(source, 3)
        for target in ("i8", "i16", "i32", "i64"):
            size, goal = a.itemsize, np.dtype(NUMPY[target]).itemsize
            if goal > size:
                _check("arith.extsi %x0 : T0 to R", [source], target, a.astype(NUMPY[target]), a)
                _check("arith.extui %x0 : T0 to R", [source], target, a.view(f"u{size}").astype(NUMPY[target]), a)
            elif goal < size:
                _check("arith.trunci %x0 : T0 to R", [source], target, _wrap([int(x) for x in a], target), a)
        _check("arith.trunci %x0 : T0 to R", [source], "i1", a & 1 == 1, a)


def _floats(elem: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    edge = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        -0.5,
        1.5,
        2.5,
        1e-30,
        -1e-30,
        1e30,
        3e9,
        -3e9,
        1e19,
        300.0,
    ]
    values = np.concatenate([edge, rng.standard_normal(N - 8) * 10.0 ** rng.integers(-3, 4, N - 8)])
    tiny = np.float64(np.finfo(NUMPY[elem] if elem != "bf16" else np.float32).smallest_subnormal)
    rest = rng.standard_normal(2 * N - len(values) - 2)
    with np.errstate(over="ignore"):
        return rng.permutation(np.concatenate([values, rest, [tiny, -3 * tiny]])).astype(NUMPY[elem])


FLOAT = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
    "arith.divf": np.divide, "tt.precise_divf": np.divide,
}  # fmt: skip


def _maximum(a, b, *, propagate, sign):
    """max (sign 1) or min (sign -1) with -0.0 below 0.0."""
    a, b = sign * a.astype(np.float64), sign * b.astype(np.float64)
    best = np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)
    if propagate:
        best = np.where(np.isnan(a) | np.isnan(b), np.nan, best)
    else:
        best = np.where(np.isnan(a), b, np.where(np.isnan(b), a, best))
    return sign * best


@pytest.mark.parametrize("elem", ["f32", "f64", "f16", "bf16"])
def test_float_arithmetic(elem):
    a, b = _floats(elem, 1), _floats(elem, 2)
    a[:4], b[:4] = [0.0, -0.0, np.nan, 1.0], [-0.0, 0.0, 1.0, np.nan]
    wide = np.float64 if elem == "f64" else np.float32
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        for name, fn in FLOAT.items():
            _check(f"{name} %x0, %x1 : T0", [elem, elem], elem, fn(x, y), a, b)
        for name, sign, propagate in [
            ("maxnumf", 1, False), ("minnumf", -1, False), ("maximumf", 1, True), ("minimumf", -1, True),
        ]:  # fmt: skip
            want = _maximum(x, y, propagate=propagate, sign=sign)
            _check(f"arith.{name} %x0, %x1 : T0", [elem, elem], elem, want, a, b)
        for name, want in {
            "oeq": x == y, "one": (x < y) | (x > y), "olt": x < y, "ole": x <= y, "ogt": x > y, "oge": x >= y,
            "une": x != y, "uno": np.isnan(x) | np.isnan(y), "ord": ~(np.isnan(x) | np.isnan(y)), "ult": ~(x >= y),
        }.items():  # fmt: skip
            _check(f"arith.cmpf {name}, %x0, %x1 : T0", [elem, elem], "i1", want, a, b)
        for name, want in {
            "arith.negf": -x, "math.absf": np.abs(x), "math.floor": np.floor(x), "math.ceil": np.ceil(x),
            "math.sqrt": np.sqrt(x), "tt.precise_sqrt": np.sqrt(x),
        }.items():  # fmt: skip
            _check(f"{name} %x0 : T0", [elem], elem, want, a)


def test_fma_is_fused_and_nothing_else_is():
    eps = np.float32(2.0**-12)
    a = np.full(N, 1 + eps, np.float32)
    c = -a
    exact = (a.astype(np.float64) * a + c).astype(np.float32)
    rounded = (a * a) + c
    assert (exact != rounded).all()
    _check("math.fma %x0, %x1, %x2 : T0", ["f32"] * 3, "f32", exact, a, a, c)
    text = _text("arith.mulf %x0, %x1 : T0\n%w = arith.addf %y, %m2 : T0", ["f32"] * 3, "f32", N).replace(
        ", %y : ", ", %w : "
    )
    call = load(compile_ttir(text, Target("cpu", "x86-64-v3"), "k")[0], "k")
    out = np.zeros(N, np.float32)
    pointers = np.array([v.ctypes.data for v in (a, a, c, out)])
    call(pointers.ctypes.data, 0, 1, 1, 1, 1)
    np.testing.assert_array_equal(out, rounded)


@pytest.mark.parametrize("constant", ["0x00000000", "0x80000000", "0x7FC00000", "0x3F800000", "0xFF800000"])
def test_maximum_and_minimum_with_constants(constant):
    a = _floats("f32", 9)
    c = np.full_like(a, np.uint32(int(constant, 16)).view(np.float32))
    for name, sign, propagate in [
        ("maxnumf", 1, False), ("minnumf", -1, False), ("maximumf", 1, True), ("minimumf", -1, True),
    ]:  # fmt: skip
        want = _maximum(a, c, propagate=propagate, sign=sign)
        for first, second in (("%x0", "%c"), ("%c", "%x0")):
            head = f"%c = arith.constant C({constant}) : T0; "
            _check(f"{head}arith.{name} {first}, {second} : T0", ["f32"], "f32", want, a)


@pytest.mark.parametrize("whole", [False, True])
def test_clamp(whole):
    a = _floats("f32", 4)
    low, high = np.full_like(a, -1), np.full_like(a, 2)
    line = f"tt.clampf %x0, %x1, %x2, propagateNan = {'all' if whole else 'none'} : T0"
    want = _maximum(_maximum(a, low, propagate=whole, sign=1), high, propagate=whole, sign=-1)
    _check(line, ["f32"] * 3, "f32", want, a, low, high)


def test_float_casts():
    for source in ("f16", "bf16", "f32", "f64"):
        a = _floats(source, 5)
        for target in ("f16", "bf16", "f32", "f64"):
            if source == target or {source, target} == {"f16", "bf16"}:
                continue
            grows = np.dtype(NUMPY[target]).itemsize > a.itemsize
            with np.errstate(all="ignore"):
                want = a.astype(NUMPY[target])
            _check(f"arith.{'extf' if grows else 'truncf'} %x0 : T0 to R", [source], target, want, a)


def test_bfloat16_rounding_is_exhaustive_around_ties():
    high = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16
    bits = (high[:, None] | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).ravel()
    bits = bits[: len(bits) // N * N]
    a = bits.view(np.float32)
    with np.errstate(all="ignore"):
        want = a.astype(ml_dtypes.bfloat16)
    vector, _ = _run("arith.truncf %x0 : T0 to R", ["f32"], "bf16", a)
    nan = np.isnan(a)
    np.testing.assert_array_equal(vector.view(np.uint16)[~nan], want.view(np.uint16)[~nan])
    assert (vector.view(np.uint16)[nan] & 0x7FC0 == 0x7FC0).all()


def test_double_to_half_rounds_once():
    base = np.float64(1.0) + 2.0**-11  # halfway between two f16 numbers
    a = np.array(
        [base, base + 2.0**-40, base - 2.0**-40, -base - 2.0**-40, 65520.0, 65519.999999, 1e-8, 2.0**-25 * (1 + 2**-40)]
    )
    a = np.resize(a, N)
    with np.errstate(all="ignore"):
        _check("arith.truncf %x0 : T0 to R", ["f64"], "f16", a.astype(np.float16), a)
    b = np.resize(np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 - 2.0**-40]), N)
    want = np.resize(np.array([1 + 2.0**-7, 1.0, 1 + 2.0**-6, 1.0]), N)
    _check("arith.truncf %x0 : T0 to R", ["f64"], "bf16", want, b)


def test_float_to_integer_saturates():
    for source in ("f16", "bf16", "f32", "f64"):
        a = _floats(source, 6)
        for target in ("i8", "i16", "i32", "i64"):
            for signed in (True, False):
                kind = np.iinfo(NUMPY[target]) if signed else np.iinfo(f"u{np.dtype(NUMPY[target]).itemsize}")
                values = [0 if np.isnan(v) else min(max(v, kind.min), kind.max) for v in a.astype(np.float64)]
                want = _wrap(
                    [int(v) if abs(v) < 2.0**63 else (int(kind.max) if v > 0 else int(kind.min)) for v in values],
                    target,
                )
                if not signed and target == "i64":
                    want = _wrap(
                        [
                            int(min(max(int(v) if np.isfinite(v) else 2**65 * int(np.sign(v)), 0), 2**64 - 1))
                            if v == v
                            else 0
                            for v in a.astype(np.float64)
                        ],
                        target,
                    )
                _check(f"arith.fpto{'si' if signed else 'ui'} %x0 : T0 to R", [source], target, want, a)


def test_integer_to_float():
    for source in ("i8", "i16", "i32", "i64"):
        a = _ints(source, 7)
        for target in ("f16", "bf16", "f32", "f64"):
            with np.errstate(all="ignore"):
                _check("arith.sitofp %x0 : T0 to R", [source], target, _round(a, target), a)
                unsigned = a.view(f"u{a.itemsize}")
                _check("arith.uitofp %x0 : T0 to R", [source], target, _round(unsigned, target), a)


def _round(a: np.ndarray, target: str) -> np.ndarray:
    """Integers rounded once."""
    if target in ("f32", "f64"):
        return a.astype(NUMPY[target])
    out = []
    for v in a.tolist():
        wide = abs(v)
        bits = {"f16": 11, "bf16": 8}[target]
        shift = max(0, wide.bit_length() - bits)
        kept, rest = wide >> shift, wide & ((1 << shift) - 1)
        half = 1 << (shift - 1) if shift else 1
        kept += rest > half or (rest == half and kept & 1 and shift > 0)
        out.append(float(kept << shift) * (-1 if v < 0 else 1))
    return np.array(out).astype(NUMPY[target])


def test_bitcast():
    a = _floats("f32", 8)
    _check("tt.bitcast %x0 : T0 -> R", ["f32"], "i32", a.view(np.int32), a)
    half = _floats("bf16", 8)
    _check("arith.bitcast %x0 : T0 to R", ["bf16"], "i16", half.view(np.int16), half)
    _check("arith.bitcast %x0 : T0 to R", ["i64"], "f64", _ints("i64", 1).view(np.float64), _ints("i64", 1))


@pytest.mark.parametrize(
    "name", ["math.exp", "math.log", "math.sin", "math.erf", "tt.extern_elementwise", "arith.remf", "tt.unknown"]
)
def test_an_operation_that_is_not_supported_is_named_with_its_line(name):
    text = _text(f'{name} %x0 : T0 loc("kernels.py":12:3)', ["f32"], "f32", N)
    with pytest.raises(CompileError, match=rf"{name}.*kernels.py:12"):
        compile_ttir(text, Target("cpu", "x86-64-v3"), "k")
