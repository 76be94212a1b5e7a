"""``nbxtensor run``: a model file from its inputs to its outputs."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import click
import numpy as np

from nbxtensor.base.errors import ArgumentError, OutOfMemoryError
from nbxtensor.base.shapes import as_shape
from nbxtensor.base.text import counted
from nbxtensor.cli.compiling import compile_kernels, naming_the_file, use_packs
from nbxtensor.cli.outputs import require_folder
from nbxtensor.cli.show import print_table
from nbxtensor.device.cpu_memory import memory_info
from nbxtensor.onnx.check import Check, check
from nbxtensor.onnx.graph import Port
from nbxtensor.onnx.model import MAX_CONTENT, Model, load
from nbxtensor.program.digest import digest
from nbxtensor.tensor.create import from_numpy, to_numpy
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.tensor import Tensor

FUNCTION = "nbxtensor run"
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def parse_pairs(pairs: Sequence[str], option: str, function: str = FUNCTION) -> dict[str, str]:
    """``name=value`` texts as a dict; of sizes the last ``=`` divides, which names may hold; of files the first."""
    result: dict[str, str] = {}
    for pair in pairs:
        name, divider, value = pair.rpartition("=") if option == "--dim" else pair.partition("=")
        if not divider or not name or not value:
            raise ArgumentError(function, f"{option} needs NAME=VALUE", got=pair)
        if name in result:
            raise ArgumentError(function, f"{option} names one thing twice", got=name)
        result[name] = value
    return result


def read_array(name: str, path: str) -> Array:
    """The array in an .npy file; pickles are refused."""
    try:
        array: Any = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(FUNCTION, f"cannot read {path} for input {name}", got=error.strerror) from error
    except (ValueError, EOFError, MemoryError) as error:
        raise ArgumentError(FUNCTION, f"{path} is not an .npy file of numbers, or it is damaged") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ArgumentError(FUNCTION, f"{path} holds several arrays", allowed="an .npy file")
    return array  # pyright: ignore[reportUnknownVariableType]


def input_shapes(ports: Sequence[Port], dims: dict[str, int], function: str = FUNCTION) -> dict[str, tuple[int, ...]]:
    """The shape of each input; what has no size in the model and none in `dims` is 1."""
    shapes: dict[str, tuple[int, ...]] = {}
    for port in ports:
        if port.shape is None:
            raise ArgumentError(function, f"input {port.name} has no known rank", mend="give it with --input of run")
        sizes = [d if isinstance(d, int) else dims.get(d, 1) if d else 1 for d in port.shape]
        shapes[port.name] = as_shape(sizes, function)
    return shapes


def _drawn(port: Port, shape: tuple[int, ...], seed: int, index: int) -> Array:
    """Random values: floats around 0, integers 0 and 1, which are valid as any index."""
    rng = np.random.default_rng([seed, index])
    drawn = rng.standard_normal(shape, np.float32) if port.dtype.is_float else rng.integers(0, 2, shape)
    return drawn.astype(port.dtype.numpy)


def seeded_inputs(ports: Sequence[Port], dims: dict[str, int], seed: int) -> dict[str, Array]:
    """One input of random values per port.

    Raises
    ------
    OutOfMemoryError
        There is too little memory for them; nothing is drawn then.
    """
    shapes = input_shapes(ports, dims)
    needed = sum(math.prod(shapes[port.name]) * (4 if port.dtype.is_float else 8) for port in ports)
    free, total = memory_info()
    if needed > free:
        sizes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
        problem = f"too little memory for random inputs: {needed:,} bytes needed, {free:,} of {total:,} free"
        raise OutOfMemoryError(FUNCTION, problem, got=sizes, mend="ask for smaller sizes with --dim")
    return {port.name: _drawn(port, shapes[port.name], seed, index) for index, port in enumerate(ports)}


def small_contents(ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Values of the inputs whose content may decide shapes, as `seeded_inputs` draws them."""
    return {
        port.name: _drawn(port, shapes[port.name], 0, index)
        for index, port in enumerate(ports)
        if not port.dtype.is_float and math.prod(shapes[port.name]) <= MAX_CONTENT
    }


def chosen_dims(texts: Sequence[str], ports: Sequence[Port], function: str = FUNCTION) -> dict[str, int]:
    """The sizes given with --dim, checked against the names that the model's inputs use."""
    known = {d for p in ports for d in p.shape or () if isinstance(d, str)}
    dims: dict[str, int] = {}
    for name, text in parse_pairs(texts, "--dim", function).items():
        if name not in known:
            raise ArgumentError(function, "no input has a dimension of this name", got=name, allowed=sorted(known))
        if not text.isdecimal():
            raise ArgumentError(function, f"--dim {name} needs a whole number", got=text)
        dims[name] = int(text)
    return dims


def write_outputs(outputs: dict[str, Array], folder: Path) -> dict[str, Path]:
    """One .npy file per output, named after it; bfloat16 is written as float32, which NumPy can read."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, Path] = {}
    for name, array in outputs.items():
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "output"
        path = folder / f"{stem}.npy"
        if path in paths.values():
            path = folder / f"{stem}_{len(paths)}.npy"
        np.save(path, array if array.dtype.kind != "V" and array.dtype.name != "bfloat16" else array.astype(np.float32))
        paths[name] = path
    return paths


def show_check(found: Check, as_json: bool) -> int:
    """Print what a check found; the exit status tells whether the model runs."""
    status = 2 if found.unsupported else 0
    if as_json:
        report = {"opset": found.opset, "operators": dict(found.operators), "unsupported": list(found.unsupported)}
        click.echo(json.dumps(report, indent=2))
        return status
    counts = ", ".join(f"{op} {n}" for op, n in Counter(found.operators).most_common())
    click.echo(f"opset {found.opset}, {counted(sum(found.operators.values()), 'node')}: {counts}")
    for line in found.unsupported:
        click.echo(f"not supported: {line}")
    if not found.unsupported:
        click.echo("every node is supported")
    return status


def show_outputs(report: dict[str, Any]) -> None:
    """Print a run's report as a table and a line."""
    rows = [
        (o["name"], o["dtype"], " × ".join(map(str, o["shape"])) or "scalar", o["hash"] or "-", o["file"] or "-")
        for o in report["outputs"]
    ]
    print_table("", ("output", "dtype", "shape", "hash", "file"), rows)
    seconds = ", ".join(f"{what.replace('_', ' ')} {s:.3f} s" for what, s in report["seconds"].items())
    kernels = counted(report["kernels"], "kernel")
    click.echo(f"{report['device']} ({report['target']}), {kernels}; {seconds}")


def execute(
    model: Model, arrays: dict[str, Array], device_name: str | None, report: dict[str, Any]
) -> dict[str, Tensor]:
    """Run a model on these inputs, noting the times in `report`."""
    seconds: dict[str, float] = report["seconds"]
    device = resolve_device(device_name)
    report["device"], report["target"] = device.name, str(device.target)
    started = perf_counter()
    tensors = {name: from_numpy(array, device) for name, array in model.checked(arrays).items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    jobs = model.specialize(shapes, device, arrays).jobs
    seconds["prepare"] = perf_counter() - started
    started = perf_counter()
    with naming_the_file(model, shapes, device, report["model"]):
        report["kernels"] = compile_kernels(jobs, device)
    seconds["compile"] = perf_counter() - started
    for what in ("first_run", "run"):
        started = perf_counter()
        outputs = model(**tensors)
        device.synchronize()
        seconds[what] = perf_counter() - started
    return outputs  # pyright: ignore[reportPossiblyUnboundVariable]


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; without any, all are random."
)
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a named dimension of random inputs (1).")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs.")
@click.option("--device", default=None, help="Where to run: cpu, cuda, cuda:1, null.")
@click.option(
    "--pack", "packs", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="A pack of kernels to use."
)
@click.option("--output-dir", default=".", show_default=True, type=click.Path(path_type=Path), help="Where outputs go.")
@click.option("--check", "only_check", is_flag=True, help="List nodes that are not supported, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    model: Path,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    device: str | None,
    packs: tuple[Path, ...],
    output_dir: Path,
    only_check: bool,
    as_json: bool,
) -> int:
    """Run the ONNX file MODEL and write its outputs as .npy files.

    \b
    Examples:
      nbxtensor run model.onnx --check
      nbxtensor run model.onnx --input ids=ids.npy --input mask=mask.npy
      nbxtensor run model.onnx --dim batch=8 --device cuda --json
      nbxtensor run model.onnx --pack model.nbxpack
    """
    use_packs(packs)
    if only_check:
        return show_check(check(model), as_json)
    require_folder(output_dir, FUNCTION, "name another folder with --output-dir")
    seconds: dict[str, float] = {}
    report: dict[str, Any] = {"model": str(model), "seconds": seconds}
    started = perf_counter()
    loaded = load(model)
    seconds["load"] = perf_counter() - started
    given = parse_pairs(inputs, "--input")
    sizes = chosen_dims(dims, loaded.inputs)
    if given:
        arrays = {name: read_array(name, path) for name, path in given.items()}
    else:
        arrays = seeded_inputs(loaded.inputs, sizes, seed)
    tensors = execute(loaded, arrays, device, report)
    computed = {name: to_numpy(t) for name, t in tensors.items() if t.device.computes}
    paths = write_outputs(computed, output_dir)
    report["inputs"] = [
        {"name": n, "dtype": a.dtype.name, "shape": list(a.shape), "seed": None if given else seed}
        for n, a in arrays.items()
    ]
    report["outputs"] = [
        {
            "name": name,
            "dtype": tensor.dtype.name,
            "shape": list(tensor.shape),
            "hash": digest(computed[name]) if name in computed else None,
            "file": str(paths[name]) if name in paths else None,
        }
        for name, tensor in tensors.items()
    ]
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        show_outputs(report)
    return 0
