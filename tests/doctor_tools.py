"""Running one check of ``nbxtensor doctor``, or all of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nbxtensor.cli.checks.core import Check, Machine, run_check
from nbxtensor.cli.doctor import CHECKS

SOURCE = Path(__file__).parents[1] / "src"


def check(name: str) -> Check:
    """One check, on the machine as it is now."""
    return run_check(name, CHECKS[name], Machine())


def texts(found: Check, status: str) -> list[str]:
    """The findings with a status, each with its mend."""
    assert all(f.mend for f in found.findings), found
    return [f"{f.text} -> {f.mend}" for f in found.findings if f.status == status]


def problem(name: str) -> str:
    """The one finding of a check, which must be a problem."""
    found = check(name)
    (text,) = texts(found, "problem")
    assert len(found.findings) == 1
    return text


def warning(name: str) -> str:
    """The one finding of a check, which must be a warning."""
    found = check(name)
    (text,) = texts(found, "warning")
    assert len(found.findings) == 1
    return text


def process(*arguments: str, path: Path = SOURCE, **environment: str) -> tuple[int, str, str]:
    """The command in a process of its own: exit status, output and errors."""
    done = subprocess.run(
        [sys.executable, "-m", "nbxtensor.cli", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(SOURCE))), **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def doctor(**environment: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    """``doctor --json`` in a process of its own: exit status, and the checks by name."""
    status, out, err = process("doctor", "--json", **environment)
    assert err == ""
    return status, {row["name"]: row for row in json.loads(out)["checks"]}
