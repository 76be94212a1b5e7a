"""The kernels that models and calls of operators launch, found on devices that compute nothing."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from nbxtensor.base.errors import ArgumentError
from nbxtensor.cli import pack_calls
from nbxtensor.cli.run import parse_pairs
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.pack_build import Wanted
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of
from nbxtensor.kernel.call_text import Example, calls_of
from nbxtensor.kernel.launch import jobs_among
from nbxtensor.onnx.graph import Port
from nbxtensor.onnx.model import MAX_CONTENT, Model, load
from nbxtensor.onnx.unpacked import open_axes

FUNCTION = "nbxtensor pack"
MAX_SHAPES = 4096
Shapes = dict[str, tuple[int, ...]]


def both_alignments(job: Job) -> tuple[Job, ...]:
    """`job` for pointers that are multiples of 16, and for others, where the target tells them apart."""
    if load_profile(job.target.arch).warp_size == 1:
        return (job,)
    pointers = {name for name, kind in job.signature if isinstance(kind, str) and kind.startswith("*")}
    aligned = job.divisible | pointers
    return replace(job, divisible=frozenset(aligned)), replace(job, divisible=frozenset(aligned - pointers))


# Operators


def operator_census(found: Wanted, arches: Sequence[str], ops: Sequence[str]) -> None:
    """Enter what the calls in these lists launch on each architecture, for pointers of any alignment."""
    calls = [call for text in ops for call in calls_of(text, pack_calls.usual)]
    for arch in arches:
        device = NullDevice(target_of(arch))
        for call in calls:
            _enter(found, device, call, both_alignments)


def common_census(found: Wanted, arches: Sequence[str]) -> None:
    """Enter what the package's own pack has of operators: their usual calls on tensors that start in a line of 16."""
    calls = [call for name in pack_calls.COMMON for call in pack_calls.usual(name)]
    for arch in arches:
        device = NullDevice(target_of(arch))
        for call in calls:
            _enter(found, device, call, lambda job: (job,))


def _enter(found: Wanted, device: NullDevice, call: Example, variants: Callable[[Job], tuple[Job, ...]]) -> None:
    device.clear()
    call.run(device)
    for job in jobs_among(device.calls):
        found.add(variants(job), str(call))


# Models


def sizes_of(text: str, name: str) -> list[int]:
    """The numbers in ``1,2,8-16``."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise ArgumentError(FUNCTION, f"--dim {name} needs numbers and ranges", got=text, allowed="as in 1,2,8-16")
        low, high = int(first), int(last or first)
        if len(found) + high + 1 - low > MAX_SHAPES:
            raise ArgumentError(FUNCTION, f"--dim {name} has too many sizes", got=text, allowed=f"{MAX_SHAPES}")
        found += range(low, high + 1)
    return found


def names_of(ports: Iterable[Port]) -> set[str]:
    """Everything that --dim can name of a model."""
    ports = list(ports)
    for port in ports:
        if port.shape is None:
            raise ArgumentError(
                FUNCTION, f"input {port.name} has no known rank", allowed="inputs whose rank the model states"
            )
    return {name for port in ports for _, name in open_axes(port)}


def shapes_of(ports: Sequence[Port], sizes: Mapping[str, list[int]]) -> Iterator[tuple[str, Shapes]]:
    """All combinations of sizes, as text and as shapes of the inputs."""
    names = sorted(names_of(ports))
    for values in product(*(sizes.get(name, [1]) for name in names)):
        chosen = dict(zip(names, values, strict=True))
        shapes: Shapes = {}
        for port in ports:
            shape = [dim if isinstance(dim, int) else 1 for dim in port.shape or ()]
            for axis, name in open_axes(port):
                shape[axis] = chosen[name]
            shapes[port.name] = tuple(shape)
        yield " ".join(f"{name}={size}" for name, size in chosen.items()), shapes


def enter_model(found: Wanted, model: Model, device: NullDevice, shapes: Shapes, origin: str) -> None:
    """Enter what a model launches for inputs of these shapes; a content that decides shapes is taken to be ones."""
    contents = {
        port.name: np.ones(shapes[port.name], port.dtype.numpy)
        for port in model.inputs
        if not port.dtype.is_float and math.prod(shapes[port.name]) <= MAX_CONTENT
    }
    found.add(model.specialize(shapes, device, contents).jobs, origin)


def model_census(found: Wanted, arches: Sequence[str], paths: Sequence[Path], dims: Sequence[str]) -> None:
    """Enter what the models launch on each architecture, for every combination of sizes."""
    sizes = {name: sizes_of(text, name) for name, text in parse_pairs(dims, "--dim").items()}
    models = [(path, load(path)) for path in paths]
    known = {name for _, model in models for name in names_of(model.inputs)}
    for name in sizes:
        if name not in known:
            raise ArgumentError(FUNCTION, "no input has a dimension of this name", got=name, allowed=sorted(known))
    for path, model in models:
        several = list(shapes_of(model.inputs, sizes))
        if len(several) > MAX_SHAPES:
            raise ArgumentError(
                FUNCTION, "there are too many combinations of sizes", got=len(several), allowed=f"{MAX_SHAPES}"
            )
        for arch in arches:
            device = NullDevice(target_of(arch))
            for text, shapes in several:
                enter_model(found, model, device, shapes, f"{path.name} {text}".strip())
