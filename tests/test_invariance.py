"""A row gives the same bits alone and among others: a short form of `python -m tools.invariance`, and its own tests."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tools.invariance import __main__ as invariance
from tools.invariance.cases import NO_ROWS, QUICK, Case, Extent, Part, all_cases, without_cases
from tools.invariance.certified import certified_cases, unmet
from tools.invariance.other import OtherWork
from tools.invariance.runs import Check, Operands, Tally, choices, differing, jobs_of, positions, takes

from nbxtensor.base.dtypes import float32
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device import get
from nbxtensor.kernel.call_text import call_of
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.tuned import tuned
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty
from nbxtensor.tuning.key import launch_key

SHORT = ("add", "argmax", "conv", "cumulative_sum", "layer_norm", "matmul", "softmax", "sort", "sum", "take")
EXTENT = Extent((257,), (float32,), long=False)


def test_a_row_is_the_same_alone_and_among_others(device: str) -> None:
    """One operator of each skeleton, in every setting, beside other work."""
    where = get(device)
    cases = [c for some in all_cases(EXTENT, SHORT).values() for c in some[:1]]
    compile_many(jobs_of(cases, where))
    tallies = {case.operator: Tally() for case in cases}
    with OtherWork(where) as other:
        for case in cases:
            Check(where, 6).run(case, tallies[case.operator])
    faults = [fault for t in tallies.values() for fault in t.faults]
    assert not faults, "\n".join(faults)
    assert other.launched >= 4
    assert sum(t.differing for t in tallies.values()) == 0
    for name in ("add", "layer_norm", "matmul", "softmax", "sum"):
        assert len(tallies[name].settings) >= 2, f"{name}: only one setting was tried"


# Faults that must be found


@kernel
def careless_sum_kernel(out, x, n, TILE: tl.constexpr):
    """Adds tile by tile: the order depends on the tile."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    for start in range(0, n, TILE):
        total += tl.load(x + row * n + start + i, mask=start + i < n, other=0.0)
    tl.store(out + row, tl.sum(total))


Tiles = Callable[[int], tuple[int, ...]]


def declare(monkeypatch: pytest.MonkeyPatch, tiles: Tiles) -> None:
    """Declare a sum whose candidates are the tiles for so many rows."""

    def careless_sum(x: Tensor, axis: int = -1) -> Tensor:
        if axis == 0:
            x = x.permute_dims((1, 0)).copy()
        count, n = x.shape
        out = empty((count,), x.dtype, x.device)
        key = launch_key("careless_sum", "rows", {"count": count, "length": n}, (x.dtype,), x.device.target)
        arguments = {"out": Pointer(x.dtype), "x": Pointer(x.dtype), "n": n}

        def plan(tile: int) -> Plan:
            return Plan("careless_sum", careless_sum_kernel, x.device, (count, 1, 1), arguments, {"TILE": tile})

        tuned(key, tiles(count), plan).run(out.ptr, x.ptr)
        return out

    table["add"]  # loads every operator
    op = Operator("careless_sum", careless_sum, "universal", (careless_sum_kernel,), None, None)
    monkeypatch.setitem(operators, op.name, op)
    monkeypatch.setitem(table, op.name, careless_sum)


@pytest.mark.parametrize(
    ("tiles", "found"),
    [
        (lambda count: (64,), ""),
        (lambda count: (64, 32), "row 0 of 1,"),  # a setting
        (lambda count: (64,) if count < 64 else (32,), "row 0 of 64,"),  # the number of rows
    ],
    ids=["one order", "by setting", "by rows"],
)
def test_another_order_of_a_sum_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str, tiles: Tiles, found: str
) -> None:
    declare(monkeypatch, tiles)
    monkeypatch.setattr(invariance, "QUICK", EXTENT)
    status = invariance.main(["--device", device, "--op", "careless_sum", "--quick", "--repeats", "3"])
    output = capsys.readouterr().out
    assert status == (1 if found else 0), output
    assert (found or "no bit differs") in output


def test_a_fault_that_shows_in_one_run_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 40th run of a call writes one bit elsewhere."""
    runs = 0
    add = table["add"]

    def sometimes(x1: Tensor, x2: Tensor) -> Tensor:
        nonlocal runs
        result = add(x1, x2)
        runs += x1.device.computes
        if runs == 40:
            np.asarray(result).view(np.uint32)[-1, 3] ^= 1
        return result

    monkeypatch.setitem(table, "add", sometimes)
    case = Case("add", (Part((257,)), Part((257,))), batches=(2,))
    tally = Tally()
    Check(get("cpu"), 100).run(case, tally)
    assert runs > 100
    assert tally.differing == 1
    assert "row 1 of 2" in tally.faults[0]


def test_bits_are_compared_not_values() -> None:
    x = np.array([0.0, 1.0, np.nan], np.float32)
    assert differing(x, x.copy()) == 0
    assert differing(x, np.array([-0.0, 1.0, np.nan], np.float32)) == 1
    assert differing(x, x.astype(np.float64)) == 3
    other = np.array([0x7F800001], np.uint32).view(np.float32)
    assert differing(x[2:], other) == 0, "any NaN is as good as another"


def test_other_work_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(OtherWork, "_launch", fail)
    with pytest.raises(RuntimeError, match="other work"), OtherWork(get("cpu")):
        pass


# What is tried


def test_every_operator_has_cases_or_a_reason_to_have_none() -> None:
    assert not without_cases(), "give them a form in tools/invariance/cases.py, or a reason in NO_ROWS"
    assert set(NO_ROWS) <= set(operators)
    cpu = get("cpu")
    cases = all_cases(Extent())
    assert set(cases) | set(NO_ROWS) == set(operators)
    for name, some in cases.items():
        assert any(takes(case, cpu) for case in some), f"{name} takes none of its cases"


def test_an_operator_that_was_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def blend(x1: Tensor, x2: Tensor, weight: Tensor, mode: str) -> Tensor:
        raise AssertionError

    table["add"]  # loads every operator
    monkeypatch.setitem(operators, "blend", Operator("blend", blend, "universal", (), None, None))
    assert without_cases() == ["blend"]
    assert invariance.main(["--quick", "--op", "blend"]) == 1


@pytest.mark.parametrize("arch", ["x86-64-v3", "sm_90"])
def test_every_certified_setting_is_tried(arch: str) -> None:
    """By the cases, or on a call that it was certified for; more cases leave fewer to such calls."""
    null = get(f"null:{arch}")
    cases = [c for some in all_cases(QUICK).values() for c in some if takes(c, null)]
    settings = unmet(null, cases)
    found = certified_cases(settings, null)
    assert not found.left
    assert len(found.cases) + len(found.stale) == len(settings)
    assert len(found.cases) > len(found.stale)


def test_all_candidates_are_forced_and_the_default_comes_first() -> None:
    cpu = get("cpu")
    case = all_cases(EXTENT, ["add"])["add"][0]
    found = choices(case, 7, cpu)
    assert len(found) >= 3
    assert found[-1].variant is None, "what is chosen without force is tried too"
    assert len(set(found)) == len(found)


def test_the_row_stands_first_in_the_middle_and_last() -> None:
    assert positions(1) == [0]
    assert positions(2) == [0, 1]
    assert positions(1000) == [0, 500, 999]
    case = Case("add", (Part((9,)), Part((9,), float32, False)))
    operands = Operands(case, get("cpu"))
    row, shared = operands.arrays("special", 1)
    many, same = operands.arrays("special", 7)
    assert shared.tobytes() == same.tobytes()
    for number in range(7):
        assert (many[number].tobytes() == row[0].tobytes()) == (number in (0, 3, 6))


def test_columns_are_the_rows_of_the_operand_on_its_side() -> None:
    columns = next(c for c in all_cases(EXTENT, ["softmax"])["softmax"] if c.columns)
    assert dict(columns.attributes)["axis"] == 0
    assert columns.example(7).specs[0].shape == (257, 7)
    assert dict(columns.as_rows.attributes)["axis"] == -1
    assert columns.as_rows.example(7).specs[0].shape == (7, 257)


def test_a_certified_call_becomes_rows() -> None:
    null = get("null:x86-64-v3")
    call = call_of("subtract(float32[16, 214], float32[16, 1])")
    (choice, *_) = choices(Case("subtract", (Part((214,)), Part((1,)))), 16, null)
    found = certified_cases({choice.certificate: [call], "matmul|float32|[('bm', 1)]": [call]}, null)
    assert [str(one.case) for one in found.cases] == ["subtract(float32[16, 214], float32[16, 1])"]
    assert found.cases[0].case.batches == (16,)
    assert found.stale == ["matmul|float32|[('bm', 1)]"], "nothing takes it"


def test_a_certified_setting_that_cannot_be_tried_is_said() -> None:
    """A row of its own is no batch."""
    null = get("null:x86-64-v3")
    (choice, *_) = choices(Case("cumulative_sum", (Part((300,)),), (("axis", -1),)), 1, null)
    found = certified_cases({choice.certificate: [call_of("cumulative_sum(float32[300])")]}, null)
    assert found.left == [choice.certificate]


def test_results_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out" / "rows.json"
    assert invariance.main(["--op", "take", "--quick", "--repeats", "3", "--json", str(path)]) == 0
    assert "no bit differs" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert {"machine", "sources", "operators", "faults", "other_calls", "no_rows", "certified_not_tried"} <= set(
        content
    )
    take = content["operators"]["take"]
    assert take["differing"] == 0
    assert take["repeats"] == [3, 3]
    assert content["machine"]["arch"] == get("cpu").target.arch


def test_quick_is_a_part_of_the_whole() -> None:
    whole = {str(c) for some in all_cases(Extent()).values() for c in some}
    assert {str(c) for some in all_cases(QUICK).values() for c in some} <= whole
