"""One small launch on a device, or an import, in a process of its own: ``python -m nbxtensor.cli.trial cuda:0``."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from nbxtensor.base.errors import MissingDependencyError, NbxError

SECONDS = 120
_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes
    ----------
    error, mend
        What went wrong, and what to do about it; "" if nothing did.
    uncompiled
        Whether the kernel is in no pack and no cache, and no compiler could be imported.
    """

    error: str = ""
    mend: str = ""
    uncompiled: bool = False


def attempt(name: str) -> Outcome:
    """Add two tensors on a device and look at the sums."""
    import nbxtensor as nbx  # after the errors, which name what is missing
    from nbxtensor.tuning.choose import observed

    try:
        with observed():  # this launch is no work of the user's: it needs no certificate
            x = np.arange(_SIZE, dtype=np.float32)
            found = np.asarray(nbx.add(nbx.asarray(x, device=name), nbx.asarray(x, device=name)).to_device("cpu"))
    except MissingDependencyError as error:
        return Outcome(f"{error} ({error.__cause__})", error.mend, True)
    except NbxError as error:
        return Outcome(str(error), error.mend)
    if not np.array_equal(found, 2 * x):
        at = int(np.flatnonzero(found != 2 * x)[0])
        return Outcome(f"wrong: {x[at]} + {x[at]} gave {found[at]}", "nbxtensor cache clear; if it stays, report it")
    return Outcome()


def imported(packages: Sequence[str]) -> Outcome:
    """Import these packages."""
    for package in packages:
        try:
            importlib.import_module(package)
        except Exception as error:  # a broken package may raise anything
            return Outcome(f"{package} cannot be imported: {type(error).__name__}: {error}")
    return Outcome()


def _in_a_process(arguments: Sequence[str], seconds: float) -> Outcome:
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    command = [sys.executable, "-m", "nbxtensor.cli.trial", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env={**os.environ, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return Outcome(f"no answer within {seconds:g} s", "look whether the device hangs or the machine is overloaded")
    except OSError as error:
        return Outcome(f"no process could be started ({error})", "raise the limit on processes or memory")
    try:
        return Outcome(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        if done.returncode < 0:
            last = f"killed by signal {-done.returncode}"
        return Outcome(f"the process that tried it died: {last}", f"python {' '.join(command[1:])} shows all of it")


def try_device(name: str, seconds: float = SECONDS) -> Outcome:
    """`attempt` in a process of its own, so that a crash is an outcome too."""
    return _in_a_process([name], seconds)


def try_import(packages: Sequence[str], seconds: float = SECONDS) -> Outcome:
    """`imported` in a process of its own."""
    return _in_a_process(["--import", *packages], seconds)


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    print(json.dumps(asdict(imported(rest) if first == "--import" else attempt(first))))
