"""The log of launches that ran without a certificate: ``uncertified.jsonl`` in the cache folder.

A process adds its lines when it ends, in one write, so any number of processes may share the file. A log that cannot be
written is no error, and one that has grown too large is packed: one line a key.
"""

import atexit
import contextlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nbxtensor.base.files import replace_file
from nbxtensor.base.knobs import cache_dir

MOST_BYTES = 1 << 18
_sources: list[Callable[[], "list[OpenKey]"]] = []


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A launch key without a valid certificate, the command that certifies it, and how many plans were made for it."""

    key: str
    status: str
    reason: str
    command: str
    count: int

    @property
    def is_whole(self) -> bool:
        """Whether its fields have their types; what was read from a file may have any."""
        texts = (self.key, self.status, self.reason, self.command)
        return all(type(text) is str for text in texts) and type(self.count) is int


def log_path() -> Path | None:
    """Where the log is; None if there is no such thing as a home."""
    try:
        return cache_dir.get() / "uncertified.jsonl"
    except RuntimeError:
        return None


def read_log() -> list[OpenKey]:
    """What the log holds, one entry a key; lines that make no sense are left out."""
    found: dict[str, OpenKey] = {}
    path = log_path()
    try:
        lines = [] if path is None else path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            one = OpenKey(**json.loads(line))
            if not one.is_whole:
                continue
            before = found.get(one.key)
            found[one.key] = one if before is None else replace(one, count=before.count + one.count)
    return list(found.values())


def clear_log() -> None:
    """Remove the log."""
    path = log_path()
    if path is not None:
        path.unlink(missing_ok=True)


def _lines(keys: Iterable[OpenKey]) -> bytes:
    return "".join(json.dumps(asdict(one), separators=(",", ":")) + "\n" for one in keys).encode()


def append(keys: Iterable[OpenKey]) -> None:
    """Add keys to the log."""
    path, content = log_path(), _lines(keys)
    if not content or path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, content)
            size = os.fstat(file).st_size
        finally:
            os.close(file)
        if size > MOST_BYTES:
            replace_file(path, _lines(read_log())[:MOST_BYTES])


def remember_at_exit(source: "Callable[[], list[OpenKey]]") -> None:
    """Add the keys that `source` gives when this process ends."""
    if source not in _sources:
        _sources.append(source)
        owner = os.getpid()
        atexit.register(lambda: append(source()) if os.getpid() == owner else None)
