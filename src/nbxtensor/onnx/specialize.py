"""Graph + shapes of the inputs -> programs."""

from collections.abc import Mapping
from dataclasses import dataclass

from nbxtensor.base.errors import (
    CompileError,
    DeviceError,
    MissingDependencyError,
    ModelError,
    NbxError,
    OutOfMemoryError,
    PackError,
)
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import jobs_among
from nbxtensor.onnx.graph import Array, Graph, Node
from nbxtensor.onnx.registry import ContentNeededError, Context, Inputs, find
from nbxtensor.onnx.schema import misfit
from nbxtensor.program import Runner, Traced, Tracer, Value
from nbxtensor.tensor.create import from_numpy
from nbxtensor.tensor.tensor import Tensor

FUNCTION = "nbx.onnx"
NOT_THE_MODELS_FAULT = (CompileError, DeviceError, MissingDependencyError, OutOfMemoryError, PackError)


@dataclass(frozen=True, slots=True)
class Specialization:
    """A model for one set of input shapes on one kind of device; nothing has run yet."""

    traced: Traced

    @property
    def jobs(self) -> list[Job]:
        """Every kernel that a run needs, in order, with repetitions."""
        return jobs_among(self.traced.launches)

    def bind(self, device: Device, store: dict[int, Tensor]) -> Runner:
        """Put the constants on `device`, computing once what depends on them alone.

        `store` keeps the constants that other specializations of the same model on the same device can use.
        """
        traced = self.traced
        constants: dict[int, Tensor] = {}
        live = {s for call in traced.program.calls for s in call.reads}
        absent = {s: v for s, v in traced.folded.items() if v.number not in store or not v.shared}
        folds = traced.folds.only(tuple(absent))
        uploads = live.union(*(call.reads for call in folds.calls))
        for slot, value in traced.arrays.items():
            if slot in uploads:
                known = store.get(value.number) if value.shared else None
                assert value.array is not None
                constants[slot] = from_numpy(value.array, device) if known is None else known
        inputs = [constants[slot] for slot in folds.inputs]
        for slot, tensor in zip(folds.outputs, Runner(folds, {}, FUNCTION).run(inputs), strict=True):
            constants[slot] = tensor
        for slot, value in traced.folded.items():
            if slot not in constants:
                constants[slot] = store[value.number]
        constants = {s: t for s, t in constants.items() if s in live}
        for slot, tensor in constants.items():
            value = traced.arrays.get(slot) or traced.folded[slot]
            if value.shared:
                store[value.number] = tensor
        return Runner(traced.program, constants, FUNCTION)


def needed_nodes(graph: Graph) -> list[Node]:
    """The nodes that the outputs depend on, in order."""
    wanted = {p.name for p in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    return kept[::-1]


def specialize(
    graph: Graph,
    device: Device,
    shapes: Mapping[str, tuple[int, ...]],
    contents: Mapping[str, Array],
    named: dict[object, int],
) -> Specialization:
    """Trace a model for inputs of these shapes, and of these contents where shapes depend on them.

    Parameters
    ----------
    device
        Where it is going to run; only its target and profile are looked at.
    named
        Shared by all specializations of a model (see `Tracer`).

    Raises
    ------
    ContentNeededError
        A shape depends on the content of inputs whose content is not given.
    ModelError
        A node does not fit its inputs.
    """
    null = NullDevice(device.target, device.profile)
    tracer = Tracer(null, null.calls, named)
    context = Context(tracer, graph.opset)
    values: dict[str, Value] = {}
    for port in graph.inputs:
        values[port.name] = tracer.input(port.name, shapes[port.name], port.dtype)
        if port.name in contents:
            values[port.name] = tracer.constant(contents[port.name])
    used = {name for node in needed_nodes(graph) for name in node.inputs} | {p.name for p in graph.outputs}
    for name, array in graph.constants.items():
        if name in used:
            values[name] = tracer.constant(array, name)
    for node in needed_nodes(graph):
        tracer.source = str(node)
        inputs = [values[name] if name else None for name in node.inputs]
        _enter(values, node, _apply(context, node, inputs))
    return Specialization(tracer.finish([values[p.name] for p in graph.outputs]))


def _enter(values: dict[str, Value], node: Node, results: list[Value | None]) -> None:
    for position, name in enumerate(node.outputs):
        if name:
            value = results[position] if position < len(results) else None
            if value is None:
                raise ModelError(FUNCTION, f"{node}: output number {position} is not supported")
            values[name] = value


def _apply(context: Context, node: Node, inputs: Inputs) -> list[Value | None]:
    """Run the handler of a node; whatever does not fit is a `ModelError` that names the node."""
    handler = find(node.op, context.opset)
    if handler is None:
        raise ModelError(FUNCTION, f"{node} is not supported")
    wrong = misfit(node, context.opset, [v and v.dtype for v in inputs])
    if wrong:
        raise ModelError(FUNCTION, f"{node}: {wrong}")
    try:
        results = handler.function(context, node, inputs)
    except ContentNeededError as needed:
        if needed.roots:
            raise
        raise ModelError(FUNCTION, f"{node}: {needed.what} cannot be known before the model runs") from needed
    except NOT_THE_MODELS_FAULT:
        raise
    except ModelError as error:
        raise ModelError(
            FUNCTION, f"{node}: {error.problem}", got=error.got, allowed=error.allowed, mend=error.mend
        ) from error
    except NbxError as error:
        raise ModelError(FUNCTION, f"{node}: {error}") from error
    except Exception as error:
        # a damaged file can hold anything: whatever NumPy or an operator says of it is told with the node's name
        shapes = ", ".join("-" if v is None else f"{v.dtype.name} {v.shape}" for v in inputs)
        raise ModelError(FUNCTION, f"{node} cannot be applied to {shapes}: {error}") from error
    return [results] if isinstance(results, Value) else list(results)
