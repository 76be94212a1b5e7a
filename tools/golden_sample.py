"""The CPU's bits on a fixed part of the golden cases: ``make sweep39`` runs it with the newest Triton.

The first sample of each operator, in three dtypes; `tests/test_golden.py` checks all of them with the oldest.
"""

import json

from tools.variants import ROOT

import golden_cases

DTYPES = ("float32", "bfloat16", "int32")


def compare() -> tuple[int, list[str]]:
    """How many cases were computed, and which have other bits than the golden ones."""
    golden = json.loads((ROOT / "tests/golden/bits.json").read_text())["cases"]
    wrong: list[str] = []
    count = 0
    for name, op, args in golden_cases.cases():
        if name.split("/")[1:] not in [[dtype, "0"] for dtype in DTYPES] or name not in golden:
            continue
        result = golden_cases.run(op, args, "cpu")
        if result is not None:
            count += 1
            if golden_cases.bits_hash(result) != golden[name]["output"]:
                wrong.append(name)
    return count, wrong


def main() -> int:
    count, wrong = compare()
    print(f"{golden_cases.versions()}: {count} cases, {len(wrong)} with other bits {' '.join(wrong)}")
    return int(bool(wrong) or not count)


if __name__ == "__main__":
    raise SystemExit(main())
