"""Measures how exact the mathematical operators are, and writes docs/accuracy.md from what it found.

    python tools/accuracy.py measure OUT.json [--device cuda] [--samples 1e8] [--names exp,log]
    python tools/accuracy.py page > docs/accuracy.md

Every operator on all 65,536 float16 and bfloat16, on all 2^32 float32 where the device is a GPU and torch is there
(else on a sample), and on a sample of float64. The reference is 80-bit arithmetic; for all float32 it is torch in
float64 on that GPU; for the worst float64 of the sample and for special ones it is mpmath too.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

import nbxtensor as nbx
from nbxtensor.base.dtypes import dtype as dtype_of
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from golden_cases import facts
from math64_tools import EXACT, LONG, QUARTER_TURN, rsqrt, ulp_exact, ulp_long

RESULTS = Path(__file__).parents[1] / "bench" / "results" / "accuracy.json"
DTYPES = ("float16", "bfloat16", "float32", "float64")
CHUNK = 1 << 20
TORCH_CHUNK = 1 << 27
Arrays = tuple[NDArray[Any], ...]

OPERATORS: dict[str, Callable[..., nbx.Tensor]] = {
    "exp": nbx.exp,
    "expm1": nbx.expm1,
    "log": nbx.log,
    "log1p": nbx.log1p,
    "sin": nbx.sin,
    "cos": nbx.cos,
    "tanh": nbx.tanh,
    "erf": nbx.nn.erf,
    "sigmoid": nbx.nn.sigmoid,
    "silu": nbx.nn.silu,
    "softplus": lambda x: nbx.nn.softplus(x, 1.0, math.inf),
    "gelu": nbx.nn.gelu,
    "gelu_tanh": lambda x: nbx.nn.gelu(x, "tanh"),
    "sqrt": nbx.sqrt,
    "rsqrt": nbx.nn.rsqrt,
    "pow": nbx.pow,
}
REFERENCES: dict[str, Callable[..., Any]] = {**LONG, "sqrt": np.sqrt, "rsqrt": rsqrt, "pow": np.power}
MP: dict[str, Callable[..., Any]] = {
    **EXACT,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "pow": lambda x, y: x**y,
}
FROM_ZERO = ("log", "sqrt", "rsqrt", "pow")
SPECIAL = (
    0.0, 5e-324, 2.2250738585072014e-308, 5.551115123125783e-17, 0.34657359027997264, 0.5, 0.7071067811865476, 1.0,
    1.4142135623730951, 2.0, 8.5, 20.0, 36.7, 40.0, 708.3964185322641, 709.782712893384, 745.1332191019412,
    1073741824.0, 5.319372648326541e255, 1.7976931348623157e308,
)  # fmt: skip


@dataclass
class Found:
    """What was found for one operator and dtype.

    Attributes
    ----------
    ulp
        Largest error; infinite where a result is of the wrong kind (NaN, sign).
    at
        Where it was found.
    correct
        Share of results that are correctly rounded.
    count
        Arguments tried.
    exact_ulp, exact_count
        Largest error against mpmath and how many arguments were tried with it, where that was done.
    """

    ulp: float = 0.0
    at: tuple[float, ...] = ()
    correct: float = 0.0
    count: int = 0
    exact_ulp: float | None = None
    exact_count: int = 0

    def add(self, error: NDArray[np.float64], arguments: Arrays) -> None:
        """Enter the errors of some results."""
        top = int(np.argmax(error))
        if not self.at or error[top] > self.ulp:
            self.ulp, self.at = float(error[top]), tuple(float(a[top]) for a in arguments)
        good = self.correct * self.count + int(np.count_nonzero(error <= 0.5))
        self.count += len(error)
        self.correct = good / self.count


_one_at_a_time = threading.Lock()


def results(name: str, arguments: Arrays, device: str) -> NDArray[Any]:
    """What the operator gives on the device."""
    with _one_at_a_time:
        tensors = [nbx.asarray(a, device=device) for a in arguments]
        return np.asarray(OPERATORS[name](*tensors).to_device("cpu"))


def errors(name: str, arguments: Arrays, got: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Errors in ULP against 80-bit arithmetic."""
    with np.errstate(all="ignore"):
        want = REFERENCES[name](*(a.astype(np.longdouble) for a in arguments))
    return ulp_long(got, want, dtype)


def bit_patterns(name: str, dtype: str, count: int, rng: np.random.Generator) -> Arrays:
    """Random bits; all of them where the dtype has 16 and the operator takes one operand."""
    kind = dtype_of(dtype).numpy
    if kind.itemsize == 2 and name != "pow":
        return (np.arange(65536, dtype=np.uint16).view(kind),)
    unsigned = np.dtype(f"u{kind.itemsize}")
    bits = [rng.integers(0, 2 ** (8 * kind.itemsize), count, dtype=unsigned).view(kind) for _ in range(2)]
    if name == "pow":  # most pairs of random bits give 0 or infinity
        return np.abs(bits[0]), rng.uniform(-3, 3, count).astype(kind)
    return (bits[0],)


def doubles(name: str, count: int, rng: np.random.Generator) -> Arrays:
    """Arguments of float64: random bits, even ones on two intervals, small ones of many sizes."""
    part = count // 4
    (first, *_) = bit_patterns("", "float64", count - 3 * part, rng)
    small = np.exp(rng.uniform(-40.0, 5.0, part)) * rng.choice([-1.0, 1.0], part)
    x = np.concatenate([first, rng.uniform(-40.0, 40.0, part), rng.uniform(-750.0, 750.0, part), small])
    if name in FROM_ZERO:
        x = np.abs(x)
    with np.errstate(all="ignore"):
        if name == "log1p":
            x = np.where((x < -1.0) & np.isfinite(x), -1.0 / x, x)
        if name == "pow":
            return x, rng.uniform(-745.0, 710.0, count) / np.log(x)
    return (x,)


def special(name: str) -> Arrays:
    """Special float64 and their neighbours, multiples of pi / 2, powers of two."""
    turns = (np.arange(1, 400) * QUARTER_TURN).astype(np.float64)
    centres = np.array([*SPECIAL, *turns, *(2.0 ** np.arange(-1070, 1020, 7))])
    bits = centres.view(np.int64)[:, None] + np.arange(-24, 25)
    x = np.unique(np.clip(bits, 0, 0x7FEFFFFFFFFFFFFF).view(np.float64).ravel())
    x = x[x > 0] if name in FROM_ZERO else np.concatenate([x, -x[x < 1.0] if name == "log1p" else -x])
    x = x[: len(x) // 16 * 16]  # the same kernel as for whole chunks
    if name == "pow":
        with np.errstate(all="ignore"):
            return x, np.clip(300.0 / np.log(x), -1e300, 1e300)
    return (x,)


def exact_errors(name: str, got: NDArray[Any], arguments: Arrays) -> NDArray[np.float64]:
    """Errors in ULP against mpmath."""
    return ulp_exact(got, arguments[0], MP[name], *arguments[1:])


def measure_narrow(name: str, dtype: str, device: str, count: int) -> Found:
    """float16 and bfloat16, or a sample of float32."""
    found, rng = Found(), np.random.default_rng(0)
    for start in range(0, count, CHUNK):
        arguments = bit_patterns(name, dtype, min(CHUNK, count - start), rng)
        found.add(errors(name, arguments, results(name, arguments, device), dtype), arguments)
    return found


def measure_double(name: str, device: str, count: int, exact: int, pools: tuple[Any, Any]) -> Found:
    """A sample of float64: all of it against 80-bit arithmetic, the worst and special ones against mpmath."""
    found, threads, processes = Found(), *pools
    chunks = -(-count // CHUNK)
    keep = max(1, exact // 2 // chunks)

    def one(seed: int) -> tuple[Any, Arrays, Arrays, Any]:
        arguments = doubles(name, CHUNK, np.random.default_rng(seed))
        got = results(name, arguments, device)
        error = errors(name, arguments, got, "float64")
        worst = np.argpartition(error, -keep)[-keep:]
        top = np.argmax(error)
        return error[top], tuple(a[[top]] for a in arguments), tuple(a[worst] for a in arguments), (error, got[worst])

    worst: list[Arrays] = []
    answers: list[NDArray[Any]] = []
    for ulp, at, chosen, (error, got) in threads.map(one, range(chunks)):
        found.add(error, tuple(np.broadcast_to(a, error.shape) for a in at))
        assert found.ulp >= ulp
        worst.append(chosen)
        answers.append(got)
    others = special(name)
    arguments = tuple(np.concatenate([*(w[i] for w in worst), others[i]]) for i in range(len(others)))
    got = np.concatenate([*answers, results(name, others, device)])
    with np.errstate(all="ignore"):
        want = REFERENCES[name](*(a.astype(np.longdouble) for a in arguments)).astype(np.float64)
    plain = np.isfinite(want) & (want != 0) & np.all([np.isfinite(a) for a in arguments], axis=0)
    parts = np.array_split(np.flatnonzero(plain), 64)
    tasks = [processes.submit(exact_errors, name, got[p], tuple(a[p] for a in arguments)) for p in parts]
    found.exact_ulp = max(float(np.max(t.result(), initial=0.0)) for t in tasks)
    found.exact_count = int(plain.sum())
    return found


def torch_references(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """The operators in torch.float64, without its overflows."""

    def logistic(x: Any) -> Any:
        return torch.sigmoid(x)

    def end(x: Any, y: Any) -> Any:
        return torch.where(x < -1000.0, torch.full_like(x, -0.0), torch.where(x > 1000.0, x, y))

    def gelu_tanh(x: Any) -> Any:
        return end(x, x * logistic(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))

    names = ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sqrt")
    return {
        **{name: getattr(torch, name) for name in names},
        "rsqrt": lambda x: 1.0 / torch.sqrt(x),
        "sigmoid": logistic,
        "silu": lambda x: end(x, x * logistic(x)),
        "softplus": lambda x: torch.clamp_min(x, 0.0) + torch.log1p(torch.exp(-torch.abs(x))),
        "gelu": lambda x: end(x, 0.5 * x * torch.special.erfc(x * -math.sqrt(0.5))),
        "gelu_tanh": gelu_tanh,
    }


def torch_errors(torch: Any, y: Any, want: Any) -> Any:
    """`ulp_long` for float32 on the GPU."""
    limit, last = 2.0**128, 2.0**104
    y = y.double()
    want = torch.where(want.abs() >= limit - last / 2, torch.copysign(torch.full_like(want, limit), want), want)
    y = torch.where(torch.isinf(y), torch.copysign(torch.full_like(y, limit), y), y)
    exponent = ((want.view(torch.int64) >> 52) & 2047) - 1023
    unit = ((torch.clamp(exponent - 23, -149, 104) + 1023) << 52).view(torch.float64)
    nan = torch.isnan(want)
    alike = (torch.isnan(y) == nan) & (nan | (torch.signbit(y) == torch.signbit(want)))
    error = torch.where(nan, torch.zeros_like(y), (y - want).abs() / unit)
    return torch.where(alike, error, torch.full_like(y, math.inf))


def measure_all_singles(torch: Any, name: str, device: str) -> Found:
    """All 2^32 float32."""
    found, good = Found(count=2**32), 0
    reference = torch_references(torch)[name]
    for start in range(-(2**31), 2**31, TORCH_CHUNK):
        x = torch.arange(start, start + TORCH_CHUNK, dtype=torch.int32, device=device).view(torch.float32)
        y = torch.from_dlpack(OPERATORS[name](nbx.from_dlpack(x)))
        error = torch_errors(torch, y, reference(x.double()))
        top, where = torch.max(error, 0)
        good += int(torch.count_nonzero(error <= 0.5))
        if not found.at or float(top) > found.ulp:
            found.ulp, found.at = float(top), (float(x[where]),)
    found.correct = good / found.count
    return found


def compile_all(names: list[str], chosen: list[str], device: str) -> None:
    """Compile all kernels that will be needed, in parallel: a device that computes nothing records the launches."""
    null = get(f"null:{get(device).target.arch}")
    null.clear()
    for name in names:
        for dtype in chosen:
            operands = [nbx.empty((CHUNK,), dtype, device=null.name)] * (2 if name == "pow" else 1)
            OPERATORS[name](*operands)
    compile_many([call.job for call in null.calls])


def measure(
    names: list[str], chosen: list[str], device: str, samples: int, exact: int
) -> Iterator[tuple[str, str, Found]]:
    """Operator, dtype and what was found, one after the other."""
    torch: Any = None
    if device.startswith("cuda"):
        with contextlib.suppress(ImportError):
            import torch  # only to check all float32 quickly
    compile_all(names, chosen, device)
    threads = ThreadPoolExecutor(os.cpu_count())
    with threads, ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        for name, dtype in ((name, dtype) for name in names for dtype in chosen):
            if dtype == "float64":
                found = measure_double(name, device, samples, exact, (threads, processes))
            elif dtype == "float32" and torch is not None and name != "pow":
                found = measure_all_singles(torch, name, device)
            else:
                narrow = 65536 if dtype != "float32" and name != "pow" else 1 << 22
                found = measure_narrow(name, dtype, device, narrow)
            yield name, dtype, found


def size(found: dict[str, Any]) -> str:
    """How many arguments, in words."""
    count = found["count"]
    return {2**32: "all", 65536: "all"}.get(count, f"{count:.1e}".replace("e+0", "e"))


def page(record: dict[str, Any]) -> str:
    """docs/accuracy.md."""
    devices = sorted({found["device"] for kinds in record["operators"].values() for found in kinds.values()})
    lines = [
        "# Accuracy",
        "",
        "The largest error of every mathematical operator in units in the last place (ULP) of its dtype, and the share",
        "of results that are not correctly rounded. 0.5 is a correctly rounded result. This page is written by",
        "`tools/accuracy.py` from `bench/results/accuracy.json`; the results are the same bits on every device.",
        "",
        f"Measured on: {'; '.join(devices)}.",
        "",
    ]
    for dtype in DTYPES:
        lines += [f"## {dtype}", ""]
        exact = " largest error (mpmath) |" if dtype == "float64" else ""
        lines += [f"| operator | arguments | largest error | found at | not correctly rounded |{exact}"]
        lines += ["|---|---|---|---|---|" + ("---|" if exact else "")]
        for name, kinds in record["operators"].items():
            found = kinds[dtype]
            at = ", ".join(f"{a:.9g}" if dtype != "float64" else f"{a:.17g}" for a in found["at"])
            cells = [name, size(found), f"{found['ulp']:.3f}", at, f"{100 * (1 - found['correct']):.4f} %"]
            if exact:
                cells.append(f"{found['exact_ulp']:.3f} in {found['exact_count']:,}")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines += [
        "softplus is measured without its threshold: from where on it returns its operand is part of its definition.",
        'gelu_tanh is `gelu(x, "tanh")`. pow is measured on pairs, most of them with a finite result. A result of the',
        "wrong kind (a NaN, another sign, also that of a zero) would count as an infinite error.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    taking = actions.add_parser("measure")
    taking.add_argument("out", type=Path, help="file to write; what it holds of others is kept")
    taking.add_argument("--device", default="cpu")
    taking.add_argument("--samples", type=float, default=1e8, help="float64 arguments per operator (1e8)")
    taking.add_argument("--exact", type=int, default=100_000, help="of them against mpmath (100000)")
    taking.add_argument("--names", default=",".join(OPERATORS), help="operators, separated by commas")
    taking.add_argument("--dtypes", default=",".join(DTYPES), help="dtypes, separated by commas")
    printing = actions.add_parser("page")
    printing.add_argument("results", type=Path, nargs="?", default=RESULTS)
    options = parser.parse_args()
    if options.action == "page":
        print(page(json.loads(options.results.read_text())), end="")
        return
    earlier = json.loads(options.out.read_text())["operators"] if options.out.exists() else {}
    record: dict[str, Any] = facts(None) | {"operators": earlier}
    where = record["device"] if options.device.startswith("cuda") else f"{platform.machine()} CPU"
    names, chosen = options.names.split(","), options.dtypes.split(",")
    for name, dtype, found in measure(names, chosen, options.device, int(options.samples), options.exact):
        record["operators"].setdefault(name, {})[dtype] = asdict(found) | {"device": where}
        exact = "" if found.exact_ulp is None else f", {found.exact_ulp:.4f} against mpmath"
        line = f"{name:10}{dtype:10}{found.ulp:9.4f} ULP at {found.at}, {100 * found.correct:.4f} % correct{exact}"
        print(line, flush=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
