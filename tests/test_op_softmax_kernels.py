"""The kernels of softmax: the same bits from all of them, candidates that compile without a stack, no writes beside."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.launch import Plan
from nbxtensor.kernel.rows import Rows, rows_of
from nbxtensor.ops import softmax as op
from nbxtensor.ops._softmax_plans import Case, Shifted, Split, launches
from nbxtensor.ops._softmax_settings import Setting, candidates
from rows_helpers import bits

INF, NAN = np.inf, np.nan
FUNCTIONS = {"softmax": nbx.nn.softmax, "log_softmax": nbx.nn.log_softmax}
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
Array = np.ndarray[Any, Any]


def hard_rows(n: int) -> Array:
    """Rows whose largest element is far from what their start or a part of them shows, and rows with one winner."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((9, n)) * 5
    x[1, n - 1] = 40.0
    x[2] += np.linspace(-200, 200, n)
    x[3, : n // 2] = -INF
    x[4] = x[4] / 5 + 34.5
    x[5] = 2.5
    x[6] *= 100
    x[7, n - 2] = 5e4
    x[8, n // 2] = NAN
    return x


def settings(n: int, gpu: bool) -> list[Setting]:
    """One setting of each kind of kernel that can take rows of `n`."""
    warps = 8 if gpu else 1
    found = [Setting(1, warps), Setting(2, warps)] if n <= 8192 else []
    if gpu and 16 <= n <= 2048:
        found += [Setting(8, 1, fold=2), Setting(8, 4, fold=4)]
    if n > 2048:
        found.append(Setting(1, warps, "looped", unroll=2, held=1, stages=3))
        found.append(Setting(1, 1, "split", unroll=2, width=64, steps=4, stages=3))
        found.append(Setting(1, 1, "split", unroll=2, width=64, writers=warps, run=16))
    return [*found, Setting(2, warps, "looped")]


@pytest.mark.parametrize(
    ("name", "dtype", "n"),
    [
        ("softmax", "float32", 2500),
        ("log_softmax", "float32", 2500),
        ("log_softmax", "float32", 70_000),
        ("softmax", "bfloat16", 2500),
        ("log_softmax", "float64", 2500),
    ],
)
def test_all_kernels_give_the_same_bits(name: str, dtype: str, n: int, device: str) -> None:
    x = hard_rows(n).astype(KINDS[dtype])
    t = nbx.asarray(x, device=device)
    want = bits(FUNCTIONS[name](t))
    found = settings(n, device != "cpu")
    if device == "cpu" and dtype != "float32":  # each kernel in one of the two
        found = found[2 + (dtype == "bfloat16") :: 2]
    for setting in found:
        got = op.run(name, t, -1, False, None, setting)
        np.testing.assert_array_equal(bits(got), want, err_msg=str(setting))
    alone = FUNCTIONS[name](t[4])
    np.testing.assert_array_equal(bits(alone), want[4])


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "n"), [("float32", 128), ("bfloat16", 100), ("bfloat16", 50_257), ("float32", 5001)])
def test_kernels_that_only_gpus_take(name: str, dtype: str, n: int, device: str) -> None:
    x = hard_rows(n).astype(KINDS[dtype])
    want = bits(FUNCTIONS[name](nbx.asarray(x)))
    t = nbx.asarray(x, device=device)
    found = settings(n, True) if n < 5000 else [Setting(1, 8, "looped", unroll=u, held=2, stages=3) for u in (2, 4)]
    for setting in found:
        got = op.run(name, t, -1, False, None, setting)
        np.testing.assert_array_equal(bits(got), want, err_msg=str(setting))
        own = nbx.asarray(x.copy(), device=device)
        op.run(name, own, -1, False, own, setting)
        np.testing.assert_array_equal(bits(own), want, err_msg=f"{setting} in place")


@pytest.mark.parametrize(("name", "dtype"), [("softmax", "float32"), ("log_softmax", "bfloat16")])
def test_blocks_whose_ranges_lie_apart(name: str, dtype: str, device: str) -> None:
    """Programs that write scale what other terms gave, or sum it again where elements are too low for that."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((16, 70_000)) * rng.choice([1, 5, 10], (16, 1))
    for r, row in enumerate(x):
        for begin in rng.integers(0, row.size, 2 * r):
            row[begin : begin + rng.choice([1, 64, 700, 3000])] += rng.choice([-300, -100, -50, 40, 60, 90])
        row += (0, 0, -260, 5000)[r % 4]
    x[5::6, ::999] = -INF
    x[6::7, 777] = 900.0
    t = nbx.asarray(x.astype(KINDS[dtype]), device=device)
    want = bits(FUNCTIONS[name](t))
    setting = Setting(1, 1, "split", unroll=2, width=128, steps=4, run=32)
    np.testing.assert_array_equal(bits(op.run(name, t, -1, False, None, setting)), want)


def test_in_place_gives_the_same_bits_from_all_kernels(device: str) -> None:
    x = hard_rows(2500).astype(np.float32)
    want = bits(nbx.nn.log_softmax(nbx.asarray(x, device=device)))
    for setting in settings(2500, device != "cpu"):
        t = nbx.asarray(x.copy(), device=device)
        assert op.run("log_softmax", t, -1, False, t, setting) is t
        np.testing.assert_array_equal(bits(t), want, err_msg=str(setting))


def test_columns_split_over_programs(device: str) -> None:
    x = hard_rows(2500).astype(np.float32)
    want = bits(nbx.nn.log_softmax(nbx.asarray(x, device=device)))
    columns = nbx.asarray(x.T.copy(), device=device)
    got = op.run("log_softmax", columns, 0, False, None, Setting(4, 1, "split", unroll=1, width=64))
    np.testing.assert_array_equal(bits(got), want.T)
    deep = nbx.asarray(np.stack([x, x[::-1]]), device=device)
    got = op.run("log_softmax", deep, -1, False, None, Setting(2, 1, "split", unroll=2, width=64))
    np.testing.assert_array_equal(bits(got), np.stack([want, want[::-1]]))


@pytest.mark.parametrize(
    ("name", "dtype", "n"),
    [
        ("softmax", "float32", 2),
        ("log_softmax", "float32", 5),
        ("softmax", "bfloat16", 21),
        ("log_softmax", "float16", 32),
        ("log_softmax", "float64", 9),
        ("softmax", "float32", 33),
    ],
)
def test_columns_in_a_thread(name: str, dtype: str, n: int, device: str) -> None:
    """Rows across memory, as many as leave the last block half empty, aligned or not, in place too."""
    x = np.tile(hard_rows(n), (5, 1)).astype(KINDS[dtype])
    x[4], x[13, 1:] = -INF, -INF
    for safe in (False, True):
        want = bits(FUNCTIONS[name](nbx.asarray(x, device=device), safe=safe))
        wide = nbx.asarray(np.concatenate([x[:3], x]).T.copy(), device=device)
        for columns, right in ((nbx.asarray(x.T.copy(), device=device), want), (wide[:, 3:], want)):
            setting = Setting(16, 1, "columns")
            np.testing.assert_array_equal(bits(op.run(name, columns, 0, safe, None, setting)), right.T)
            own = columns.copy()
            op.run(name, own, 0, safe, own, setting)
            np.testing.assert_array_equal(bits(own), right.T)


@pytest.mark.parametrize(("form", "axis"), [("held", 1), ("columns", 0), ("looped", 0), ("split", 1)])
def test_nothing_beyond_the_result_is_written(form: str, axis: int, device: str) -> None:
    n = 2500
    warps = 1 if device == "cpu" else 4
    setting = Setting(1, 1, "split", unroll=1, width=64) if form == "split" else Setting(2, warps, form)  # pyright: ignore[reportArgumentType]
    n = 25 if form == "columns" else n
    shape = (3, n) if axis else (n, 3)
    buffer = nbx.asarray(np.full((shape[0] + 2, shape[1] + 2), 7.0, np.float32), device=device)
    x = nbx.asarray(np.zeros(shape, np.float32), device=device)
    op.run("softmax", x, axis, False, buffer[1:-1, 1:-1], setting)
    edges = buffer.numpy().copy()
    np.testing.assert_allclose(edges[1:-1, 1:-1], 1 / n, rtol=1e-6)
    edges[1:-1, 1:-1] = 7.0
    assert (edges == 7.0).all()


def test_poisoned_memory_does_not_show(device: str) -> None:
    x = nbx.asarray(hard_rows(2500).astype(np.float32), device=device)
    want = bits(nbx.nn.log_softmax(x))
    for setting in settings(2500, device != "cpu"):
        out = nbx.asarray(np.full((9, 2500), NAN, np.float32), device=device)
        op.run("log_softmax", x, -1, False, out, setting)
        np.testing.assert_array_equal(bits(out), want, err_msg=str(setting))


# Candidates

SHAPES = (
    (4096, 3),
    (4096, 8),
    (4096, 32),
    (4096, 1000),
    (1024, 4096),
    (80, 32_768),
    (80, 65_536),
    (512, 151_936),
    (1, 151_936),
    (32, 151_936),
    (64, 65_536),
    (80, 50_257),
)


def rows(shape: tuple[int, int], axis: int = 1) -> Rows:
    return rows_of(shape, (axis,), ((shape[1], 1), (shape[1], 1)))


def plans(name: str, shape: tuple[int, int], dtype: str, arch: str, setting: Setting, axis: int = 1) -> list[Plan]:
    case = Case(name, rows(shape, axis), dtypes.dtype(dtype), get(f"null:{arch}"), False, True)
    made = launches(case, setting)
    if isinstance(made, Split):
        return [plan for plan in made.plans if plan is not None]
    plan = made.plan if isinstance(made, Shifted) else made
    assert isinstance(plan, Plan)
    return [plan]


def assert_no_stack(wanted: list[tuple[str, tuple[int, int], str, str, Setting]]) -> None:
    found = [(one, plan) for one in wanted for plan in plans(*one)]
    artifacts = compile_many([plan.job() for _, plan in found])
    spilled = [f"{one} {a.resources}" for (one, _), a in zip(found, artifacts, strict=True) if a.resources.stack_bytes]
    assert not spilled, "\n".join(spilled)


def every_candidate(arch: str) -> list[tuple[str, tuple[int, int], str, str, Setting]]:
    profile = get(f"null:{arch}").profile
    return [
        (name, shape, dtype, arch, setting)
        for name in FUNCTIONS
        for dtype in KINDS
        for shape in SHAPES
        for setting in candidates(rows(shape), profile, dtypes.dtype(dtype).itemsize, name == "log_softmax")
    ]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_first_candidates_have_no_stack(arch: str) -> None:
    first = {one[:3]: one for one in reversed(every_candidate(arch))}
    chosen = [("softmax", (512, 151_936), "bfloat16"), ("log_softmax", (80, 32_768), "float32")]
    chosen.append(("softmax", (32, 151_936), "float32"))
    assert_no_stack([first[name, shape, dtype] for name, shape, dtype in (chosen if arch == "sm_90" else chosen[1:])])


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_candidate_has_a_stack(arch: str) -> None:
    assert_no_stack(every_candidate(arch))


def test_candidates_respect_the_profile() -> None:
    gpu = Profile("sm_90", 32, 255, 232_448, 65_536, 64, 4.2e12, frozenset({"float32"}))
    small = Profile("toy", 32, 64, 16_384, 4096, 32, 0.0, frozenset({"float32"}))
    for shape in SHAPES:
        found = candidates(rows(shape), gpu)
        assert 0 < len(set(found)) == len(found) <= 4
        for setting in candidates(rows(shape), small):
            assert setting.kept * min(2048, shape[1]) <= 4096
            if setting.form == "held":
                assert setting.kept * shape[1] // (setting.num_warps * 32) <= 64
    tight = replace(gpu, shared_bytes=65_536)
    assert any(setting.stages > 1 for setting in candidates(rows((1024, 65_536)), gpu))
    assert all(setting.stages == 1 for setting in candidates(rows((1024, 65_536)), tight))
    tiny = Profile("toy", 32, 255, 16_384, 512, 32, 0.0, frozenset({"float32"}))
    with pytest.raises(CompileError, match="no setting"):
        candidates(rows((64, 1024)), tiny)


def test_long_rows_are_split_where_programs_are_few() -> None:
    gpu = Profile("sm_90", 32, 255, 232_448, 65_536, 64, 4.2e12, frozenset({"float32"}))
    assert candidates(rows((1, 151_936)), gpu)[0].form == "split"
    assert candidates(rows((2048, 151_936)), gpu)[0].form == "looped"
    assert candidates(rows((4096, 4096)), gpu)[0].form == "held"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_start_of_a_row_whose_end_is_2_31_away(name: str, device: str) -> None:
    """The first program of the last launch, which must not take the distance to the row's end in 32 bits."""
    here = get(device)
    x = nbx.asarray(np.linspace(-3, 0, 2048, dtype=np.float32), device=here)
    sums = np.zeros((2**15 + 1, 3), np.float32)
    sums[0] = (8.0, 0.0, 7.0)
    handed = nbx.asarray(sums, device=here)
    results: list[Array] = []
    for n in (2053, 2**31 + 5):
        out = nbx.full((2048,), 77.0, dtype=nbx.float32, device=here)
        case = Case(name, rows((1, n)), dtypes.float32, here, False, True)
        _, _, write = Split._three(case, Setting(1, 1, "split", unroll=1, width=64))  # pyright: ignore[reportPrivateUsage]
        write.grid = (1, 1, 1)
        write.run(x.ptr, handed.ptr, out.ptr)
        results.append(bits(out))
    np.testing.assert_array_equal(results[0], results[1])
    assert (np.diff(results[0].view(np.float32)) > 0).all()
