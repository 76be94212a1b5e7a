"""Every kernel that a universal operator launches is free of operations whose bits depend on the device."""

import contextlib
from typing import Any

import pytest

import golden_cases
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.scan import NARROWED, scan_ptx, scan_ttir
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device import get
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table

DTYPES = ("float32", "bfloat16", "int32")


def jobs(arch: str) -> dict[str, tuple[str, Job]]:
    """One job of each kernel, function and dtype that the operators' samples launch on `arch`."""
    table["add"]  # loads every operator
    device = get(f"null:{arch}")
    found: dict[str, tuple[str, Job]] = {}
    for name, op, args in golden_cases.cases():
        if name.split("/")[1] not in DTYPES:
            continue
        device.clear()
        with contextlib.suppress(DTypeError):
            op.function(*[golden_cases.on_device(a, device.name) for a in args])
        for call in device.calls:
            constants = {k: v for k, v in call.job.constants if "BLOCK" not in k}
            found.setdefault(f"{call.job.fn}{call.job.signature}{constants}", (name, call.job))
    return found


@pytest.mark.parametrize("arch", ["x86-64-v3", "sm_90"])
def test_kernels_have_no_operation_of_device_dependent_bits(arch: str) -> None:
    wrong: list[str] = []
    for name, job in jobs(arch).values():
        text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
        wrong += [f"{name}: {finding}" for finding in scan_ttir(text)]
    assert not wrong, "\n".join(wrong)


def test_machine_code_of_the_gpu_has_none_either() -> None:
    wrong: list[str] = []
    seen: set[Any] = set()
    for name, job in jobs("sm_90").values():
        kind = (name.split("/")[0], job.fn)
        if kind in seen:
            continue
        seen.add(kind)
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
