"""Certifying keys one after the other; what is done is on disk before the next one begins."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbxtensor.base.errors import CertificateError, NbxError, OutOfMemoryError
from nbxtensor.base.text import counted
from nbxtensor.certify.census import Entry, kind
from nbxtensor.certify.compiling import Compiled, compiled
from nbxtensor.certify.needs import require
from nbxtensor.certify.prove import Proof, Prover
from nbxtensor.certify.store import add, read, table_path
from nbxtensor.certify.timing import Choice, Clock, choose, clock_for, timed
from nbxtensor.certify.variants import planned
from nbxtensor.compiler.jobs import Job, compiler_version
from nbxtensor.device.cuda_driver import call, cuda_text, driver_version, gpu_model, open_driver
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, call_of
from nbxtensor.tuning.certificate import Certificate, encode
from nbxtensor.tuning.key import LaunchKey

FIRST_BATCH, BATCH = 40, 240
"""Kernels that are compiled together ahead: starting processes takes as long as compiling several."""
MOST_TIMED = 4
"""Operators of a key that are timed; all are proved."""

Status = Literal["certified", "uncertified", "partly", "stale"]
Verdict = Literal["chosen", "tie", "extended", "covered", "refused"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the tables say of a key.

    Attributes
    ----------
    status
        ``certified``: of all its calls; ``partly``: not of some operators; ``stale``: its code, or its setting, is
        not that of this version.
    certificate, setting
        The certificate, and its setting among the candidates.
    """

    status: Status
    certificate: Certificate | None = None
    setting: Any = None


def covered(certificate: Certificate, setting: Any, key: LaunchKey, example: Example, device: Device) -> bool:
    """Whether everything that a call launches with a setting is among what was proved."""
    plans, _ = planned(key, setting, example, device)
    exact = [made for k, made in plans if k == key]
    return bool(exact) and all(plan.is_covered(certificate) for made in exact for plan in made)


def calls_of(certificate: Certificate) -> list[Example]:
    """The calls on which a certificate was proved.

    Raises
    ------
    CertificateError
        The certificate does not say.
    """
    mend = "certify the key again"
    if "calls" not in certificate.proof:
        raise CertificateError("read certificates", "a certificate names no calls", got=certificate.key, mend=mend)
    try:
        return [call_of(call) for call in certificate.proof["calls"]]
    except NbxError as error:
        problem = f"a call in a certificate is not one ({error.problem})"
        raise CertificateError("read certificates", problem, got=error.got, mend=mend) from error


def standing(entry: Entry, certificate: Certificate | None, device: Device) -> Standing:
    """What a certificate (None: there is none) says of a key as it is now."""
    if certificate is None:
        return Standing("uncertified")
    kinds = set(map(kind, calls_of(certificate)))
    for setting in entry.candidates:
        if encode(setting) == certificate.setting:
            unknown = [e for e in entry.examples if not covered(certificate, setting, entry.key, e, device)]
            stale = any(kind(e) in kinds for e in unknown)
            status: Status = "stale" if stale else "partly" if unknown else "certified"
            return Standing(status, certificate, setting)
    return Standing("stale", certificate)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a key.

    Attributes
    ----------
    verdict
        ``chosen``: a setting beat the default; ``tie``: the default stays; ``extended``: more calls were proved with
        the setting that a certificate has; ``covered``: nothing was to do; ``refused``: the default is not proved, or
        memory cannot hold the calls.
    thrown_out
        Settings that were not proved, and why.
    """

    key: LaunchKey
    verdict: Verdict
    setting: Any = None
    certificate: Certificate | None = None
    thrown_out: tuple[tuple[Any, str], ...] = ()
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The outcome in one line."""
        parts = [f"{self.verdict:9}", str(self.key), f"{self.seconds:.1f} s"]
        time: Mapping[str, Any] = {} if self.certificate is None else self.certificate.time
        if {"us", "default"} <= time.keys() and self.verdict in ("chosen", "tie"):
            parts.append(f"{time['us']:g} us, default {time['default']:g} us")
        if self.thrown_out:
            parts.append(f"{counted(len(self.thrown_out), 'setting')} thrown out")
        return "  ".join(parts)


@dataclass(slots=True)
class Report:
    """What a run did; `left`: keys for which the time was over."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    left: int = 0


def driver_of(device: Device) -> str:
    """What runs the code: the GPU and its driver, or the processor."""
    if device.host_accessible:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "cpu")
    driver = open_driver()
    number = int(device.name.partition(":")[2] or 0)
    handle = call(driver, "certify", "asking for the GPU", driver.cuDeviceGet(number))
    return f"{gpu_model(driver, handle)}, {cuda_text(driver_version(driver))}"


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do for a key.

    Attributes
    ----------
    prover
        None: nothing.
    extend
        A certificate has a setting already, which is to be proved for more calls.
    """

    entry: Entry
    known: Standing
    prover: Prover | None
    extend: bool = False


class Certifier:
    """Certifies keys on a device into a folder of tables.

    Parameters
    ----------
    again
        Also what a certificate covers.
    """

    def __init__(self, device: Device, folder: Path, again: bool = False) -> None:
        self.device = device
        self.folder = folder
        self.again = again
        self._clock: Clock | None = None

    def known(self, entry: Entry) -> Standing:
        """What the folder says of a key."""
        path = table_path(self.folder, entry.key.arch, entry.key.operator)
        return standing(entry, read(path).get(str(entry.key)), self.device)

    def prepare(self, entry: Entry) -> Work:
        """What there is to do for a key; nothing is compiled yet."""
        known = self.known(entry)
        if known.status == "certified" and not self.again:
            return Work(entry, known, None)
        extend = known.status == "partly" and not self.again
        return Work(entry, known, Prover(entry, self.device, [known.setting] if extend else None), extend)

    def certify(self, work: Work) -> Outcome:
        """Prove, time and enter one key."""
        begin = time.monotonic()
        entry, known, prover = work.entry, work.known, work.prover
        if prover is None:
            return Outcome(entry.key, "covered", known.setting, known.certificate)
        try:
            prover.require_memory()
            for example in entry.examples[:MOST_TIMED]:
                require([(example, "huge")], self.device)
        except OutOfMemoryError as error:
            lacking = ((entry.candidates[0], str(error)),)
            return Outcome(entry.key, "refused", None, None, lacking, time.monotonic() - begin)
        prover.compile()
        prover.prove()
        proved = [p for p in prover.proofs if not p.reason]
        out = tuple((p.setting, p.reason) for p in prover.proofs if p.reason)
        if not proved or (work.extend and prover.proofs[-1].reason):
            return Outcome(entry.key, "refused", None, None, out, time.monotonic() - begin)
        if work.extend:
            assert known.certificate is not None
            proof, figures = prover.proofs[-1], dict(known.certificate.time)
        else:
            choice = self._choose(entry, proved)
            proof, figures = proved[choice.at], choice.figures
        certificate = self._certificate(entry, prover, proof, figures)
        fresh = self.again or known.status == "stale"
        add(self.folder, entry.key.arch, entry.key.operator, certificate, fresh=fresh)
        verdict: Verdict = "extended" if work.extend else "tie" if certificate.tie else "chosen"
        return Outcome(entry.key, verdict, proof.setting, certificate, out, time.monotonic() - begin)

    def _choose(self, entry: Entry, proved: Sequence[Proof]) -> Choice:
        """The best setting; one that beats the default must do so once more, with operands elsewhere in memory."""
        if self._clock is None:
            self._clock = clock_for(self.device)
        settings = [p.setting for p in proved]
        clock, examples = self._clock, entry.examples[:MOST_TIMED]
        times = [timed(entry.key, settings, e, self.device, clock) for e in examples]
        choice = choose(times)
        if choice.at:
            pair = settings[0], settings[choice.at]
            again = choose([timed(entry.key, pair, e, self.device, clock, elsewhere=True) for e in examples])
            if not again.at:
                return choose([t[:1] for t in times])
        return choice

    def _certificate(self, entry: Entry, prover: Prover, proof: Proof, figures: dict[str, Any]) -> Certificate:
        return Certificate(
            key=str(entry.key),
            setting=encode(proof.setting),
            tie=proof.setting == entry.candidates[0],
            artifacts=proof.artifacts,
            proof={
                "bits": prover.bits,
                "error": None if proof.error is None else float(f"{proof.error:.3f}"),
                "calls": [str(e) for e in entry.examples],
                "proved": f"{sum(not p.reason for p in prover.proofs)} of {len(prover.proofs)}",
                "runs": proof.runs,
            },
            time=figures,
            compiler=compiler_version(self.device.target.kind),
            driver=driver_of(self.device),
        )


def certify(
    certifier: Certifier, entries: Sequence[Entry], budget: float | None, done: Callable[[Outcome], object]
) -> Report:
    """Certify keys in order until the time is over.

    Parameters
    ----------
    budget
        Seconds after which no key is begun; None: no end.
    done
        Called with each outcome.
    """
    report = Report()
    end = None if budget is None else time.monotonic() + budget
    with Ahead(certifier, entries) as works:
        for number, entry in enumerate(entries):
            if end is not None and time.monotonic() >= end:
                report.left = len(entries) - number
                break
            outcome = certifier.certify(works.next(entry))
            report.outcomes.append(outcome)
            done(outcome)
    return report


class Ahead:
    """Compiles what later keys need, many keys at once, while earlier ones are proved.

    On a CPU each key compiles for itself when its turn comes: compiling beside it would disturb the timing.
    """

    def __init__(self, certifier: Certifier, entries: Sequence[Entry]) -> None:
        self._certifier = certifier
        self._left = deque(entries)
        self._ready: deque[tuple[Work, Future[Compiled] | None]] = deque()
        self._batch = FIRST_BATCH
        self._pool = ThreadPoolExecutor(1) if certifier.device.profile.warp_size > 1 else None

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def next(self, entry: Entry) -> Work:
        """What there is to do for the next key, compiled as far as that was done ahead."""
        if self._pool is None:
            return self._certifier.prepare(entry)
        while not self._ready or (self._left and self._pending() < 2):
            self._submit(self._pool)
        work, compiling = self._ready.popleft()
        if compiling is not None:
            compiling.result()
        return work

    def _pending(self) -> int:
        return len({id(future) for _, future in self._ready if future is not None and not future.done()})

    def _submit(self, pool: ThreadPoolExecutor) -> None:
        """Plan the next keys (in this thread: plans are made one at a time) and have them compiled as one batch."""
        jobs: list[Job] = []
        works: list[Work] = []
        while self._left and len(jobs) < self._batch:
            work = self._certifier.prepare(self._left.popleft())
            works.append(work)
            jobs += [] if work.prover is None else work.prover.jobs()
        self._batch = BATCH
        future = pool.submit(compiled, jobs) if jobs else None
        self._ready.extend((work, future) for work in works)
