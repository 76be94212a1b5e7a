"""The bits of every universal operator equal those taken on the H200 (tests/golden/bits.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

import golden_cases
import golden_models

GOLDEN = Path(__file__).parent / "golden" / "bits.json"
MODELS = Path(__file__).parent / "golden" / "models.json"


def test_bits_are_those_of_the_gpu(device: str) -> None:
    golden = json.loads(GOLDEN.read_text())["cases"]
    golden_cases.compile_all(device)
    seen: set[str] = set()
    wrong: list[str] = []
    for name, op, args in golden_cases.cases():
        result = golden_cases.run(op, args, device)
        if result is None:
            continue
        seen.add(name)
        if name not in golden:
            wrong.append(f"{name}: no golden bits; run tests/golden_cases.py on a GPU")
        elif golden[name]["input"] != golden_cases.bits_hash(golden_cases.arrays_of(args)):
            wrong.append(f"{name}: the input is not the one of the golden bits")
        elif golden[name]["output"] != golden_cases.bits_hash(result):
            wrong.append(f"{name}: other bits than on the GPU")
    assert not wrong, "\n".join(wrong)
    assert set(golden) <= seen, f"golden cases that no operator declares: {sorted(set(golden) - seen)}"


def test_models_have_the_bits_of_the_gpu(device: str) -> None:
    assert golden_models.bits(device) == json.loads(MODELS.read_text())["cases"]


def test_a_changed_bit_is_seen() -> None:
    array = np.arange(5, dtype=np.float32)
    other = array.copy()
    other.view(np.uint32)[3] ^= 1
    assert golden_cases.bits_hash([array]) != golden_cases.bits_hash([other])
    nan = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert golden_cases.bits_hash([nan]) == golden_cases.bits_hash([np.full(2, np.nan, np.float32)])
    assert golden_cases.bits_hash([np.float32([0.0])]) != golden_cases.bits_hash([np.float32([-0.0])])


@pytest.mark.gpu
def test_cpu_and_gpu_agree() -> None:
    for name, op, args in golden_cases.cases():
        here, there = golden_cases.run(op, args, "cpu"), golden_cases.run(op, args, "cuda")
        assert (here is None) == (there is None), name
        if here is not None and there is not None:
            assert golden_cases.bits_hash(here) == golden_cases.bits_hash(there), name
