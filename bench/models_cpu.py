"""The two models on the CPU against onnxruntime as it comes (default optimisation), same threads, same run."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.harness import OURS, Case, HostClock, Row, measure, parser, per_thread_count, report, slower
from bench.models import MAGIKA, MINILM, model_file

LIMIT = 0.5  # onnxruntime's time over ours: at most twice its time


def minilm_inputs(batch: int, length: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(1000, 30000, (batch, length), dtype=np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def magika_inputs() -> dict[str, np.ndarray]:
    return {"bytes": np.random.default_rng(0).integers(0, 256, (1, 2048), dtype=np.int32)}


def case(name: str, size: str, path: str, inputs: dict[str, np.ndarray], threads: int) -> Case:
    import onnxruntime

    import nbxtensor as nbx

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])
    model = nbx.onnx.load(path)
    ours: dict[str, Any] = {k: nbx.asarray(v) for k, v in inputs.items()}
    expected = session.run(None, inputs)
    for output, reference in zip(model(**ours).values(), expected, strict=True):
        worst = np.abs(np.asarray(output) - reference).max()
        if not worst <= 1e-4 * np.abs(reference).max():
            raise SystemExit(f"{name}: differs from onnxruntime by {worst}")
    return Case(name, size, {OURS: lambda: model(**ours), "onnxruntime": lambda: session.run(None, inputs)})


def cases(threads: int) -> Iterator[Case]:
    minilm, magika = str(model_file(MINILM)), str(model_file(MAGIKA))
    yield case("MiniLM", "[1,128]", minilm, minilm_inputs(1, 128), threads)
    yield case("MiniLM", "[8,128]", minilm, minilm_inputs(8, 128), threads)
    yield case("magika", "[1,2048]", magika, magika_inputs(), threads)


def first_run() -> None:
    """One MiniLM run, for `bench.import_time`, which measures the process."""
    import nbxtensor as nbx

    outputs = nbx.onnx.load(str(model_file(MINILM)))(**{k: nbx.asarray(v) for k, v in minilm_inputs(1, 128).items()})
    for output in outputs.values():
        np.asarray(output)


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--first-run", action="store_true", help="run MiniLM once and end")
    chosen = options.parse_args()
    if chosen.first_run:
        first_run()
        return 0

    def worker(threads: int) -> list[Row]:
        rows: list[Row] = []
        for one in cases(threads):
            if chosen.only in one.name:
                rows.append(measure(one, HostClock(), threads=threads, rounds=chosen.rounds, sample=0.2))
                print(".", end="", flush=True, file=sys.stderr)
        print(file=sys.stderr)
        return rows

    rows = per_thread_count("bench.models_cpu", chosen, worker)
    if rows is not None:
        report("Models on the CPU, fp32", rows, chosen)
        print("\n".join(["", f"more than {1 / LIMIT:.0f} times onnxruntime:", *(slower(rows, LIMIT) or ["nothing"])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
