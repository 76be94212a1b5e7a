"""The memory of calls that are proved: operands that overlap themselves, and calls that no memory holds."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbxtensor.base import dtypes
from nbxtensor.base.errors import OutOfMemoryError
from nbxtensor.certify import calls, needs, prove, timing
from nbxtensor.certify.calls import values_for
from nbxtensor.certify.census import Census, Entry
from nbxtensor.certify.memory import host_memory, settled
from nbxtensor.certify.needs import footprint, require
from nbxtensor.certify.prove import Prover
from nbxtensor.certify.run import Certifier
from nbxtensor.certify.variants import Case, cases
from nbxtensor.certify.verify import verify
from nbxtensor.device import get
from nbxtensor.kernel.call_text import Example, Spec, call_of, plain
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tuning import tables

F = dtypes.float32
OVERLAPPING = (
    "float32[64:0, 10:1]",
    "float32[64:1, 10:1]",
    "float32[64:-1, 10:1]",
    "float32[64:2, 10:3]",
    "float32[5:3, 64:0, 10:-1]",
    "float32[30:1, 20:0]",
    "float32[7:1, 64:1, 10:1]",
)


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))
    tables.forget()
    forget_plans()
    yield
    tables.forget()
    forget_plans()


def spec_of(text: str) -> Spec:
    (spec,) = call_of(f"exp({text})").specs
    return spec


def entry_of(example: Example, device: str = "cpu") -> Entry:
    census = Census(get(device))
    census.add(example)
    return next(iter(census.entries.values()))


# Operands that overlap themselves


def values_in(memory: np.ndarray, spec: Spec, shift: int) -> np.ndarray:
    """The values that an operand has, taken out one by one."""
    low, _ = spec.span
    found = np.empty(spec.shape, memory.dtype)
    for at in np.ndindex(spec.shape):
        found[at] = memory[shift - low + sum(i * s for i, s in zip(at, spec.strides, strict=True))]
    return found


@pytest.mark.parametrize(
    "text", [*OVERLAPPING, "float32[6:-5, 5:1]", "float32[6:1, 5:7]", "float32[()]", "float32[3:1, 0:1, 2:1]"]
)
def test_values_are_those_that_memory_holds(text: str) -> None:
    spec = spec_of(text)
    array = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    found = settled(spec, array)
    for shift in (0, 1):
        np.testing.assert_array_equal(values_in(host_memory(spec, found, shift, 0xFF), spec, shift), found)
    if text not in OVERLAPPING:
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("text", OVERLAPPING)
@pytest.mark.parametrize("name", ["exp", "softmax", "cumulative_sum", "sort"])
def test_defaults_are_proved_on_overlapping_operands(name: str, text: str, device: str) -> None:
    axis = () if name == "exp" else (("axis", -1),)
    prover = Prover(entry_of(Example(name, (spec_of(text),), axis), device), get(device), [])
    prover.compile()
    prover.prove()
    assert prover.proofs[0].reason == ""
    assert prover.proofs[0].runs > 10


def test_overlapping_operands_stay_so_in_other_sizes() -> None:
    example = Example("softmax", (spec_of("float32[64:1, 100:1]"),), (("axis", -1),))
    entry = entry_of(example)
    found = [c.example.specs[0] for c in cases(entry.key, entry.candidates, example, get("cpu"))]
    overhanging = [s for s in found if s.shape != (64, 100)]
    assert overhanging
    assert {s.strides for s in overhanging} == {(1, 1)}


@pytest.mark.parametrize(
    "text",
    [
        "float32[70:40, 30:2]",
        "float32[70:-30, 30:1]",
        "float32[70:0, 30:1]",
        "float32[70:1, 30:1]",
        "float32[70:1, 30:70]",
    ],
)
def test_huge_calls_have_all_of_their_memory(text: str, device: str) -> None:
    spec = spec_of(text)
    low, high = spec.span
    (memory,) = values_for(Case(Example("exp", (spec,)), "as given", "huge"), "normal")
    assert memory.shape == (high - low,)
    (tensor,) = timing.operands_of(Example("exp", (spec,)), get(device))
    assert tensor.buffer.nbytes == memory.nbytes
    np.testing.assert_array_equal(tensor.numpy(), values_in(memory, spec, 0))


# Calls that no memory holds


def test_footprints_count_results_and_workspaces() -> None:
    outer = footprint(Example("add", (plain((1000, 1), F), plain((1, 500), F))), get("cpu"))
    assert (outer.elements, outer.operands, outer.results) == (500_000, 6000, 2_000_000)
    assert outer.device > 2_006_000
    assert footprint(Example("full", ((10, 10), 1.0)), get("cpu")).elements == 100
    wide = footprint(Example("exp", (Spec((1000, 1000), (0, 1), F),)), get("cpu"))
    assert (wide.elements, wide.operands) == (1_000_000, 4000)


def test_calls_with_large_results_are_large() -> None:
    example = Example("add", (plain((1 << 14, 1), F), plain((1, 1 << 13), F)))
    entry = entry_of(example)
    small, *_ = found = cases(entry.key, entry.candidates, example, get("cpu"))
    assert (small.what, small.size) == ("fewer programs", "light")
    assert [c.size for c in found if c.what == "as given"] == ["huge"]


BEYOND = {
    "an operand": Example("exp", (plain((1 << 40,), F),)),
    "a broadcast operand": Example("exp", (Spec((1 << 20, 1 << 20), (0, 1), F),)),
    "a result": Example("add", (plain((1 << 20, 1), F), plain((1, 1 << 20), F))),
    "nothing but a result": Example("arange", (1 << 40,)),
    "more than addresses": Example("exp", (plain((1 << 70,), F),)),
}


@pytest.fixture
def nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*arguments: Any) -> Any:
        raise AssertionError("values were drawn")

    monkeypatch.setattr(calls, "content", drawn)


MESSAGE = (
    r"certify: .* has too little memory for {}\(.*: [\d,]+ bytes needed, [\d,]+ of [\d,]+ free; certify fewer rows"
)


@pytest.mark.parametrize("what", BEYOND)
def test_what_memory_cannot_hold_is_refused_before_it_is_drawn(
    what: str, device: str, tmp_path: Path, nothing_drawn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = BEYOND[what]
    entry = entry_of(example, device)
    monkeypatch.setattr(Prover, "compile", lambda self: pytest.fail("kernels were compiled"))
    with pytest.raises(OutOfMemoryError, match=MESSAGE.format(example.operator)):
        Prover(entry, get(device), []).require_memory()
    certifier = Certifier(get(device), tmp_path / "out")
    outcome = certifier.certify(certifier.prepare(entry))
    assert outcome.verdict == "refused"
    assert "too little memory" in outcome.thrown_out[0][1]
    assert not (tmp_path / "out").exists()


def test_calls_that_are_only_timed_must_fit_too(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prover, "require_memory", lambda self: None)
    monkeypatch.setattr(Prover, "compile", lambda self: pytest.fail("kernels were compiled"))
    certifier = Certifier(get(device), tmp_path / "out")
    assert certifier.certify(certifier.prepare(entry_of(BEYOND["a result"], device))).verdict == "refused"


def test_a_certificate_whose_calls_do_not_fit_is_skipped(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certifier = Certifier(get(device), tmp_path / "out")
    one = certifier.certify(certifier.prepare(entry_of(Example("exp", (plain((777,), F),)), device))).certificate
    assert one is not None
    assert verify(one, get(device)).verdict == "proved"
    monkeypatch.setattr(needs, "memory_info", lambda: (1000, 2000))
    found = verify(one, get(device))
    assert (found.verdict, found.runs) == ("skipped", 0)
    assert "1,000 of 2,000 free" in found.reason


def test_memory_that_gives_out_all_the_same_throws_a_setting_out(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: Any) -> Any:
        raise MemoryError

    prover = Prover(entry_of(Example("exp", (plain((777,), F),)), device), get(device), [])
    monkeypatch.setattr(calls, "content", exhausted)
    prover.prove()
    assert prover.proofs[0].reason == "memory was used up"


def _peak(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(40, 300), (1 << 11, 1 << 9)])
def test_no_more_is_counted_than_a_proof_takes(shape: tuple[int, ...]) -> None:
    """What fits is not refused. On the CPU NumPy holds all but the results, which stay in memory of the device."""
    cpu = get("cpu")
    prover = Prover(entry_of(Example("softmax", (plain(shape, F),), (("axis", -1),))), cpu, [])
    prover.compile()
    trials = [t for case in prover.cases for t in prove.trials(case, gpu=False)]
    needed = [(t.case.size, footprint(t.case.example, cpu)) for t in trials]
    counted = sum(f.operands for _, f in needed) + max(f.operands + f.wide for size, f in needed if size != "huge")
    assert counted < _peak(prover.prove) < 4 * counted


def test_a_small_call_is_not_refused() -> None:
    require([(Example("exp", (plain((1000,), F),)), "light")], get("cpu"))
