"""What `certify` and `verify` share: which device, and which calls."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DeviceError
from nbxtensor.base.knobs import CPU_LEVELS, cpu_level
from nbxtensor.certify.asked import Shape, example_of, shape_of
from nbxtensor.certify.census import Census
from nbxtensor.certify.shapes import usual_calls
from nbxtensor.cli.pack_calls import ops_option
from nbxtensor.cli.run import chosen_dims, input_shapes, parse_pairs, small_contents
from nbxtensor.device import discover, get
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, calls_of
from nbxtensor.onnx.model import load
from nbxtensor.tensor.defaults import default_device

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    ops_option("Operators at their usual shapes, or at those of --shapes"),
    click.option("--shapes", multiple=True, metavar="SIZES", help="Shapes of the operands of operators that are only named, one each: 64x1024. Commas divide alternatives."),  # noqa: E501
    click.option("--dtype", default=None, help="Dtype of these operands (float32)."),
    click.option("--model", "models", multiple=True, type=click.Path(path_type=Path), help="An ONNX file."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=N[,N]", help="Sizes of models' dimensions (1)."),
    click.option("--device", "name", default=None, help="Where to run: cpu, cuda, cuda:1."),
    click.option("--arch", default=None, help="The architecture: x86-64-v3, sm_90; chooses the device."),
)  # fmt: skip


def call_options(command: F) -> F:
    """The options that say which calls, and where."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def device_for(name: str | None, arch: str | None, look_only: bool, function: str) -> Device:
    """The device of this name or architecture.

    Raises
    ------
    DeviceError
        There is none here; with `look_only` any known architecture will do.
    """
    if look_only and arch is not None and name is None:
        return get(f"null:{arch}")
    if arch in CPU_LEVELS and name in (None, "cpu"):
        cpu_level.set(arch)  # nothing has opened the device yet
        device = get("cpu")
    elif name is not None or arch is None:
        device = get(name or default_device().name)
    else:
        here = [get(one) for one in discover()]
        device = next((d for d in here if d.target.arch == arch), here[0])
    if arch is not None and device.target.arch != arch:
        here = [f"{one} ({get(one).target})" for one in discover()]
        raise DeviceError(
            function, "no device here has this architecture", got=arch, allowed=here,
            mend=f"run this where there is one; nbxtensor certify --list --arch {arch} shows its keys without one",
        )  # fmt: skip
    if not device.computes and not look_only:
        raise DeviceError(function, f"{device.name} computes nothing", allowed=discover())
    return device


def _dims(texts: Sequence[str], function: str) -> list[list[str]]:
    """All combinations of ``name=1,2`` as lists of ``name=N``."""
    combined: list[list[str]] = [[]]
    for name, values in parse_pairs(texts, "--dim", function).items():
        combined = [[*one, f"{name}={value}"] for one in combined for value in values.split(",")]
    return combined


def census_of(
    device: Device,
    *,
    ops: Sequence[str],
    shapes: Sequence[str],
    dtype: str | None,
    models: Sequence[Path],
    dims: Sequence[str],
    function: str,
) -> Census:
    """The keys of what is asked for: models, operators, or else the usual calls.

    Raises
    ------
    NbxError
        A call cannot be made, or a model cannot be read.
    """
    if dims and not models:
        raise ArgumentError(function, "--dim needs a model", mend="add --model MODEL.onnx")
    census = Census(device)
    kind = None if dtype is None else dtypes.dtype(dtype, function)
    alternatives = _alternatives(shapes, function)
    named: list[str] = []

    def meant(name: str) -> Iterable[Example]:
        named.append(name)
        if shapes:
            return [example_of(name, alternative, kind) for alternative in alternatives]
        usual = [e for e in usual_calls(device.profile.warp_size > 1) if e.operator == name]
        if not usual:
            example_of(name, ())  # says what is missing
        return [e for e in usual if kind is None or any(s.dtype is kind for s in e.specs)]

    for text in ops:
        for call in calls_of(text, meant):
            census.add(call)
    if (shapes or kind is not None) and not named:
        mend = "add --op NAME; a call that is written out has its own"
        raise ArgumentError(function, "--shapes and --dtype need an operator that is only named", mend=mend)
    for path in models:
        model = load(path)
        for one in _dims(dims, function):
            sizes = chosen_dims(one, model.inputs, function)
            of_inputs = input_shapes(model.inputs, sizes, function)
            census.add_model(model, of_inputs, small_contents(model.inputs, of_inputs))
    if not ops and not models:
        census.add_all(usual_calls(device.profile.warp_size > 1))
    return census


def _alternatives(shapes: Sequence[str], function: str) -> list[list[Shape]]:
    """``a,b`` for one operand and ``c,d`` for the next: (a, c) and (b, d); a single shape goes with all."""
    parts = [[shape_of(part) for part in text.split(",")] for text in shapes]
    count = max(map(len, parts), default=0)
    if any(len(p) not in (1, count) for p in parts):
        allowed = "one shape for each operand, or as many as the others have"
        problem = "operands have different numbers of alternatives"
        raise ArgumentError(function, problem, got=" ".join(shapes), allowed=allowed)
    return [[p[i if len(p) > 1 else 0] for p in parts] for i in range(count)]
