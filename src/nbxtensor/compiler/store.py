"""The artifact store: compiled kernels on disk, one file each.

Any number of processes may use one directory at once, and each may be killed at any point. An entry is written under
a temporary name and renamed, so it is there whole or not at all; a checksum finds what a crash of the machine or the
disk did to it. What cannot be read counts as absent. A store, or one entry, that cannot be written is no error: the
artifact then lives as long as the process.
"""

import contextlib
import os
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nbxtensor.base.errors import CacheError
from nbxtensor.base.knobs import cache_bytes, cache_dir
from nbxtensor.base.text import counted
from nbxtensor.compiler.artifact_file import CorruptArtifactError, dump, load
from nbxtensor.compiler.key_lock import Lock, key_lock
from nbxtensor.device.artifact import Artifact

_FORMAT = "v1"
_SUFFIX = ".nbx"
_TEMPORARY = ".tmp-"
_STALE_SECONDS = 60.0
_TOUCH_SECONDS = 60.0
_KEEP = 0.9
_MEND = "correct the permissions, or set NBX_CACHE_DIR to another folder"
_WRITERS = 4 * (os.cpu_count() or 1)  # processes that may be filling the store at once, for all that this one knows
PATIENCE = 300.0


class CacheWarning(UserWarning):
    """The artifact store cannot be used as asked; work goes on without it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the store; `used` is when it was last read or written (seconds since 1970)."""

    path: Path
    nbytes: int
    used: float


class ArtifactStore:
    """Artifacts in the directory `root` (None: in memory only), at most `limit` bytes of them (0: none on disk)."""

    def __init__(self, root: Path | None, limit: int = 1 << 30) -> None:
        self.root = root
        self.limit = limit
        self._folder = root / _FORMAT if root is not None and limit > 0 else None
        self._memory: dict[str, Artifact] = {}
        self._warned = False
        self._room = 0  # bytes that may be written before the folder must be looked through again

    def get(self, key: str) -> Artifact | None:
        """The artifact stored under `key`; an entry that is damaged is dropped, one that cannot be read passed over."""
        kept = self._memory.get(key)
        if kept is not None or self._folder is None:
            return kept
        path = self._folder / (key + _SUFFIX)
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                content = file.read()
                if time.time() - status.st_mtime > _TOUCH_SECONDS:
                    with contextlib.suppress(OSError):
                        os.utime(file.fileno())
        except OSError:  # the artifact gets made again, and `put` tells what is wrong, if anything
            return None
        try:
            artifact = load(content)
            if artifact.key == key:
                return artifact
        except CorruptArtifactError:
            pass
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, artifact: Artifact) -> None:
        """Publish an artifact; if that fails, warn once and keep it in memory."""
        if self._folder is None:
            self._memory[artifact.key] = artifact
            return
        content = dump(artifact)
        if len(content) > self.limit:
            self._memory[artifact.key] = artifact
            self._warn(
                f"takes at most {counted(self.limit, 'byte')}, an artifact has {len(content)}: raise NBX_CACHE_BYTES"
            )
            return
        try:
            self._publish(self._folder / (artifact.key + _SUFFIX), content)
        except OSError as error:
            self._memory[artifact.key] = artifact
            self._warn(f"cannot be written ({error})")
            return
        self._room -= _WRITERS * len(content)
        if self._room <= 0:
            self._shrink(keep=artifact.key + _SUFFIX)

    def _publish(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}")
        try:
            with open(temporary, "xb", buffering=0) as file:
                written = 0
                while written < len(content):
                    written += file.write(content[written:])
            try:
                temporary.replace(path)
            except IsADirectoryError:
                path.rmdir()  # goes if it is empty; whatever holds files of someone is left alone
                temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"the kernel cache {self.root} {problem}; kernels that it cannot hold are kept in memory only"
            warnings.warn(text, CacheWarning, stacklevel=4)

    def _files(self) -> Iterator[Entry]:
        if self._folder is None:
            return
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as listing:
            for item in listing:
                if item.name.endswith(_SUFFIX) or item.name.startswith(_TEMPORARY):
                    with contextlib.suppress(FileNotFoundError):
                        if item.is_dir(follow_symlinks=False):
                            continue
                        status = item.stat(follow_symlinks=False)
                        yield Entry(Path(item.path), status.st_size, status.st_mtime)

    def _shrink(self, keep: str) -> None:
        """Remove what killed writers left, then the least recently used entries while the store is too large."""
        with contextlib.suppress(OSError):
            entries: list[Entry] = []
            for entry in self._files():
                stale = entry.path.name.startswith(_TEMPORARY) and time.time() - entry.used > _STALE_SECONDS
                if stale:
                    self._remove(entry)
                else:
                    entries.append(entry)
            total = sum(e.nbytes for e in entries)
            goal = self.limit if total <= self.limit else _KEEP * self.limit
            for entry in sorted(entries, key=lambda e: e.used):
                if total <= goal:
                    break
                if entry.path.name == keep or entry.path.name.startswith(_TEMPORARY):
                    continue
                if self._remove(entry) is None:
                    total -= entry.nbytes
            self._room = self.limit - total

    @staticmethod
    def _remove(entry: Entry) -> OSError | None:
        """Remove the file of an entry; gives what stood in the way."""
        try:
            entry.path.unlink(missing_ok=True)
        except OSError as error:
            return error
        return None

    def entries(self) -> list[Entry]:
        """The entries on disk, the most recently used first."""
        try:
            found = [e for e in self._files() if e.path.name.endswith(_SUFFIX)]
        except OSError as error:
            raise CacheError("cache", f"cannot list {self.root} ({error})", mend=_MEND) from error
        return sorted(found, key=lambda e: e.used, reverse=True)

    def read(self, entry: Entry) -> Artifact | None:
        """The artifact of a listed entry, or None if it is gone or damaged; does not count as a use."""
        try:
            return load(entry.path.read_bytes())
        except (OSError, CorruptArtifactError):
            return None

    def clear(self) -> tuple[int, int]:
        """Remove every entry; gives how many there were and their bytes.

        Raises
        ------
        CacheError
            If an entry cannot go; all that can are gone then.
        """
        self._memory.clear()
        count = nbytes = 0
        trouble: OSError | None = None
        try:
            entries = list(self._files())
        except OSError as error:
            entries, trouble = [], error
        for entry in entries:
            error = self._remove(entry)
            if error is None:
                count += entry.path.name.endswith(_SUFFIX)
                nbytes += entry.nbytes
            trouble = trouble or error
        if trouble is not None:
            raise CacheError("cache clear", f"cannot clear {self.root} ({trouble})", mend=_MEND) from trouble
        return count, nbytes

    @contextmanager
    def locked(self, key: str, patience: float = PATIENCE) -> Generator[Lock]:
        """Hold `key` so that other processes wait for what this one is about to put; gives what became of it."""
        if self._folder is None:
            yield Lock.ABSENT
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with key_lock(self._folder / "lock", key, patience) as lock:
            yield lock


_stores: dict[tuple[Path | None, int], ArtifactStore] = {}


def default_store() -> ArtifactStore:
    """The store that the knobs name; the same object as long as they name the same one."""
    try:
        root = cache_dir.get().absolute()
    except RuntimeError:  # no such thing as a home
        root = None
    place = root, cache_bytes.get()
    store = _stores.get(place)
    if store is None:
        store = _stores.setdefault(place, ArtifactStore(*place))
    return store
