"""Write the calls of the demonstration's models for `nbxtensor certify`: ``python -m tools.demo_calls``."""

import sys
from collections.abc import Iterator

from nbxtensor.certify.census import Census
from nbxtensor.certify.shapes import DEMO
from nbxtensor.device import get
from nbxtensor.kernel.call_text import Example
from nbxtensor.onnx.model import load
from nbxtensor.onnx.zoo import files

MINILM = [(1, 128), (8, 128)]
MAGIKA = [(1, 2048), (16, 2048)]


def calls() -> Iterator[Example]:
    """Every call of the models that launches something, once."""
    census = Census(get("null:sm_90"))
    minilm = load(files.model_file(files.MINILM, lambda text: print(text, file=sys.stderr)))
    for shape in MINILM:
        census.add_model(minilm, {port.name: shape for port in minilm.inputs})
    magika = load(files.model_file(files.MAGIKA))
    for shape in MAGIKA:
        census.add_model(magika, {port.name: shape for port in magika.inputs})
    if census.left_out:
        raise SystemExit(f"left out: {census.left_out}")
    yield from census.examples


def text() -> str:
    """The file: a call a line."""
    return "".join(f"{call}\n" for call in calls())


if __name__ == "__main__":
    DEMO.write_text(text())
    print(f"{len(DEMO.read_text().splitlines())} calls written to {DEMO}")
