"""docs/accuracy.md says what was measured, and what was measured keeps what the operators state."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table

ROOT = Path(__file__).parents[1]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "tools" / "accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accuracy = load()
RECORD: dict[str, Any] = json.loads((ROOT / "bench" / "results" / "accuracy.json").read_text())


def test_the_page_is_what_the_results_give() -> None:
    assert (ROOT / "docs" / "accuracy.md").read_text() == accuracy.page(RECORD)


def test_every_operator_was_measured_and_keeps_its_promise() -> None:
    assert set(RECORD["operators"]) == set(accuracy.OPERATORS)
    table["exp"]  # loads every operator
    for name, kinds in RECORD["operators"].items():
        stated = operators[name.removesuffix("_tanh") if name == "gelu_tanh" else name].ulp
        for dtype, found in kinds.items():
            assert found["ulp"] <= stated[dtype] + 0.005, (name, dtype)
            assert (found["exact_ulp"] or 0.0) <= stated[dtype], (name, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_16_bits_are_nearly_always_correctly_rounded(dtype: str) -> None:
    for name, kinds in RECORD["operators"].items():
        assert kinds[dtype]["ulp"] <= 1.0, name
        assert kinds[dtype]["correct"] >= 0.999, name


def test_the_founding_operators_keep_the_limits_that_were_set() -> None:
    for name in ("sigmoid", "silu", "sin", "softplus"):
        assert RECORD["operators"][name]["float32"]["ulp"] <= 1.5
    for name in ("exp", "log", "log1p", "sin"):
        assert RECORD["operators"][name]["float64"]["ulp"] <= 2.0


def test_measuring(device: str) -> None:
    found = accuracy.measure_narrow("sigmoid", "float16", device, 65536)
    assert found.count == 65536
    assert 0.4 < found.ulp <= 1.0
    assert found.correct >= 0.999
    sample = accuracy.measure_narrow("exp", "float32", device, 4096)
    assert sample.count == 4096
    assert sample.ulp <= 1.0


def test_results_of_the_wrong_kind_are_infinitely_wrong() -> None:
    np = accuracy.np
    got = np.array([0.0, np.nan, 1.0, np.inf, 65504.0], np.float16)
    want = np.array([-0.0, 1.0, np.nan, 65519.0, 65536.0], np.longdouble)
    error = accuracy.ulp_long(got, want, "float16")
    assert np.isinf(error[:3]).all()
    assert error[3] == pytest.approx(17 / 32)
    assert error[4] == 1.0
