"""Proof of settings: right ones pass, planted wrong ones are caught, each for its own reason."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from certify_ops import CANDIDATES, SCALE, TOTAL, Setting, declared
from nbxtensor.base import dtypes
from nbxtensor.certify import bounds
from nbxtensor.certify.census import Census, Entry
from nbxtensor.certify.compiling import compiled
from nbxtensor.certify.contents import FILLS, content
from nbxtensor.certify.memory import poisoned
from nbxtensor.certify.prove import Proof, Prover
from nbxtensor.certify.shapes import usual_calls
from nbxtensor.certify.variants import cases
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device import get
from nbxtensor.device.artifact import Options
from nbxtensor.kernel.call_text import Example, Spec, call_of, plain
from nbxtensor.kernel.declare import operators


@pytest.fixture(autouse=True)
def _declared(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))
    with declared():
        yield


def entry_of(device: str, example: Example) -> Entry:
    census = Census(get(device))
    census.add(example)
    return next(iter(census.entries.values()))


def proofs(device: str, name: str, *settings: Setting, shape: tuple[int, ...] = (1000,)) -> list[Proof]:
    CANDIDATES[name] = list(settings)
    prover = Prover(entry_of(device, Example(name, (plain(shape, dtypes.float32),))), get(device))
    prover.compile()
    prover.prove()
    return prover.proofs


# Planted faults


def test_right_settings_are_proved(device: str) -> None:
    found = proofs(device, SCALE, Setting(256), Setting(64), Setting(128))
    assert [p.reason for p in found] == ["", "", ""]
    assert all(p.runs > 10 and p.error == 0 for p in found)
    artifacts = [set(p.artifacts) for p in found]
    assert all(artifacts)
    assert not artifacts[0] & artifacts[1]


def test_half_the_stores_left_out(device: str) -> None:
    default, wrong = proofs(device, SCALE, Setting(256), Setting(128, "half the stores"))
    assert not default.reason
    assert "other bits than the default" in wrong.reason
    assert not wrong.artifacts
    (alone,) = proofs(device, SCALE, Setting(128, "half the stores"))
    assert "times the allowed error" in alone.reason  # the default is held against the reference


def test_a_dropped_mask_writes_beyond_the_result(device: str) -> None:
    default, wrong = proofs(device, SCALE, Setting(256), Setting(128, "dropped mask"))
    assert not default.reason
    assert "bytes beyond a block" in wrong.reason


def test_a_dropped_mask_reads_beyond_the_operand(device: str) -> None:
    default, wrong = proofs(device, SCALE, Setting(256), Setting(128, "reads beyond"))
    assert not default.reason
    assert "other bits than the default" in wrong.reason


def test_an_operand_that_is_written(device: str) -> None:
    _, wrong = proofs(device, SCALE, Setting(256), Setting(128, "writes its operand"))
    assert "operand 0 was written" in wrong.reason


def test_another_order_is_right_but_has_other_bits(device: str) -> None:
    shape = (3, 1000)
    (alone,) = proofs(device, TOTAL, Setting(16, "another order"), shape=shape)
    assert not alone.reason  # within the bound
    default, wrong = proofs(device, TOTAL, Setting(16), Setting(16, "another order"), shape=shape)
    assert not default.reason
    assert "other bits than the default" in wrong.reason


def test_a_wrong_default_throws_out_all(device: str) -> None:
    default, other = proofs(device, SCALE, Setting(256, "scale"), Setting(128))
    assert "times the allowed error" in default.reason
    assert other.reason == "the default is not proved"


@pytest.mark.gpu
def test_bits_of_the_cpu_are_asked_for(device: str) -> None:
    prover = Prover(entry_of(device, Example("exp", (plain((5000,), dtypes.float32),))), get(device), [])
    assert prover.bits == "default cpu"


# Compiling


@kernel
def broken_kernel(x, N: tl.constexpr):
    tl.store(x, tl.no_such_function(N))


@kernel
def spilling_kernel(x, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    w = tl.load(x + N + i)
    for _ in range(10):
        total = tl.max(v * w, axis=0)
        v = tl.fma(v, w, total)
        w = tl.fma(w, v, total)
    tl.store(x + i, v + w)


def _job(fn: Any, arch: str, n: int) -> Job:
    target = get(f"null:{arch}").target
    return Job(fn, (("x", "*fp32"),), (("N", n),), Options(num_warps=1), frozenset(), target)


def test_what_cannot_be_compiled_does_not_stop_the_rest() -> None:
    good, bad = _job(spilling_kernel, "x86-64-v3", 64), _job(broken_kernel, "x86-64-v3", 64)
    done = compiled([bad, good])
    assert isinstance(done[bad.key], str)
    assert "no_such_function" in str(done[bad.key])
    assert not isinstance(done[good.key], str)


def test_a_setting_that_spills_is_thrown_out_before_it_runs() -> None:
    from nbxtensor.certify.prove import too_much

    job = _job(spilling_kernel, "sm_90", 8192)
    done = compiled([job])
    profile = get("null:sm_90").profile
    assert "on a stack" in too_much([job], done, profile, declared=False)
    assert not too_much([job], done, profile, declared=True)


def test_a_compile_that_takes_too_long_is_ended(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "cache"))
    job = _job(spilling_kernel, "sm_90", 4096)
    assert compiled([job], patience=0.05) == {job.key: "was not compiled within 0.05 s"}


# Calls and contents


@pytest.mark.parametrize("fill", FILLS)
def test_contents_have_the_shapes_and_dtypes_of_their_operands(fill: str) -> None:
    for example in usual_calls(gpu=False):
        if example.operator in operators and sum(s.size for s in example.specs) < 1 << 17:
            for spec, array in zip(example.specs, content(example, fill, 0), strict=True):
                assert array.shape == spec.shape
                assert array.dtype == spec.dtype.numpy


def test_poison_is_seen_in_results_and_around_them(device: str) -> None:
    where = get(device)
    with poisoned(where) as fences:
        fences.begin(0xAA)
        inside = nbx.empty((4,), nbx.uint8, where)
        assert (inside.numpy() == 0xAA).all()
        assert fences.broken() == ""
        where.copy_from_host(inside.ptr + 4, memoryview(b"\0"))
        assert "1 bytes beyond a block of 4" in fences.broken()
    assert nbx.empty((4,), nbx.uint8, where).buffer.__class__.__name__ != "Fenced"


def test_calls_survive_as_text() -> None:
    axes = Spec((4, 6), (1, 4), dtypes.bfloat16)
    examples = [
        Example("softmax", (axes,), (("axis", 0), ("safe", True))),
        Example("concat", ((plain((2, 3), dtypes.int8), plain((), dtypes.float32)),), ()),
        Example("astype", (axes, dtypes.int64), ()),
        Example("gelu", (axes,), (("approximate", "tanh"),)),
        Example("full", ((2, 3),), (("fill_value", 1.5), ("dtype", dtypes.float32))),
    ]
    for example in examples:
        assert call_of(str(example)) == example


def test_overhanging_and_strided_calls_share_the_key_of_the_example() -> None:
    entry = entry_of("null:sm_90", Example("softmax", (plain((65536, 1024), dtypes.float32),)))
    found = cases(entry.key, entry.candidates, entry.examples[0], get("null:sm_90"))
    what = {case.what for case in found}
    assert {"fewer programs", "as given", "overhanging", "sliced", "in place"} <= what
    assert found[0].example.specs[0].size < 1 << 18
    assert {len(c.example.specs[0].shape) for c in found} == {2}


def test_errors_are_parts_of_the_bound() -> None:
    example = Example("exp", (plain((3,), dtypes.float32),))
    want = np.array([1.0, np.inf, np.nan])
    assert bounds.error(example, [want], want, want.astype(np.float32)) == 0
    off = np.array([1 + 2.0**-23, np.inf, np.nan], np.float32)
    assert bounds.error(example, [want], want, off) == 1.0
    assert bounds.error(example, [want], want, np.array([1, 3e38, np.nan], np.float32)) == np.inf
    assert bounds.error(example, [want], want, np.array([1, np.inf, 0], np.float32)) == np.inf
    exact = Example("abs", (plain((1,), dtypes.float32),))
    assert bounds.error(exact, [], np.array([1.0]), np.array([1 + 2.0**-23], np.float32)) == np.inf


SMALL = {
    "softmax": (40, 300), "log_softmax": (40, 300), "layer_norm": (40, 300), "sum": (40, 300), "prod": (40, 300),
    "cumulative_sum": (40, 300), "cumulative_prod": (40, 300), "max": (40, 300), "argmax": (40, 300),
    "sort": (40, 300), "topk": (40, 300), "exp": (5000,), "add": (5000,), "where": (5000,), "pow": (5000,),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_declared_defaults_are_proved(name: str, dtype: str, device: str) -> None:
    from nbxtensor.certify.asked import example_of

    census = Census(get(device))
    census.add(example_of(name, [SMALL[name]], dtypes.dtype(dtype)))
    for entry in census.entries.values():
        prover = Prover(entry, get(device), [])
        prover.compile()
        prover.prove()
        assert not prover.proofs[0].reason
        assert prover.proofs[0].error <= 1


@pytest.mark.parametrize(
    "call",
    [
        "exp(int8[64])",  # NumPy computes it in float16
        "sigmoid(uint8[9])",
        "exp(bool[7])",
        "divide(int8[5], int8[5])",
        "reciprocal(int32[5])",  # and this without a rest
        "pow(int32[64], -1)",  # and refuses this
        "pow(int8[64], int8[64])",
        "gelu(float64[4000])",  # its argument is rounded before erfc
        "prod(int8[10], dtype=float32)",
        "add(float32[64], float32[64], out=float32[64])",
        "exp(float32[8, 8], out=float32[8:1, 8:8])",
    ],
)
def test_calls_that_samples_do_not_show_are_proved(call: str) -> None:
    prover = Prover(entry_of("cpu", call_of(call)), get("cpu"))
    prover.compile()
    prover.prove()
    assert [p.reason for p in prover.proofs] == [""] * len(prover.proofs)
    assert prover.proofs[0].error is not None
