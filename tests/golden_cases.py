"""The cases of the bits harness: every declared operator on its samples, in every dtype that it takes.

As a program it takes the golden bits of every universal operator on a GPU:

    PYTHONPATH=src python tests/golden_cases.py OUT.json [--device cuda]

The file names the commit, the GPU, the driver and the compilers; test_golden.py checks it on every device.
"""

import argparse
import contextlib
import hashlib
import json
import subprocess
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get
from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.dispatch import table

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint64")


def bits_hash(arrays: list[np.ndarray]) -> str:
    """Hash of dtypes, shapes and bits; every NaN counts as one and the same."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        if array.dtype.kind not in "biu":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        digest.update(f"{array.dtype.name}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _converted(sample: tuple[Any, ...], dtype: str) -> tuple[Any, ...]:
    kind = dtypes.dtype(dtype).numpy

    def convert(a: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return type(a)(convert(one) for one in a)
        if not isinstance(a, np.ndarray) or a.dtype.kind not in "f":
            return a
        if kind.kind in "iu":
            low, high = (-100, 100) if kind.kind == "i" else (0, 200)
            return np.clip(np.nan_to_num(a), low, high).astype(kind)
        with np.errstate(all="ignore"):
            return a.astype(kind)

    return tuple(convert(a) for a in sample)


def cases() -> Iterator[tuple[str, Operator, tuple[Any, ...]]]:
    """Name, operator and arguments (NumPy arrays and Python values), the same on every machine."""
    table["add"]  # loads every operator
    for name, op in sorted(operators.items()):
        if op.samples is None or op.guarantee != "universal":
            continue
        for dtype in (*FLOATS, *INTEGERS):
            rng = np.random.default_rng(zlib.crc32(f"{name}/{dtype}".encode()))
            for index, sample in enumerate(op.samples(rng)):
                yield f"{name}/{dtype}/{index}", op, _converted(sample, dtype)


def on_device(argument: Any, device: Any) -> Any:
    """The argument with every array in it as a tensor."""
    if isinstance(argument, (list, tuple)):
        return type(argument)(on_device(one, device) for one in argument)
    return nbx.asarray(argument, device=device) if isinstance(argument, np.ndarray) else argument


def arrays_of(args: tuple[Any, ...]) -> list[np.ndarray]:
    """The arrays among the arguments, in order."""
    flat = [one for a in args for one in (a if isinstance(a, (list, tuple)) else [a])]
    return [a for a in flat if isinstance(a, np.ndarray)]


def compile_all(device: str) -> None:
    """Compile every kernel that the cases need, in parallel: a device that computes nothing records the launches."""
    null = get(f"null:{get(device).target.arch}")
    null.clear()
    for _, op, args in cases():
        with contextlib.suppress(DTypeError):
            op.function(*[on_device(a, null.name) for a in args])
    compile_many([call.job for call in null.calls])


def run(op: Operator, args: tuple[Any, ...], device: str) -> list[np.ndarray] | None:
    """Results on `device`, or None where the operator does not take the dtype."""
    tensors = [on_device(a, device) for a in args]
    try:
        result = op.function(*tensors)
    except DTypeError:
        return None
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r.to_device("cpu")) for r in results]


def versions() -> dict[str, str]:
    """Versions of what decides the bits."""
    found: dict[str, str] = {}
    for package in ("triton", "llvmlite", "numpy", "cuda-bindings"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def said(*command: str) -> str:
    """First line that a command prints, or why there is none."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        return f"unknown ({type(error).__name__})"


def facts(commit: str | None) -> dict[str, Any]:
    """Where golden bits come from."""
    return {
        "commit": commit or said("git", "rev-parse", "HEAD"),
        "device": said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "versions": versions(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", default=None, help="commit to record where the tree has no .git")
    options = parser.parse_args()
    compile_all(options.device)
    taken: dict[str, Any] = {}
    for name, op, args in cases():
        result = run(op, args, options.device)
        if result is not None:
            taken[name] = {"input": bits_hash(arrays_of(args)), "output": bits_hash(result)}
    record = facts(options.commit) | {"cases": taken}
    options.out.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
    print(f"{len(taken)} cases written to {options.out}")


if __name__ == "__main__":
    main()
