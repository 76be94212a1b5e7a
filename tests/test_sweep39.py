"""The sample for the newest Triton that is supported: other bits are found, the log is left alone."""

import json
import re
import tomllib
from collections.abc import Sequence

import pytest
from tools import golden_sample, sweep
from tools.golden_sample import GOLDEN, chosen, compare
from tools.variants import ROOT

from nbxtensor.ops.sort import functions

CASES = ("abs/float32/0", "sort/bfloat16/0")


def known() -> dict[str, dict[str, str]]:
    return json.loads(GOLDEN.read_text())["cases"]


def test_the_environment_is_pinned_to_the_newest_triton() -> None:
    lines = [x for x in (ROOT / "tools/triton39.txt").read_text().splitlines() if not x.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (allowed,) = re.findall(r"triton>=[\d.]+,<3\.(\d+)", str(project["optional-dependencies"]["compile"]))
    assert pinned["triton"].split(".")[:2] == ["3", str(int(allowed) - 1)]
    assert "make sweep39" in (ROOT / ".ci/run").read_text()


def test_the_sample_has_every_operator_with_golden_bits() -> None:
    names = {name.split("/")[0] for name in known()}
    assert {name.split("/")[0] for name, _, _ in chosen(known())} == names


def test_other_bits_are_found() -> None:
    some = {name: known()[name] for name in CASES}
    assert compare(some) == (2, [])
    some[CASES[1]] = {"output": "0" * 32}
    assert compare(some) == (2, [CASES[1]])


def test_an_empty_sample_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_sample, "DTYPES", ())
    assert golden_sample.main() == 1


def test_the_least_sample_is_not_logged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def found(tasks: Sequence[sweep.Task], *_: object) -> list[list[sweep.Outcome]]:
        return [[sweep.Outcome(target.arch) for target in task.targets] for task in tasks]

    monkeypatch.setattr(sweep, "TARGETS", ["sm_90"])
    monkeypatch.setattr(sweep, "outcomes", found)
    monkeypatch.setattr(sweep, "write", lambda *_: pytest.fail("the log was written"))
    assert sweep.main(["--least", "--only", "ops/sort/"]) == 0
    kernels = {k.name for k in (*functions.KERNELS, *functions.SELECTING) if not re.match("row_|part_", k.name)}
    assert f"sm_90: {len(kernels)} compiled" in capsys.readouterr().out
