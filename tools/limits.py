"""Kernels that would break on a device with 32-bit loop bounds, no float64 and small reduced tiles: ``make limits``.

The operators choose their settings for the profile ``restricted``; what their TTIR still needs beyond it is listed, and
`tests/test_limits.py` compares it with the table in ``docs/targets.md``. Operands of float64 are left out: asking for
them asks for float64.
"""

import contextlib
from collections.abc import Iterator

from tools.variants import ROOT, Launch, Variant, fixed_sample, variants

import golden_cases
from nbxtensor.base.errors import CompileError, DTypeError
from nbxtensor.compiler.limits import beyond
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of

ARCH = "restricted"
PAGE = ROOT / "docs/targets.md"
BEGIN, END = "<!-- limits -->", "<!-- end -->"
DTYPES = ("float32", "int64")  # the others take the ways of one of these


def _recorded(refusals: dict[str, str]) -> Iterator[Launch]:
    device = NullDevice(target_of(ARCH), load_profile(ARCH))
    for case, op, args in golden_cases.cases():
        if case.split("/")[1] not in DTYPES:
            continue
        device.clear()
        try:
            with contextlib.suppress(DTypeError):
                op.function(*[golden_cases.on_device(a, device) for a in args])
        except CompileError as error:
            refusals.setdefault(case.split("/")[0], str(error))
        for call in device.calls:
            yield case, op.function.__module__, call.job  # pyright: ignore[reportAttributeAccessIssue]


def check() -> tuple[dict[str, set[str]], dict[str, str]]:
    """Per kernel what it needs beyond the profile, and per operator why it refuses a sample."""
    refusals: dict[str, str] = {}
    found = variants(_recorded(refusals))
    flat = {k: v for k, v in found.items() if v.job.fn.name == "pointwise_flat_kernel"}
    tried: list[Variant] = [*(v for k, v in found.items() if k not in flat), *fixed_sample(flat)]
    needs: dict[str, set[str]] = {}
    profile = load_profile(ARCH)
    for variant in tried:
        job = variant.job
        text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
        needs.setdefault(job.fn.name, set()).update(beyond(text, profile))
    return needs, refusals


def table() -> str:
    """What `check` finds, in Markdown."""
    needs, refusals = check()
    lines = ["| kernel | needs |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(sorted(found)) or 'nothing more'} |" for name, found in sorted(needs.items())]
    refused = ", ".join(f"`{name}`" for name in sorted(refusals)) or "none"
    return "\n".join([*lines, "", f"Operators that refuse one of their samples: {refused}.", ""])


def written(document: str, text: str) -> str:
    """`document` with `text` between its marks."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{text}{END}{rest.split(END)[1]}"


def main() -> None:
    PAGE.write_text(written(PAGE.read_text(), table()))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
