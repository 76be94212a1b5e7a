"""Every kernel that a universal operator launches is free of operations whose bits depend on the device."""

import contextlib
from functools import cache
from typing import Any

import pytest
from tools.variants import Variant, variants

import golden_cases
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.scan import NARROWED, scan_ptx, scan_ttir
from nbxtensor.compiler.ttir import one_front_end, ttir
from nbxtensor.device import get
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table

DTYPES = ("float32", "bfloat16", "int32")


@cache
def launched(arch: str) -> dict[str, Variant]:
    """One of each kernel, function and dtype that the operators' samples launch on `arch`."""
    table["add"]  # loads every operator
    device = get(f"null:{arch}")
    device.clear()
    found: list[tuple[str, str, Any]] = []
    for name, op, args in golden_cases.cases():
        if name.split("/")[1] in DTYPES:
            with contextlib.suppress(DTypeError):
                op.function(*[golden_cases.on_device(a, device.name) for a in args])
            found += [(name, name, call.job) for call in device.calls]
            device.clear()
    return variants(found)


@pytest.mark.parametrize("arch", ["x86-64-v3", "sm_90"])
def test_kernels_have_no_operation_of_device_dependent_bits(arch: str) -> None:
    """What both launch differs in sizes alone, and is looked at once."""
    found = launched(arch)
    if arch != "sm_90":
        found = {key: variant for key, variant in found.items() if key not in launched("sm_90")}
    wrong: list[str] = []
    for variant in found.values():
        job = variant.job
        text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
        wrong += [f"{variant.case}: {finding}" for finding in scan_ttir(text)]
    assert len(found) > 100
    assert not wrong, "\n".join(wrong)


def test_machine_code_of_the_gpu_has_none_either() -> None:
    wrong: list[str] = []
    seen: set[Any] = set()
    for variant in launched("sm_90").values():
        name, job = variant.case, variant.job
        kind = (name.split("/")[0], job.fn)
        if kind in seen:
            continue
        seen.add(kind)
        with one_front_end():
            text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
            found = scan_ptx(lower_to_ptx(job).text, text)
        wrong += [f"{name}: {finding}" for finding in found if not NARROWED.search(finding.text)]
    assert len({name for name, _ in seen}) > 40
    assert not wrong, "\n".join(wrong)


def test_every_operator_says_what_it_promises() -> None:
    table["add"]
    for name, op in operators.items():
        assert op.guarantee in ("universal", "device"), name
        assert op.function.__doc__, name


def test_a_forbidden_operation_is_found() -> None:
    assert scan_ttir("%1 = math.exp %0 : tensor<8xf32>")
    assert not NARROWED.search("fma.rn.bf16x2 %r1, %r2, %r3, %r4;")
