"""What to tell where a model needs a kernel that is in no pack and cannot be compiled: how to pack the model."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from nbxtensor.base.errors import NotPackedError
from nbxtensor.compiler.available import mend
from nbxtensor.device.artifact import Target
from nbxtensor.onnx.graph import Port


def open_axes(port: Port) -> Iterator[tuple[int, str]]:
    """The axes of an input whose size comes with it, each by its own name or as ``INPUT.AXIS``."""
    for axis, dim in enumerate(port.shape or ()):
        if not isinstance(dim, int):
            yield axis, dim or f"{port.name}.{axis}"


def explained(
    error: NotPackedError,
    target: Target,
    ports: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    file: str = "MODEL.onnx",
) -> NotPackedError:
    """`error` with the command that packs the model for inputs of these shapes."""
    sizes = {name: shapes[port.name][axis] for port in ports for axis, name in open_axes(port)}
    dims = "".join(f" --dim {shlex.quote(f'{name}={size}')}" for name, size in sorted(sizes.items()))
    command = f"nbxtensor pack --arch {target} --model {shlex.quote(file)}{dims} -o my.nbxpack"
    return NotPackedError("nbx.onnx.Model", error.problem, got=error.got, mend=mend(command))
