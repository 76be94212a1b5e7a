"""The command line: ``nbxtensor VERB ...`` or ``python -m nbxtensor.cli VERB ...``."""

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130
_AGAIN_SECONDS = 0.01


def _retry_interrupt(lost: Any) -> None:
    """As `sys.unraisablehook`: raise Ctrl-C anew if it came where Python drops errors (destructors, callbacks)."""
    if lost.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(lost)


def _repair_streams() -> None:
    """Have all three streams, and have them print whatever a path holds.

    Whoever starts a process may have closed some; the next file that is opened would take the number of one, and be
    written to by whoever prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets this number, the lowest that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    if arguments is None:  # the process is ours
        _repair_streams()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        sys.unraisablehook = _retry_interrupt
    try:
        from nbxtensor.cli.app import run  # click, which only the command line needs

        return run(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"nbxtensor: the command line needs {error.name}; install nbxtensor[cli]", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nbxtensor: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
