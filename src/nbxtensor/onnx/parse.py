"""Model file -> `Graph`. Whatever is in the file, the outcome is a checked graph or a `ModelError` of one line."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nbxtensor.base.errors import MissingDependencyError, ModelError, NbxError
from nbxtensor.onnx.graph import Array, Attribute, Dim, Graph, Node, Port, Subgraph
from nbxtensor.onnx.tensors import element_type, to_array

OPSETS = range(7, 22)
DEFAULT_DOMAINS = ("", "ai.onnx")


def import_onnx() -> Any:
    """The onnx package, which only reading a model needs."""
    try:
        import onnx
    except ImportError as error:
        raise MissingDependencyError(
            "nbx.onnx.load", "the onnx package is missing", mend="install nbxtensor[onnx]"
        ) from error
    return onnx


def _refuse(problem: str, **facts: Any) -> ModelError:
    return ModelError("nbx.onnx.load", problem, **facts)


def read(source: str | Path | bytes) -> Graph:
    """Parse and check a model, given as a path or as the bytes of a file."""
    onnx = import_onnx()
    if isinstance(source, bytes):
        name, data, folder = "the model", source, None
    else:
        path = Path(source)
        name, folder = path.name, path.parent
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _refuse(f"cannot read {path}", got=error.strerror or type(error).__name__) from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        return _graph(proto, folder, name)
    except NbxError:
        raise
    except Exception as error:
        # protobuf has several exception types of its own, and broken text shows only when a field is read
        raise _refuse(f"{name} is not an ONNX file, or it is damaged", got=type(error).__name__) from error


def _graph(proto: Any, folder: Path | None, name: str) -> Graph:
    if not proto.HasField("graph") or not proto.graph.output:
        raise _refuse(f"{name} is not an ONNX file, or it is damaged", got="no graph with outputs")
    opset = _opset(proto)
    graph = proto.graph
    for text in _texts(graph):
        if not isinstance(text, str):  # protobuf hands out bytes where they are not UTF-8
            raise _refuse(f"{name} holds a name that is not UTF-8 text", got=repr(text))
    if graph.sparse_initializer:
        raise _refuse(f"{name} holds sparse constants, which are not supported")
    constants: dict[str, Array] = {}
    for tensor in graph.initializer:
        if not tensor.name or tensor.name in constants:
            raise _refuse("two constants have one name, or one has none", got=repr(tensor.name))
        constants[tensor.name] = to_array(tensor, f"constant {tensor.name!r}", folder)
    _unique((p.name for p in graph.input), "inputs")
    _unique((p.name for p in graph.output), "outputs")
    inputs = tuple(_port(p, "input") for p in graph.input if p.name not in constants)
    nodes = tuple(_node(n, i, folder) for i, n in enumerate(graph.node))
    _check_order(nodes, [*constants, *(p.name for p in inputs)], [p.name for p in graph.output])
    outputs = tuple(_port(p, "output") for p in graph.output)
    producer = f"{proto.producer_name} {proto.producer_version}".strip()
    return Graph(opset, producer, inputs, outputs, nodes, constants)


def _texts(graph: Any) -> Iterator[Any]:
    """Every name in a graph."""
    for thing in (*graph.initializer, *graph.input, *graph.output):
        yield thing.name
    for port in (*graph.input, *graph.output):
        yield from (dim.dim_param for dim in port.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.domain, node.op_type, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _opset(proto: Any) -> int:
    domains = Counter(o.domain if o.domain != "ai.onnx" else "" for o in proto.opset_import)
    if domains[""] != 1 or max(domains.values()) > 1:
        raise _refuse("the file must state the version of the standard operators once", got=f"{domains['']} times")
    version = next(int(o.version) for o in proto.opset_import if o.domain in DEFAULT_DOMAINS)
    if version not in OPSETS:
        raise _refuse(
            "this version of the standard operators is not supported",
            got=f"opset {version}",
            allowed=f"opset {OPSETS.start} to {OPSETS.stop - 1}",
        )
    return version


def _unique(names: Iterable[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1 or not name:
            raise _refuse(f"two {what} have one name, or one has none", got=repr(name))


def _port(proto: Any, kind: str) -> Port:
    where = f"{kind} {proto.name!r}"
    if not proto.type.HasField("tensor_type"):
        raise _refuse(f"{where} is not a tensor, which is not supported")
    tensor = proto.type.tensor_type
    dtype = element_type(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return Port(proto.name, dtype, None)
    shape: list[Dim] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            if dim.dim_value < -1:
                raise _refuse(f"{where} has an impossible dimension", got=str(dim.dim_value))
            shape.append(None if dim.dim_value == -1 else int(dim.dim_value))
        else:
            shape.append(dim.dim_param or None)
    return Port(proto.name, dtype, tuple(shape))


def _attribute(proto: Any, where: str, folder: Path | None) -> Attribute:
    if proto.ref_attr_name:
        raise _refuse(f"{where} refers to an attribute of a function, which is not supported")
    match proto.type:
        case 1:
            return float(proto.f)
        case 2:
            return int(proto.i)
        case 3:
            return proto.s.decode("utf-8")
        case 4:
            return to_array(proto.t, where, folder)
        case 6:
            return tuple(float(v) for v in proto.floats)
        case 7:
            return tuple(int(v) for v in proto.ints)
        case 8:
            return tuple(v.decode("utf-8") for v in proto.strings)
        case _:
            return Subgraph()


def _node(proto: Any, index: int, folder: Path | None) -> Node:
    domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
    node = Node(proto.op_type, domain, proto.name, index, tuple(proto.input), tuple(proto.output))
    attributes: dict[str, Attribute] = {}
    for attribute in proto.attribute:
        if attribute.name in attributes:
            raise _refuse(f"{node} has an attribute twice", got=repr(attribute.name))
        attributes[attribute.name] = _attribute(attribute, f"attribute {attribute.name!r} of {node}", folder)
    return Node(node.op, domain, node.name, index, node.inputs, node.outputs, attributes)


def _check_order(nodes: tuple[Node, ...], given: list[str], wanted: list[str]) -> None:
    """Every value has one maker, which comes before its readers."""
    made = set(given)
    later = {name for node in nodes for name in node.outputs}
    for node in nodes:
        for name in node.inputs:
            if name and name not in made:
                reason = "which only a later node makes (a cycle?)" if name in later else "which nothing makes"
                raise _refuse(f"{node} reads {name!r}, {reason}")
        for name in node.outputs:
            if name in made:
                raise _refuse(f"{node} makes {name!r}, which has been made before")
            if name:
                made.add(name)
    for name in wanted:
        if name not in made:
            raise _refuse(f"output {name!r} is made by nothing")
