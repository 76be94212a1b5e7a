"""Proving settings: right within the operator's bound, the declared bits, and no byte touched that is not theirs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbxtensor.base.errors import NbxError
from nbxtensor.certify import bounds
from nbxtensor.certify.calls import Array, numpy_operands, run, same_bits, values_for
from nbxtensor.certify.census import Entry
from nbxtensor.certify.compiling import Compiled, available, compiled
from nbxtensor.certify.contents import FILLS, RANDOM
from nbxtensor.certify.memory import PATTERNS, poisoned
from nbxtensor.certify.needs import require
from nbxtensor.certify.variants import Case, cases, family, planned
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.limits import shortages
from nbxtensor.device import get
from nbxtensor.device.artifact import Artifact
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.call_text import Example
from nbxtensor.kernel.declare import operators
from nbxtensor.kernel.launch import Plan, jobs_among
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tuning.certificate import DIGITS, binary_hash
from nbxtensor.tuning.choose import Forced, forced, observed

MOST_CANDIDATES = 8
"""Settings of a key that are proved and timed, the first of those declared."""


@dataclass(slots=True)
class Proof:
    """What became of a setting.

    Attributes
    ----------
    reason
        Why it is thrown out; "" if it is proved.
    runs
        Calls that it passed.
    error
        Largest error as a part of the operators' bounds; None: no reference is stated for these calls.
    artifacts
        Key -> hash of the code of what was proved (`nbxtensor.tuning.certificate.DIGITS` digits each).
    """

    setting: Any
    reason: str = ""
    runs: int = 0
    error: float | None = None
    artifacts: dict[str, str] = field(default_factory=dict[str, str])

    def throw_out(self, reason: str) -> None:
        """It is not proved: the first reason stays."""
        self.reason = self.reason or reason


@dataclass(frozen=True, slots=True)
class Trial:
    """A call with values and how it is made."""

    case: Case
    fill: str
    pattern: int
    shift: int

    def __str__(self) -> str:
        shift = ", pointers off by an element" if self.shift else ""
        return f"{self.case.example} ({self.case.what}, {self.fill} values{shift})"


def trials(case: Case, gpu: bool) -> Iterator[Trial]:
    """How often a case is tried, and with what: all contents on the main one, the telling ones on the others."""
    if case.size in ("large", "huge"):
        yield Trial(case, "normal", PATTERNS[0], 0)
        if case.size == "large" and gpu:
            yield Trial(case, "normal", PATTERNS[1], 1)
        return
    whole = case.size == "light" and case.what in ("as given", "fewer programs")
    few = ("normal", "special") if case.size == "heavy" else ("normal", "special", "cancelling")
    for number, fill in enumerate(FILLS if whole else few):
        yield Trial(case, fill, PATTERNS[number % 2], 0)
    yield Trial(case, "normal", PATTERNS[1], 1)
    if gpu:
        yield Trial(case, "special", PATTERNS[0], 1)


@dataclass(slots=True)
class Expected:
    """What belongs to a trial: values of the operands, the default's results and their error as a part of the bound."""

    arrays: list[Array]
    default: list[Array] | None = None
    error: float | None = None


class Prover:
    """Proves the settings of one key on a device.

    Parameters
    ----------
    entry
        The key, all its candidates, and calls that ask for one.
    settings
        Those to prove beside the default; by default all candidates.
    examples
        Calls to prove them on; by default those of the entry.
    ready_only
        Nothing can be compiled: prove `settings` alone, without the default beside them, on those calls whose code
        is there.
    """

    def __init__(
        self,
        entry: Entry,
        device: Device,
        settings: Sequence[Any] | None = None,
        examples: Sequence[Example] | None = None,
        ready_only: bool = False,
    ) -> None:
        self.key = key = entry.key
        self.device = device
        self._ready_only = ready_only
        candidates = entry.candidates
        chosen = candidates if settings is None else dict.fromkeys((candidates[0], *settings))
        if ready_only and settings is not None:
            chosen = settings
        self.proofs = [Proof(c) for c in tuple(chosen)[:MOST_CANDIDATES]]
        self._cpu = None if device.name == "cpu" or ready_only else get("cpu")
        gpu = device.profile.warp_size > 1
        self.cases: list[Case] = []
        for example in examples or entry.examples:
            found = cases(key, candidates, example, device)
            if self.cases and len(found) > 1:
                found = [c for c in found if c.size != "huge" or not self._seen_small(c, found[0])]
            self.cases += found
        self._trials = [
            t for case in self.cases for t in trials(case, gpu) if not ready_only or self._is_ready(case, not t.shift)
        ]
        if ready_only:
            self.cases = list({id(t.case): t.case for t in self._trials}.values())
        self._expected: dict[int, Expected] = {}
        self._own: list[list[Job]] | None = None
        self._others: list[Job] = []

    @property
    def bits(self) -> str:
        """With what bits are compared."""
        return "default" if self._cpu is None else "default cpu"

    def _is_ready(self, case: Case, aligned: bool) -> bool:
        """Whether everything that a call launches is there."""
        taken, jobs = planned(self.key, self.proofs[0].setting, case.example, self.device, case.in_place)
        own = [p.job(aligned or len(p.alignments) == 1) for _, plans in taken for p in plans]
        return all(available(job) is not None for job in (*own, *jobs))

    def _seen_small(self, large: Case, small: Case) -> bool:
        """Whether a large call launches the code of a small one: one operator of a key is tried on it for all."""
        setting = self.proofs[0].setting
        of_large, of_small = (
            {p.artifact_key(True) for _, ps in planned(self.key, setting, c.example, self.device)[0] for p in ps}
            for c in (large, small)
        )
        return of_large <= of_small

    def require_memory(self) -> None:
        """Refuse a proof that memory cannot hold, before anything of it is made.

        Raises
        ------
        OutOfMemoryError
            The device, or the host, has too little free memory.
        """
        require(((trial.case.example, trial.case.size) for trial in self._trials), self.device)

    # Compiling

    def jobs(self) -> list[Job]:
        """Everything that must be compiled, planned at the first call."""
        if self._own is None:
            self._own, self._others = [], self._host_jobs()
            for proof in self.proofs:
                mine: list[Job] = []
                try:
                    for case in self.cases:
                        taken, jobs = planned(self.key, proof.setting, case.example, self.device, case.in_place)
                        mine += [p.job(a) for _, plans in taken for p in plans for a in self._alignments(p)]
                        self._others += jobs
                except NbxError as error:
                    proof.throw_out(f"cannot be planned: {error}")
                self._own.append(mine)
        return [job for jobs in self._own for job in jobs] + self._others

    def _alignments(self, plan: Plan) -> tuple[bool, ...]:
        """Those for which there is code: all, where it can be compiled."""
        if not self._ready_only:
            return plan.alignments
        return tuple(a for a in plan.alignments if available(plan.job(a)) is not None)

    def compile(self) -> None:
        """Compile everything at once, and throw out what cannot be compiled or needs too much."""
        done = compiled(self.jobs())
        for number, (proof, jobs) in enumerate(zip(self.proofs, self._own or (), strict=True)):
            reason = too_much(jobs, done, self.device.profile, declared=number == 0)
            if reason:
                proof.throw_out(reason)

    def _host_jobs(self) -> list[Job]:
        """What the CPU must launch to be compared with."""
        if self._cpu is None:
            return []
        jobs: list[Job] = []
        for case in self.cases:
            if case.size != "huge":
                null = NullDevice(self._cpu.target, self._cpu.profile)
                with observed():
                    case.example.run(null)
                jobs += jobs_among(null.calls)
        return jobs

    # Proof

    def prove(self) -> None:
        """Prove every setting that is not thrown out yet; where the default fails, all fail."""
        default, *others = self.proofs
        self._prove(default)
        for proof in others:
            if default.reason:
                proof.throw_out("the default is not proved")
            elif not proof.reason:
                self._prove(proof)

    def _prove(self, proof: Proof) -> None:
        forget_plans()
        try:
            with forced(self.key.operator, self.key.variant, proof.setting) as wish, poisoned(self.device) as fences:
                for number, trial in enumerate(self._trials):
                    expected = self._expect(number, trial)
                    with observed():
                        outcome = run(trial.case, expected.arrays, self.device, fences, trial.pattern, trial.shift)
                    reason = self._judge(trial, expected, outcome.results) or outcome.damage
                    if reason:
                        proof.throw_out(f"{reason}: {trial}")
                        return
                    proof.runs += 1
                    if expected.error is not None:
                        proof.error = max(proof.error or 0.0, expected.error)
            proof.artifacts = self._artifacts(wish)
            if not any(family(key) == family(self.key) for key, _ in wish.taken):
                proof.throw_out("no call asked for it")
        except (NbxError, MemoryError) as error:
            proof.throw_out(str(error) or "memory was used up")
            self.device.synchronize()  # raises where the device is lost: nothing after this could be trusted
        finally:
            forget_plans()

    def _artifacts(self, wish: Forced) -> dict[str, str]:
        plans = [p for key, made in wish.taken if family(key) == family(self.key) for p in made]
        jobs = [p.job(a) for p in plans if isinstance(p, Plan) for a in self._alignments(p)]
        made = [compile_job(job) for job in {job.key: job for job in jobs}.values()]
        return {artifact.key[:DIGITS]: binary_hash(artifact) for artifact in made}

    def _expect(self, number: int, trial: Trial) -> Expected:
        found = self._expected.get(number)
        if found is None:
            found = self._expected[number] = Expected(values_for(trial.case, trial.fill))
        return found

    def _judge(self, trial: Trial, expected: Expected, results: list[Array]) -> str:
        """Why results are wrong; "" if they are right. Those of the default, which comes first, are kept."""
        if expected.default is not None:
            return "" if all(map(same_bits, expected.default, results)) else "other bits than the default"
        expected.default = results
        if trial.case.size == "huge" or (trial.case.size == "large" and trial.shift):
            return ""
        example = trial.case.example
        if self._cpu is not None and _is_universal(example):
            host = self._on_host(trial, expected.arrays)
            if not all(map(same_bits, host, results)):
                return "other bits than the CPU"
        if FILLS[trial.fill] != RANDOM:
            return ""
        operands = numpy_operands(example, expected.arrays)
        wanted = bounds.reference(example, operands, floats=any(bounds.is_float(r) for r in results))
        if wanted is None:
            return ""
        expected.error = max(
            bounds.error(example, operands, want, got) for want, got in zip(wanted, results, strict=True)
        )
        return "" if expected.error <= 1 else f"{expected.error:.3g} times the allowed error"

    def _on_host(self, trial: Trial, arrays: list[Array]) -> list[Array]:
        assert self._cpu is not None
        cpu = self._cpu
        with forced("", "", None), observed(), poisoned(cpu) as fences:  # the settings are the GPU's
            return run(trial.case, arrays, cpu, fences, trial.pattern, 0).results


def _is_universal(example: Example) -> bool:
    op = operators.get(example.operator)
    return op is None or op.guarantee == "universal"


def too_much(jobs: Sequence[Job], done: Compiled, profile: Profile, declared: bool) -> str:
    """Why a setting is thrown out before it runs; of the declared default only what cannot be compiled."""
    for job in jobs:
        made = done[job.key]
        if not isinstance(made, Artifact):
            return f"{job.fn.__name__} {made}"
        if profile.warp_size == 1 or declared:
            continue
        needs = made.resources
        if needs.stack_bytes:
            return f"{job.fn.__name__} keeps {needs.stack_bytes} bytes of each thread on a stack"
        lacking = shortages(needs, profile)
        if lacking:
            return f"{job.fn.__name__} needs {', '.join(lacking)}"
    return ""
