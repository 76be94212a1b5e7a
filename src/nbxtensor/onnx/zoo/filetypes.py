"""The type of a file from its first and last bytes, by the magika model.

What the model sees of a file: the first and the last block are stripped of white space, the start of the one and the
end of the other are kept, and missing bytes are filled with a number that no byte has. The sizes and the thresholds
are in the configuration that comes with the model.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nbxtensor.base.errors import ModelError
from nbxtensor.device.protocol import Device
from nbxtensor.onnx.model import Model, load
from nbxtensor.onnx.zoo import files
from nbxtensor.tensor.create import to_numpy

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
BATCH = 16


@dataclass(frozen=True, slots=True)
class FileType:
    """What a file is.

    Attributes
    ----------
    label
        Short name (``"python"``); ``"unknown"`` or ``"txt"`` where the model is not sure enough.
    description, group, mime
        From the table that comes with the model.
    score
        The model's probability of its first choice; 1 where the file's size alone decides.
    """

    path: str
    label: str
    description: str
    group: str
    mime: str
    score: float


class FileTypes:
    """The model, its configuration and its table of types.

    Parameters
    ----------
    device
        Where the model runs.
    progress
        Called with a line of text before a download.
    """

    def __init__(self, device: Device, progress: files.Progress | None = None) -> None:
        self.model: Model = load(files.model_file(files.MAGIKA, progress), device)
        try:
            config = json.loads(files.model_file(files.MAGIKA_CONFIG).read_bytes())
            self._types: dict[str, dict[str, Any]] = json.loads(files.model_file(files.MAGIKA_TYPES).read_bytes())
            self._start, self._end, self._block = config["beg_size"], config["end_size"], config["block_size"]
            self._filler, self._smallest = config["padding_token"], config["min_file_size_for_dl"]
            self._labels: list[str] = config["target_labels_space"]
            self._thresholds: dict[str, float] = config["thresholds"]
            self._threshold: float = config["medium_confidence_threshold"]
            self._renamed: dict[str, str] = config["overwrite_map"]
        except (ValueError, KeyError) as error:
            raise ModelError("nbxtensor demo", f"the configuration in {files.models_dir()} is damaged") from error

    @property
    def input_shape(self) -> tuple[int, int]:
        """Shape of one full batch of files."""
        return BATCH, self._start + self._end

    def features(self, data: bytes) -> Array | None:
        """What the model sees of a file's content; None where there is too little for it."""
        return self._features(data[: self._block], data[-self._block :])

    def _features(self, first: bytes, last: bytes) -> Array | None:
        start, end = first.lstrip()[: self._start], last.rstrip()[-self._end :]
        if len(start) < self._smallest:
            return None
        row = np.full(self._start + self._end, self._filler, np.int32)
        row[: len(start)] = np.frombuffer(start, np.uint8)
        if end:
            row[len(row) - len(end) :] = np.frombuffer(end, np.uint8)
        return row

    def identify(self, paths: Sequence[Path]) -> Iterator[FileType]:
        """The type of each file, in order; a path that cannot be read raises OSError."""
        for i in range(0, len(paths), BATCH):
            yield from self._batch(paths[i : i + BATCH])

    def _batch(self, paths: Sequence[Path]) -> list[FileType]:
        found: dict[int, FileType] = {}
        rows: dict[int, Array] = {}
        for index, path in enumerate(paths):
            if path.is_dir():
                found[index] = self._typed(path, "directory", 1.0)
                continue
            with path.open("rb") as file:
                first = file.read(self._block)
                size = file.seek(0, 2)
                file.seek(max(size - self._block, 0))
                last = file.read(self._block)
            row = self._features(first, last) if size >= self._smallest else None
            if row is None:
                found[index] = self._typed(path, _of_few_bytes(first), 1.0)
            else:
                rows[index] = row
        if rows:
            (scores,) = self.model(bytes=np.stack(list(rows.values()))).values()
            for index, row in zip(rows, to_numpy(scores), strict=True):
                found[index] = self._decided(paths[index], row)
        return [found[i] for i in range(len(paths))]

    def _decided(self, path: Path, scores: Array) -> FileType:
        best = int(scores.argmax())
        label, score = self._labels[best], float(scores[best])
        name = self._renamed.get(label, label)
        if score < self._thresholds.get(label, self._threshold):
            name = "txt" if self._types[name]["is_text"] else "unknown"
        return self._typed(path, name, score)

    def _typed(self, path: Path, label: str, score: float) -> FileType:
        entry = self._types.get(label, {})
        description, group, mime = (entry.get(key) or "" for key in ("description", "group", "mime_type"))
        return FileType(str(path), label, description, group, mime, score)


def _of_few_bytes(data: bytes) -> str:
    if not data:
        return "empty"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "unknown"
    return "txt"
