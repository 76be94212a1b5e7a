"""The CPU's bits on a fixed part of the golden cases: ``make sweep39`` runs it with the newest Triton.

The first sample of each operator, in three dtypes; `tests/test_golden.py` checks all of them with the oldest.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tools.variants import ROOT

import golden_cases
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel.declare import Operator

DTYPES = ("float32", "bfloat16", "int32")
GOLDEN = ROOT / "tests/golden/bits.json"


def chosen(known: dict[str, Any]) -> Iterator[tuple[str, Operator, tuple[Any, ...]]]:
    """The cases of the sample among those whose bits are known."""
    for name, op, args in golden_cases.cases():
        if name in known and name.split("/")[1:] in [[dtype, "0"] for dtype in DTYPES]:
            yield name, op, args


def compile_for_cpu(known: dict[str, Any]) -> None:
    """Compile what the sample launches in parallel, in processes that end before anything is computed."""
    null = NullDevice(get("cpu").target)
    for _, op, args in chosen(known):
        with contextlib.suppress(DTypeError):
            op.function(*[golden_cases.on_device(a, null) for a in args])
    compile_many([call.job for call in null.calls])  # pyright: ignore[reportAttributeAccessIssue]


def compare(known: dict[str, Any]) -> tuple[int, list[str]]:
    """How many cases were computed, and which have other bits than the golden ones."""
    wrong: list[str] = []
    count = 0
    for name, op, args in chosen(known):
        result = golden_cases.run(op, args, "cpu")
        if result is not None:
            count += 1
            if golden_cases.bits_hash(result) != known[name]["output"]:
                wrong.append(name)
    return count, wrong


def main() -> int:
    known = json.loads(GOLDEN.read_text())["cases"]
    compile_for_cpu(known)
    count, wrong = compare(known)
    print(f"{golden_cases.versions()}: {count} cases, {len(wrong)} with other bits {' '.join(wrong)}")
    return int(bool(wrong) or not count)


if __name__ == "__main__":
    raise SystemExit(main())
