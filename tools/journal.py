"""What a sweep that is under way has found so far: one that is cut off goes on from there."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


class Journal:
    """Findings by key, each a line of JSON in a file that goes when the sweep ends by itself.

    Parameters
    ----------
    path
        None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, list[dict[str, Any]]] = {}
        if path is None:
            return
        if path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line may be half of one
                    key, found = json.loads(line)
                    self._found[key] = found
        path.write_text("".join(self._line(key, found) for key, found in self._found.items()))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._path is not None:
            self._path.unlink(missing_ok=True)

    @staticmethod
    def _line(key: str, found: Sequence[dict[str, Any]]) -> str:
        return json.dumps([key, list(found)]) + "\n"

    def get(self, key: str) -> list[dict[str, Any]] | None:
        """What is known under `key`."""
        return self._found.get(key)

    def add(self, key: str, found: Sequence[dict[str, Any]]) -> None:
        """Write down what was found."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(self._line(key, found))
