"""What ``nbxtensor demo`` launches: its two models, and the operators around them."""

from collections.abc import Sequence

import numpy as np

from nbxtensor.base.dtypes import float32
from nbxtensor.cli.pack_census import enter_model
from nbxtensor.compiler.pack_build import Wanted
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of
from nbxtensor.kernel.launch import jobs_among
from nbxtensor.onnx.zoo.filetypes import BATCH, FileTypes
from nbxtensor.onnx.zoo.sentences import Sentences
from nbxtensor.tensor.tensor import new

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
WIDTH = 384
SENTENCES = (
    *((batch, tokens) for batch in range(1, 9) for tokens in range(3, 17)),
    *((1, 32), (1, 64), (1, 128), (1, 256), (3, 17), (2, 33)),
)
"""Sentences at once, and tokens of the longest, its two marks included."""
FILES = tuple(range(1, BATCH + 1))


def demo_census(found: Wanted, arches: Sequence[str]) -> None:
    """Enter what the demonstration launches on each architecture."""
    for arch in arches:
        device = NullDevice(target_of(arch))
        types = FileTypes(device)
        for batch in FILES:
            shape = (batch, types.input_shape[1])
            enter_model(found, types.model, device, {"bytes": shape}, f"magika bytes={batch}")
        sentences = Sentences(device)
        for batch, tokens in SENTENCES:
            origin = f"MiniLM batch={batch} sequence={tokens}"
            enter_model(found, sentences.model, device, dict.fromkeys(INPUTS, (batch, tokens)), origin)
            device.clear()
            mask = np.ones((batch, tokens), np.int64)
            vectors = sentences.pooled(new((batch, tokens, WIDTH), float32, device), mask)
            sentences.similarity(vectors)
            found.add(jobs_among(device.calls), origin)
