"""Many threads call the founding operators at once; a program, so that every cache of the process starts cold.

    PYTHONPATH=src python tests/concurrent_ops.py DEVICE < ANSWERS

ANSWERS are the hashes of what one thread alone got, as JSON. Prints where an answer differs and how many were right.
"""

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import nbxtensor as nbx

THREADS = 8
ROUNDS = 3
SHAPES = [(24, 1003), (1, 70_001)]
OPERATORS: dict[str, Callable[[nbx.Tensor], Any]] = {
    "sigmoid": nbx.nn.sigmoid,
    "silu": nbx.nn.silu,
    "sin": nbx.sin,
    "softplus": nbx.nn.softplus,
    "softmax": nbx.nn.softmax,
    "log_softmax": nbx.nn.log_softmax,
    "sort": nbx.sort,
    "argsort": nbx.argsort,
    "topk": partial(nbx.topk, k=7),
    "cumulative_sum": partial(nbx.cumulative_sum, axis=-1),
}
ODD = (3, 40_001)  # rows that begin inside vectors
CALLS = [*((name, shape) for name in OPERATORS for shape in SHAPES), ("softmax", ODD), ("log_softmax", ODD)]

Answers = dict[str, str]


def operand(thread: int, shape: tuple[int, int], device: str) -> nbx.Tensor:
    """What one thread works on: values of its own, with ties."""
    rng = np.random.default_rng([thread, *shape])
    return nbx.asarray(np.round(rng.standard_normal(shape) * 4, 3).astype(np.float32), device=device)


def answer(name: str, x: nbx.Tensor) -> str:
    """Hash of the bits that an operator gives."""
    result = OPERATORS[name](x)
    digest = hashlib.sha256()
    for part in result if isinstance(result, tuple) else (result,):
        digest.update(np.ascontiguousarray(part.to_device("cpu")).tobytes())
    return digest.hexdigest()


def answers_of_one_thread(device: str) -> Answers:
    """Every answer, computed one after the other."""
    return {
        f"{name} {shape} {thread}": answer(name, operand(thread, shape, device))
        for name, shape in CALLS
        for thread in range(THREADS)
    }


def work(thread: int, device: str, start: threading.Barrier) -> list[tuple[str, str]]:
    """All calls of one thread: first each in step with the other threads, then in an order of its own."""
    operands = {shape: operand(thread, shape, device) for shape in (*SHAPES, ODD)}
    found: list[tuple[str, str]] = []
    for name, shape in CALLS:
        start.wait(300)
        found.append((f"{name} {shape} {thread}", answer(name, operands[shape])))
    order = np.random.default_rng(thread)
    for _ in range(ROUNDS):
        for index in order.permutation(len(CALLS)):
            name, shape = CALLS[index]
            found.append((f"{name} {shape} {thread}", answer(name, operands[shape])))
    return found


def main(device: str) -> int:
    """Compare what the threads get with the answers on standard input; gives how many differ."""
    expected: Answers = json.load(sys.stdin)
    sys.setswitchinterval(1e-5)
    start = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(partial(work, device=device, start=start), range(THREADS))
        found = [pair for several in results for pair in several]
    wrong = sorted({key for key, got in found if expected[key] != got})
    print("\n".join(wrong), len(found) - len(wrong))
    return len(wrong)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]) > 0)
