"""What ``nbxtensor demo`` launches: its two models, and the operators around them."""

from collections.abc import Iterator

import numpy as np

from nbxtensor.cli.pack_census import enter_model
from nbxtensor.compiler.pack_build import Census
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel.launch import Call as Launch
from nbxtensor.onnx.zoo.filetypes import BATCH, FileTypes
from nbxtensor.onnx.zoo.sentences import Sentences

SENTENCES = (1, 2, 3, 4, 5, 6, 7, 8, 16)
"""How many sentences at once."""
TOKENS = (*range(3, 33), 48, 64, 96, 128)
"""Lengths that a sentence, with its two marks, may have."""
FILES = tuple(range(1, BATCH + 1))


def sentence_shapes() -> Iterator[tuple[int, int]]:
    """Sentences and tokens that are covered."""
    for batch in SENTENCES:
        for tokens in TOKENS:
            yield batch, tokens


def demo_census(found: Census, device: NullDevice) -> None:
    """Enter what the demonstration launches on `device`."""
    types = FileTypes(device)
    for batch in FILES:
        shape = (batch, types.input_shape[1])
        enter_model(found, types.model, device, {"bytes": shape}, None, f"magika bytes={batch}")
    sentences = Sentences(device)
    for batch, tokens in sentence_shapes():
        origin = f"MiniLM batch={batch} sequence={tokens}"
        names = ("input_ids", "attention_mask", "token_type_ids")
        enter_model(found, sentences.model, device, dict.fromkeys(names, (batch, tokens)), None, origin)
