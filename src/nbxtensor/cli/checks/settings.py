"""The switches in the environment, and the share of the processors that this process has."""

import difflib
import os
from typing import Any

from nbxtensor.base import knobs
from nbxtensor.base.errors import ArgumentError
from nbxtensor.cli.checks.core import Check, Machine, explained


def knobs_set() -> dict[str, str]:
    """The switches that are set, known or not."""
    return {name: text for name, text in sorted(os.environ.items()) if name.startswith(knobs.PREFIX) and text}


def check_knobs(check: Check, machine: Machine) -> None:
    """NBX_ variables: names that do nothing, values that cannot be."""
    found = knobs_set()
    check.facts = dict(found)
    check.summary = " ".join(f"{name}={text}" for name, text in found.items()) or "none set"
    for name in found:
        knob = knobs.REGISTRY.get(name)
        if knob is None:
            close = difflib.get_close_matches(name, knobs.REGISTRY, 1)
            mend = f"did you mean {close[0]}?" if close else f"unset it; there are {', '.join(sorted(knobs.REGISTRY))}"
            check.warning(f"{name} is not a switch of nbxtensor and does nothing", mend)
            continue
        try:
            knob.get()
        except (ArgumentError, RuntimeError) as error:  # the latter: a home folder that nobody has
            text = explained(error) if isinstance(error, ArgumentError) else f"{name}: {error}"
            check.problem(text, f"correct or unset {name}")


def quota() -> float | None:
    """Processors' worth of time that the container may use, or None if nothing limits it."""
    try:
        used, period = (knobs.CGROUP / "cpu.max").read_text().split()
        return None if used == "max" else int(used) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def check_threads(check: Check, machine: Machine) -> None:
    """Whether as many threads run as there are processors for."""
    limit, usable = quota(), knobs.usable_cpus()
    facts: dict[str, Any] = {"quota": limit, "usable_cpus": usable, "threads": knobs.num_threads.get()}
    check.facts = facts
    check.summary = f"{facts['threads']} threads for kernels, {usable} processors"
    if limit is not None and limit < 1:
        check.warning(
            f"the container may use {limit:.2f} of a processor: kernels are stopped again and again",
            "give it at least one (docker run --cpus 1, resources.limits.cpu: 1)",
        )
    if facts["threads"] > usable:
        check.warning(
            f"NBX_NUM_THREADS asks for {facts['threads']} threads, but there are {usable} processors for them",
            f"unset NBX_NUM_THREADS, or set it to at most {usable}",
        )
