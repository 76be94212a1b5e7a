"""Operators on the CPU against NumPy and torch: the plain call as a user writes it, and with ``out=``."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.harness import COPY, OURS, Call, Case, HostClock, Row, measure, parser, per_thread_count, report, slower

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
PAUSE = 0.03 if os.cpu_count() != 1 else 0.0  # libgomp spins for some milliseconds
ROWS = ((64, 1024), (4096, 1024), (1024, 4096), (16384, 128), (4096, 1000), (32, 32768))
MATRICES = ((1024, 1024, 1024), (128, 384, 384), (128, 384, 1536), (128, 1536, 384), (1024, 384, 1536))


@dataclass(frozen=True)
class Operator:
    """One function in each library; a None says that the library has none."""

    name: str
    ours: Callable[..., Any]
    torch: Callable[..., Any] | None
    numpy: Callable[..., Any] | None
    operands: int = 1
    out: bool = True


def elementwise(nbx: Any, torch: Any) -> list[Operator]:
    nn = torch._C._nn  # the functions behind torch.nn.functional, which take out=
    return [
        Operator("exp", nbx.exp, torch.exp, np.exp),
        Operator("sin", nbx.sin, torch.sin, np.sin),
        Operator("tanh", nbx.tanh, torch.tanh, np.tanh),
        Operator("sigmoid", nbx.nn.sigmoid, torch.sigmoid, np_sigmoid),
        Operator("silu", nbx.nn.silu, nn.silu, np_silu),
        Operator("softplus", nbx.nn.softplus, nn.softplus, np_softplus),
        Operator("gelu", nbx.nn.gelu, nn.gelu, None),
        Operator("add", nbx.add, torch.add, np.add, operands=2),
        Operator("multiply", nbx.multiply, torch.mul, np.multiply, operands=2),
    ]


def along_rows(nbx: Any, torch: Any) -> list[Operator]:
    def cumulative(x: Any) -> Any:
        return nbx.cumulative_sum(x, axis=-1)

    def layer_norm(x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    return [
        Operator("softmax", nbx.nn.softmax, lambda x: torch.softmax(x, -1), np_softmax, out=False),
        Operator("log_softmax", nbx.nn.log_softmax, lambda x: torch.log_softmax(x, -1), np_log_softmax, out=False),
        Operator("layer_norm", nbx.nn.layer_norm, layer_norm, np_layer_norm, out=False),
        Operator("sum", lambda x: nbx.sum(x, axis=-1), lambda x: torch.sum(x, -1), lambda x: np.sum(x, -1), out=False),
        Operator("cumulative_sum", cumulative, lambda x: torch.cumsum(x, -1), lambda x: np.cumsum(x, -1), out=False),
    ]


def np_sigmoid(x: Any, out: Any = None) -> Any:
    out = np.exp(np.negative(x, out=out), out=out)
    return np.reciprocal(np.add(out, 1, out=out), out=out)


def np_silu(x: Any, out: Any = None) -> Any:
    return np.multiply(x, np_sigmoid(x, out), out=out)


def np_softplus(x: Any, out: Any = None) -> Any:
    return np.logaddexp(x, np.float32(0), out=out)


def np_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return e


def np_log_softmax(x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def np_layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    centred *= 1 / np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(1e-5))
    return centred


def same(case: Case) -> Case:
    """`case` as it is, after its contestants were seen to agree: a wrong result has no speed."""
    results = {n: np.asarray(call(), dtype=np.float64) for n, call in case.contestants.items() if n != COPY}
    for peer, result in results.items():
        scale = max(1.0, float(np.abs(result).max()))
        worst = float(np.abs(results[OURS] - result).max())
        if not worst <= 1e-4 * scale:
            raise SystemExit(f"{case.name} {case.size}: {OURS} and {peer} differ by {worst}")
    return case


def contestants(op: Operator, nbx: Any, torch: Any, operands: list[np.ndarray], with_out: bool) -> dict[str, Call]:
    ours, theirs = [nbx.asarray(a) for a in operands], [torch.from_numpy(a) for a in operands]
    outs: list[dict[str, Any]] = [{}, {}, {}]
    if with_out:
        empty = [np.zeros_like(operands[0]) for _ in outs]
        outs = [{"out": nbx.asarray(empty[0])}, {"out": torch.from_numpy(empty[1])}, {"out": empty[2]}]
    calls: dict[str, Call] = {OURS: lambda: op.ours(*ours, **outs[0])}
    if op.torch is not None:
        function = op.torch
        calls["torch"] = lambda: function(*theirs, **outs[1])
    if op.numpy is not None:
        plain = op.numpy
        calls["numpy"] = lambda: plain(*operands, **outs[2])
    return calls


def copy_call(torch: Any, like: np.ndarray) -> Call:
    """A copy of `like` to memory that is there already, with as many threads as the others have."""
    source, target = torch.from_numpy(like), torch.from_numpy(np.zeros_like(like))
    return lambda: target.copy_(source)


def cases(nbx: Any, torch: Any, only: str) -> Iterator[Case]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    for op in elementwise(nbx, torch):
        if only not in op.name:
            continue
        for n in SIZES:
            operands = [normal(n) for _ in range(op.operands)]
            for with_out in (False, True):
                calls = contestants(op, nbx, torch, operands, with_out)
                if with_out:
                    calls[COPY] = copy_call(torch, operands[0])
                label = op.name + (" out=" if with_out else "")
                yield same(Case(label, f"{n:,}", calls, (op.operands + 1) * 4 * n, 8 * n))
    for op in along_rows(nbx, torch):
        if only not in op.name:
            continue
        for shape in ROWS:
            operands = [normal(*shape)]
            calls = contestants(op, nbx, torch, operands, False)
            yield same(Case(op.name, "x".join(map(str, shape)), calls, 8 * math.prod(shape)))
    if only in "matmul":
        for m, k, n in MATRICES:
            calls = contestants(
                Operator("matmul", nbx.matmul, torch.matmul, np.matmul), nbx, torch, [normal(m, k), normal(k, n)], False
            )
            yield same(Case("matmul", f"{m}x{k}x{n}", calls, flops=2 * m * k * n))


def main() -> int:
    options = parser(__doc__ or "").parse_args()

    def worker(threads: int) -> list[Row]:
        import torch

        import nbxtensor as nbx

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        rows: list[Row] = []
        for case in cases(nbx, torch, options.only):
            rows.append(measure(case, HostClock(), threads=threads, rounds=options.rounds, pause=PAUSE))
            print(".", end="", flush=True, file=sys.stderr)
        print(file=sys.stderr)
        return rows

    rows = per_thread_count("bench.ops_cpu", options, worker)
    if rows is not None:
        report("Operators on the CPU, fp32", rows, options)
        behind = slower([r for r in rows if r.name != "matmul"]) + slower([r for r in rows if r.name == "matmul"], 0.6)
        print("\n".join(["", "slower than a peer (matmul: than 60 % of a peer):", *(behind or ["nothing"])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
