"""The models that benchmarks run, fetched if they are missing."""

import sys
from pathlib import Path

from nbxtensor.onnx.zoo import files

MAGIKA, MINILM = files.MAGIKA, files.MINILM


def model_file(name: str) -> Path:
    """Path of a model; what is done about a missing one is told on standard error."""
    return files.model_file(name, lambda text: print(text, file=sys.stderr))
