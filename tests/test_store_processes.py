"""The artifact store under many processes, and under kills at any point."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nbxtensor.compiler.artifact_file import load
from nbxtensor.compiler.key_lock import Lock
from nbxtensor.compiler.store import ArtifactStore

HERE = Path(__file__).parent

_CHURN = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from nbxtensor.compiler.store import ArtifactStore
from test_store import make
import random
seed, root, limit, rounds = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
store = ArtifactStore(root, limit)
print("ready", flush=True)
for _ in range(rounds):
    number = rng.randrange(8)
    want = make(number, size=50_000)
    with store.locked(want.key, 5.0):
        found = store.get(want.key)
        assert found is None or found == want
        if found is None or rng.random() < 0.5:
            store.put(want)
"""

_HOLD = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from nbxtensor.compiler.store import ArtifactStore
with ArtifactStore(Path(sys.argv[1])).locked("ab" * 32) as lock:
    print(lock.name, flush=True)
    time.sleep(60)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    code = program.format(paths=[str(HERE.parent / "src"), str(HERE)])
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(root: Path, limit: int) -> int:
    """Every entry is whole and under its own name; gives how many there are."""
    store = ArtifactStore(root, limit)
    count = 0
    for entry in store.entries():
        artifact = load(entry.path.read_bytes())
        assert entry.path.name == artifact.key + ".nbx"
        count += 1
    return count


def test_processes_share_a_store(tmp_path: Path):
    limit = 6 * 51_000  # two entries too small for all: they also evict under each other
    children = [start(_CHURN, seed, tmp_path, limit, 60) for seed in range(4)]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    assert 4 <= check(tmp_path, limit) <= 6
    assert not list((tmp_path / "v1").glob(".tmp-*"))


def test_kills_at_any_point_leave_only_whole_entries(tmp_path: Path):
    rng = random.Random(7)
    children: list[subprocess.Popen[str]] = []
    for seed in range(12):
        child = start(_CHURN, seed, tmp_path, 1 << 30, 1_000_000)
        children.append(child)
        if len(children) == 2:
            for running in children:
                assert running.stdout.readline() == "ready\n"
            time.sleep(rng.random() * 0.1)
            for running in children:
                running.kill()
                _, errors = running.communicate()
                assert running.returncode == -signal.SIGKILL, errors
            children.clear()
            check(tmp_path, 1 << 30)
    leftovers = list((tmp_path / "v1").glob(".tmp-*"))
    for path in leftovers:
        os.utime(path, (time.time() - 3600,) * 2)
    last = start(_CHURN, 99, tmp_path, 1 << 30, 50)
    assert last.wait(timeout=60) == 0, last.stderr.read()
    last.communicate()
    assert check(tmp_path, 1 << 30) == 8
    assert not list((tmp_path / "v1").glob(".tmp-*"))


@pytest.fixture
def holder(tmp_path: Path):
    child = start(_HOLD, tmp_path)
    assert child.stdout.readline() == "HELD\n"
    yield child
    child.kill()
    child.communicate()


def test_a_key_is_locked_for_others_only(tmp_path: Path, holder: subprocess.Popen[str]):
    store = ArtifactStore(tmp_path)
    with store.locked("ab" * 32, patience=0.0) as lock:
        assert lock is Lock.BUSY
    with store.locked("cd" * 32, patience=0.0) as lock, store.locked("cd" * 32, patience=0.0) as again:
        assert lock is Lock.HELD
        assert again is Lock.BUSY
    with store.locked("cd" * 32, patience=0.0) as lock:
        assert lock is Lock.HELD


def test_a_kill_frees_the_lock(tmp_path: Path, holder: subprocess.Popen[str]):
    store = ArtifactStore(tmp_path)
    holder.kill()
    started = time.monotonic()
    with store.locked("ab" * 32, patience=30.0) as lock:
        assert lock is Lock.HELD
    assert time.monotonic() - started < 10


def test_a_stopped_holder_does_not_block_for_ever(tmp_path: Path, holder: subprocess.Popen[str]):
    holder.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with ArtifactStore(tmp_path).locked("ab" * 32, patience=0.2) as lock:
        assert lock is Lock.BUSY
    assert 0.2 <= time.monotonic() - started < 5
