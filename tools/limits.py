"""Kernels that would break on a device with 32-bit loop bounds, no float64 and small reduced tiles: ``tools/limits.py``.

The operators choose their settings for the profile ``restricted``; what their TTIR still needs beyond it is listed, and
`tests/test_limits.py` compares it with the table in ``docs/targets.md``. Operands of float64 are left out: asking for
them asks for float64.
"""

import contextlib
from collections.abc import Iterator

import golden_cases
from nbxtensor.base.errors import CompileError, DTypeError
from nbxtensor.compiler.limits import beyond
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of
from nbxtensor.kernel.declare import operators
from tools.variants import Launch, Variant, fixed_sample, variants

ARCH = "restricted"
DTYPES = ("float32", "bfloat16", "int32", "int64")


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


def main() -> None:
    needs, refusals = check()
    for name, found in sorted(needs.items()):
        print(f"| `{name}` | {', '.join(sorted(found)) or 'nothing'} |")
    for name, why in sorted(refusals.items()):
        print(f"{name}: {why}")
    print(f"{len(operators)} operators")


if __name__ == "__main__":
    main()
