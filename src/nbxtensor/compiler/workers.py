"""Compile in parallel, in processes of our own.

Not multiprocessing: its spawn runs the user's script again in each worker, its fork copies threads' locks and GPU
state. A worker here imports the kernels' modules and nothing else. A job that a worker cannot read (a kernel defined in
``__main__`` or inside a function) comes back uncompiled.
"""

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import TracebackType

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.compiler.worker import Reply, Request, receive, send
from nbxtensor.device.artifact import Artifact

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from nbxtensor.compiler.worker import main; main(sys.argv[2], int(sys.argv[3]))"
)


@dataclass(frozen=True, slots=True)
class _Task:
    job: Job
    data: bytes
    wait: bool = False


def _pickled(job: Job) -> bytes | None:
    try:
        data = pickle.dumps(job)
    except Exception:
        return None
    return None if b"__main__" in data else data


def _died(job: Job, code: int) -> CompileError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return CompileError("compile", f"the process that compiled kernel {job.name} {how}")


class Workers:
    """Up to `count` processes that compile and publish into `store`; leaving the context ends them."""

    def __init__(self, store: ArtifactStore, count: int) -> None:
        self._store = store
        self._count = count
        self._scratch = tempfile.TemporaryDirectory(prefix="nbxtensor-", ignore_cleanup_errors=True)
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._threads: list[threading.Thread] = []
        self._tasks: deque[_Task] = deque()
        self._results: queue.SimpleQueue[tuple[Job, Artifact | None] | Exception] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            self._tasks.clear()
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()
        self._scratch.cleanup()

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Artifact | None]]:
        """Each job with its artifact, as they get ready; None where only this process can compile it.

        Raises the `CompileError` of the first job that fails.
        """
        for job in jobs:
            data = _pickled(job)
            if data is None:
                self._results.put((job, None))
            else:
                self._tasks.append(_Task(job, data))
        for _ in range(min(self._count, len(self._tasks))):
            thread = threading.Thread(target=self._drive, daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in jobs:
            result = self._results.get()
            if isinstance(result, Exception):
                raise result
            yield result

    def _start(self) -> subprocess.Popen[bytes] | None:
        root = "" if self._store.root is None else str(self._store.root)
        command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), root, str(self._store.limit)]
        environment = {**os.environ, "TMPDIR": self._scratch.name}
        with self._lock:
            if self._closed:
                return None
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
            )
            self._processes.add(process)
            return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        with process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
        with self._lock:
            self._processes.discard(process)
        return code

    def _next(self) -> _Task | None:
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def _drive(self) -> None:
        """One thread's work: feed one worker process until no task is left."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while (task := self._next()) is not None:
                process = process or self._start()
                if process is None:
                    return
                try:
                    self._settle(task, self._ask(process, task))
                except (EOFError, OSError):
                    code, process = self._end(process), None
                    if self._closed:
                        return
                    self._results.put(_died(task.job, code))
        except Exception as error:
            self._results.put(error)
        finally:
            if process is not None:
                self._end(process)

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], task: _Task) -> Reply:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, Request(task.data, task.job.key, task.wait))  # pyright: ignore[reportArgumentType]
        return receive(process.stdout)  # pyright: ignore[reportArgumentType]

    def _settle(self, task: _Task, reply: Reply) -> None:
        if reply.failure is not None:
            self._results.put(reply.failure.error())
        elif reply.busy and not task.wait:
            with self._lock:
                self._tasks.append(_Task(task.job, task.data, wait=True))
        else:
            self._results.put((task.job, reply.artifact))
