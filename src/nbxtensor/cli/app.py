"""The verbs, and what becomes of errors: one clear line on standard error, exit status 2, no traceback."""

import importlib
import os
import sys
import warnings
from collections.abc import Sequence

import click

from nbxtensor import __version__
from nbxtensor.base.errors import NbxError

VERBS = {
    "cache": "Look at the kernel cache, or empty it.",
    "certify": "Prove and time settings of kernels; write certificates.",
    "demo": "Two real models at work: types of files, and how alike sentences are.",
    "doctor": "Find what is wrong with this installation and this machine, and how to mend it.",
    "info": "Versions, devices, caches, certificates, and launches without one.",
    "models": "Fetch or list the demonstration's model files.",
    "pack": "Compile kernels into one file, for machines without compilers.",
    "run": "Run an ONNX model.",
    "verify": "Prove certificates again on this machine.",
}
"""Verb -> what its help says in the list; the module of the same name holds it as ``command``."""

FAILED = 2


class Verbs(click.Group):
    """A group whose verbs are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"nbxtensor.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nbxtensor")
def nbxtensor() -> None:
    """Tensors for inference: the same bits on NVIDIA GPUs and plain CPUs."""


def _complain(text: str) -> int:
    print(f"nbxtensor: {' '.join(text.split())}", file=sys.stderr)
    return FAILED


def _warning_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"nbxtensor: {' '.join(str(message).split())}\n"


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    warnings.formatwarning = _warning_line  # one line, as errors are
    try:
        status = nbxtensor.main(list(arguments), prog_name="nbxtensor", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return FAILED
    except click.ClickException as error:
        return _complain(error.format_message())
    except click.exceptions.Exit as error:
        return error.exit_code
    except NbxError as error:
        return _complain(str(error))
    except click.Abort:  # click's word for Ctrl-C
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: no message at exit either
        return FAILED
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}")
    except MemoryError:
        return _complain("the machine is out of memory")
    return status if isinstance(status, int) else 0
