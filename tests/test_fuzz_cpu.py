"""Random kernels give, bit for bit, what the generator's own evaluation in NumPy gives."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fuzz_numeric as fn
from fuzz_generate import Generator
from fuzz_program import Case

pytest.importorskip("triton")

from nbxtensor.compiler.compile import Job, compile_fresh
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device import get
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--fuzz-first")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("--fuzz")))


def load_kernel(case: Case, folder: Path) -> KernelFunction:
    """The case's kernel, from a file: Triton wants to see its source."""
    path = folder / f"{case.name}.py"
    path.write_text(case.source)
    spec = importlib.util.spec_from_file_location(case.name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, case.name)


def run(case: Case, device: Device, folder: Path) -> dict[str, np.ndarray]:
    """Memory after the kernel ran on `device`."""
    kernel = load_kernel(case, folder)
    job = Job(kernel, tuple(case.arguments.items()), (), Options(), frozenset(), device.target)
    loaded = device.load(compile_fresh(job))
    buffers = {}
    for name, array in case.memory.items():
        buffers[name] = device.allocate(array.nbytes)
        device.copy_from_host(buffers[name].ptr, memoryview(array.view(np.uint8)))
    arguments = [
        buffers[case.storage[name]].ptr if kind[0] == "*" else case.scalars[name]
        for name, kind in case.arguments.items()
    ]
    device.launch(loaded, case.grid, arguments)
    device.synchronize()
    result = {}
    for name, array in case.memory.items():
        result[name] = np.empty_like(array)
        device.copy_to_host(memoryview(result[name].view(np.uint8)), buffers[name].ptr)
    return result


def differences(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> list[str]:
    """Where memory differs, first places only; any NaN equals any NaN."""
    found: list[str] = []
    for name, right in expected.items():
        left = got[name]
        bits = f"u{right.dtype.itemsize}"
        same = left.view(bits) == right.view(bits)
        if right.dtype in [fn.NUMPY[kind] for kind in fn.FLOATS]:
            same |= np.isnan(fn.wide(left)) & np.isnan(fn.wide(right))
        if not same.all():
            at = int(np.argmin(same))
            found.append(
                f"{name}[{at}] ({right.dtype}): {left[at]!r}, expected {right[at]!r}; "
                f"{np.count_nonzero(~same)} of {same.size} differ"
            )
    return found


def report(case: Case, problems: list[str]) -> str:
    again = f"pytest tests/test_fuzz_cpu.py --fuzz-first {case.seed} --fuzz 1"
    scalars = ", ".join(f"{k} = {v!r}" for k, v in case.scalars.items())
    return "\n".join([f"seed {case.seed} ({again})", *problems, f"grid {case.grid}, {scalars}", case.source])


def test_random_kernel(seed: int, device: str, tmp_path: Path) -> None:
    case = Generator(seed, in_place=get(device).host_accessible).case()
    try:
        problems = differences(run(case, get(device), tmp_path), case.expected())
    except Exception as error:
        raise AssertionError(report(case, [f"{type(error).__name__}: {error}"])) from error
    if problems and case.doubtful:
        pytest.skip("Triton itself may miscompile this kernel: see fuzz_program.Loop.doubt")
    assert not problems, report(case, problems)


def _fma_in_two_steps(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return fn.add(fn.multiply(a, b), c)


def _last_operand_first(operation: Callable[..., np.ndarray], a: np.ndarray, axis: int) -> np.ndarray:
    parts = list(np.moveaxis(a, axis, 0))
    total = parts[-1]
    for part in parts[:-1]:
        total = operation(total, part)
    return total


MUTATIONS: dict[str, tuple[str, str, Callable[..., np.ndarray]]] = {
    "addition": (r" \+ ", "add", fn.subtract),
    "fma": (r"tl\.fma", "fma", _fma_in_two_steps),
    "division": (" // ", "quotient", lambda a, b: a // b),
    "remainder": (" % ", "remainder", lambda a, b: a % b),
    "NaN of a maximum": (r"tl\.m\w+imum\(.*ALL", "nan_extreme", fn.number_extreme),
    "NaN of another maximum": (r"tl\.m\w+imum\(v\d+, v\d+\)", "number_extreme", fn.nan_extreme),
    "order of a sum": (
        r"tl\.reduce\(tl\.reshape\(.*_add",
        "reduce",
        lambda op, a, axis: _last_operand_first(op, a, axis)[..., ::-1],
    ),
    "direction of a scan": ("reverse=True", "scan", lambda op, a, axis, _, scan=fn.scan: scan(op, a, axis, False)),
    "conversion": (
        r"\.to\(tl\.",
        "cast",
        lambda a, dtype, cast=fn.cast: cast(np.abs(a) if a.dtype != bool else a, dtype),
    ),
    "order of a dot": (r"tl\.dot", "dot", lambda a, b, c, dot=fn.dot: dot(a[:, ::-1], b[::-1], c)),
}
"""Fault -> (pattern in the kernel's source, function of fuzz_numeric, what takes its place)."""

_results: dict[int, dict[str, np.ndarray]] = {}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_fuzzer_notices_a_wrong_operation(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where expectation and compiler differ in one operation, one of the first kernels tells."""
    pattern, function, fault = MUTATIONS[name]
    tried = 0
    for seed in range(200):
        if not re.search(pattern, Generator(seed).case().source.partition("def fuzz_")[2]):
            continue
        if seed not in _results:
            _results[seed] = run(Generator(seed).case(), get("cpu"), tmp_path)
        tried += 1
        monkeypatch.setattr(fn, function, fault)
        case = Generator(seed).case()
        try:
            noticed = bool(differences(_results[seed], case.expected()))
        except (IndexError, AssertionError):
            noticed = True  # an index or a type went wrong
        monkeypatch.undo()
        if noticed:
            return
    pytest.fail(f"{tried} kernels of 200 have {pattern!r}, and none noticed the fault")
