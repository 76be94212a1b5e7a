"""Eight threads call operators on one device, in one process and in two that share a cold cache of kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import concurrent_ops

HERE = Path(__file__).parent
RIGHT = concurrent_ops.THREADS * len(concurrent_ops.CALLS) * (1 + concurrent_ops.ROUNDS)


@pytest.fixture(scope="module")
def expected(device: str) -> str:
    """The answers of one thread, for the program's standard input."""
    return json.dumps(concurrent_ops.answers_of_one_thread(device))


def start(device: str, cache: Path | None) -> subprocess.Popen[str]:
    paths = [str(HERE.parent / "src"), str(HERE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if cache is not None:
        environment["NBX_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-W", "error", str(HERE / "concurrent_ops.py"), device]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_threads_get_the_answers_of_one_thread(device: str, expected: str) -> None:
    """With the kernels compiled, the first calls of all threads meet in caches that are empty."""
    child = start(device, None)
    printed, errors = child.communicate(expected, timeout=300)
    assert (child.returncode, printed.split(), errors) == (0, [str(RIGHT)], "")


def test_two_processes_start_on_one_cold_cache(device: str, expected: str, tmp_path: Path) -> None:
    children = [start(device, tmp_path) for _ in range(2)]
    for child in children:  # both have all they need before either is waited for
        child.stdin.write(expected)
        child.stdin.close()
        child.stdin = None
    for child in children:
        printed, errors = child.communicate(timeout=300)
        assert (child.returncode, printed.split(), errors) == (0, [str(RIGHT)], "")
    assert any((tmp_path / "v1").glob("*.nbx"))


def test_a_wrong_answer_is_noticed(device: str, expected: str) -> None:
    answers: dict[str, str] = json.loads(expected)
    key = next(iter(answers))
    child = start(device, None)
    printed, _ = child.communicate(json.dumps({**answers, key: "another"}), timeout=300)
    assert child.returncode == 1
    assert key in printed
