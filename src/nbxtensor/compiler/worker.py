"""A process that compiles jobs for another one: started by `nbxtensor.compiler.workers`, ends when its input does.

Messages are pickles, each behind its length. In: a `Request`. Out: a `Reply`.
"""

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nbxtensor.base import errors
from nbxtensor.base.errors import NbxError
from nbxtensor.compiler.compile import compile_unless_busy
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.store import PATIENCE, ArtifactStore
from nbxtensor.device.artifact import Artifact


@dataclass(frozen=True, slots=True)
class Request:
    """A pickled job, the key that it must have, and whether to wait for another process that compiles it."""

    job: bytes
    key: str
    wait: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ours, taken apart so that it can travel."""

    kind: str
    function: str
    problem: str
    got: str | None
    allowed: str
    mend: str

    def error(self) -> NbxError:
        """The error again."""
        kind: type[NbxError] = getattr(errors, self.kind)
        return kind(self.function, self.problem, got=self.got, allowed=self.allowed, mend=self.mend)


@dataclass(frozen=True, slots=True)
class Reply:
    """An artifact or what went wrong; `busy`: another process is at it; none of them: the job cannot be read here."""

    artifact: Artifact | None = None
    failure: Failure | None = None
    busy: bool = False


def send(stream: BinaryIO, message: object) -> None:
    """Write one message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message; EOFError if the other side is gone."""
    size = stream.read(8)
    data = stream.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
    if len(size) < 8 or len(data) < int.from_bytes(size, "little"):
        raise EOFError
    return pickle.loads(data)


def _failure(error: Exception) -> Failure:
    if isinstance(error, NbxError):
        got = None if error.got is None else str(error.got)
        return Failure(type(error).__name__, error.function, error.problem, got, error.allowed, error.mend)
    return Failure("CompileError", "compile", f"the compiler failed: {type(error).__name__}: {error}", None, "", "")


def answer(request: Request, store: ArtifactStore) -> Reply:
    """Compile what is asked for."""
    try:
        job: Job = pickle.loads(request.job)
        same = job.key == request.key
    except Exception:  # a module that only the other process has may fail to import in any way
        return Reply()
    if not same:
        return Reply()
    try:
        artifact = compile_unless_busy(job, store, PATIENCE if request.wait else 0.0)
    except Exception as error:
        return Reply(failure=_failure(error))
    return Reply(artifact=artifact, busy=artifact is None)


def main(root: str, limit: int) -> None:
    """Serve requests from standard input; replies go to what standard output was at the start."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a compiler prints must not get between the replies
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    store = ArtifactStore(Path(root) if root else None, limit)
    while True:
        try:
            send(replies, answer(receive(requests), store))
        except (EOFError, BrokenPipeError):
            return
