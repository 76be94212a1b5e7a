"""What a model file holds and what of it cannot run here; nothing is run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbxtensor.onnx import nodes, parse
from nbxtensor.onnx.graph import Graph
from nbxtensor.onnx.registry import missing
from nbxtensor.onnx.schema import violation
from nbxtensor.onnx.specialize import needed_nodes

assert nodes  # imported for the handlers that it registers


@dataclass(frozen=True, slots=True)
class Check:
    """What `check` found.

    Attributes
    ----------
    operators
        How many nodes of each operator the outputs depend on.
    unsupported
        One line per node that cannot run, empty if the model can.
    """

    opset: int
    operators: Mapping[str, int]
    unsupported: tuple[str, ...]


def unsupported(graph: Graph) -> list[str]:
    """One line per node that cannot run here."""
    lines: list[str] = []
    for node in needed_nodes(graph):
        reason = missing(node, graph.opset) or violation(node, graph.opset)
        if reason:
            lines.append(f"{node}: {reason}")
    return lines


def check(source: str | Path | bytes) -> Check:
    """Read a model file without making it ready to run.

    Raises
    ------
    ModelError
        The file is damaged.
    """
    graph = parse.read(source)
    operators = Counter(node.op for node in needed_nodes(graph))
    return Check(graph.opset, operators, tuple(unsupported(graph)))
