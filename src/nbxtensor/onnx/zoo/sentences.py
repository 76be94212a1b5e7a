"""Sentences as vectors of length 1, by all-MiniLM-L6-v2: how alike two are is the product of their vectors."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from nbxtensor.base.dtypes import float32
from nbxtensor.base.errors import MissingDependencyError, ModelError
from nbxtensor.device.protocol import Device
from nbxtensor.onnx.model import Model, load
from nbxtensor.onnx.zoo import files
from nbxtensor.tensor.create import from_numpy
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
MAX_TOKENS = 256


class Sentences:
    """The model and its tokenizer.

    Parameters
    ----------
    device
        Where the model runs.
    progress
        Called with a line of text before a download.
    """

    def __init__(self, device: Device, progress: files.Progress | None = None) -> None:
        try:
            from tokenizers import Tokenizer  # only sentences need it
        except ImportError as error:
            raise MissingDependencyError(
                "nbxtensor demo", "the tokenizers package is missing", mend="install nbxtensor[cli]"
            ) from error
        self.model: Model = load(files.model_file(files.MINILM, progress), device)
        path = files.model_file(files.TOKENIZER, progress)
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises bare Exception
            raise ModelError("nbxtensor demo", f"{path} is damaged") from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def tokens(self, sentences: Sequence[str]) -> dict[str, Array]:
        """The model's inputs for these sentences, padded to the longest."""
        encoded = self._tokenizer.encode_batch(list(sentences))
        return {
            "input_ids": np.array([e.ids for e in encoded], np.int64),
            "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
            "token_type_ids": np.array([e.type_ids for e in encoded], np.int64),
        }

    def embed(self, inputs: dict[str, Array]) -> Tensor:
        """One row per sentence: the mean of its tokens' vectors, scaled to length 1."""
        (hidden,) = self.model(**inputs).values()
        return self.pooled(hidden, inputs["attention_mask"])

    def pooled(self, hidden: Tensor, attention: Array) -> Tensor:
        """The last step of `embed`: from the vectors of tokens to those of sentences."""
        mask = from_numpy(attention[:, :, None], hidden.device)
        weights = table["astype"](mask, float32)
        total = table["sum"](table["multiply"](hidden, weights), axis=1)
        mean = table["divide"](total, table["sum"](weights, axis=1))
        length = table["sqrt"](table["sum"](table["multiply"](mean, mean), axis=1, keepdims=True))
        return table["divide"](mean, length)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Products of all pairs of vectors: 1 for the same direction."""
        return table["matmul"](vectors, vectors.permute_dims(1, 0))
