"""The choice of a setting: what a certificate proves, or else the operator's declared default.

Every choice is noted, once for each plan that is made: `uses` tells what ran certified and what did not.
"""

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from nbxtensor.base.errors import UncertifiedKeyError
from nbxtensor.base.knobs import certified_only
from nbxtensor.tuning.certificate import Certificate, encode
from nbxtensor.tuning.key import LaunchKey
from nbxtensor.tuning.log import OpenKey, remember_at_exit
from nbxtensor.tuning.tables import certificates

S = TypeVar("S")
Status = Literal["certified", "uncertified", "stale"]


@dataclass(slots=True)
class Use:
    """How often a key was chosen for, and how.

    Attributes
    ----------
    status
        ``certified``; ``uncertified``: nothing is known of the key; ``stale``: a certificate exists, but not for the
        setting or the compiled code that this version has.
    reason
        Why it is stale.
    candidates
        The settings that the operator declares for it, the default first.
    count
        Plans that were made.
    """

    key: LaunchKey
    status: Status
    setting: object
    candidates: tuple[object, ...]
    reason: str = ""
    count: int = 0


@dataclass(slots=True)
class Forced:
    """The setting that every choice for `operator` and `variant` takes, where it is among the candidates.

    Attributes
    ----------
    taken
        Key and plans of each choice that took it.
    """

    operator: str
    variant: str
    setting: object
    taken: list[tuple[LaunchKey, list[object]]]


_uses: dict[LaunchKey, Use] = {}
_state = threading.local()


def uses() -> list[Use]:
    """Every key that this process made a choice for."""
    return list(_uses.values())


def forget_uses() -> None:
    """Forget what was noted."""
    _uses.clear()


@contextmanager
def observed() -> Generator[dict[LaunchKey, Use]]:
    """The choices that this thread makes in the block, by key; they are not noted elsewhere, and never an error."""
    before = getattr(_state, "seen", None)
    seen: dict[LaunchKey, Use] = {}
    _state.seen = seen
    try:
        yield seen
    finally:
        _state.seen = before


@contextmanager
def forced(operator: str, variant: str, setting: object) -> Generator[Forced]:
    """Let this thread's choices for an operator's variant fall on `setting`. Plans made before do not ask again."""
    before = getattr(_state, "forced", None)
    _state.forced = wish = Forced(operator, variant, setting, [])
    try:
        yield wish
    finally:
        _state.forced = before


def wish_for(key: LaunchKey, candidates: Sequence[object]) -> Forced | None:
    """What the caller's block forces on `key`, if anything."""
    wish: Forced | None = getattr(_state, "forced", None)
    if wish is None or (wish.operator, wish.variant) != (key.operator, key.variant):
        return None
    return wish if wish.setting in candidates else None


def proved(key: LaunchKey, candidates: Sequence[S]) -> Iterator[tuple[S | None, Certificate]]:
    """The certificates for `key`, the one that counts first at the front; each with its setting if that is declared."""
    for one in certificates(key.arch, key.operator, str(key)):
        yield next((setting for setting in candidates if encode(setting) == one.setting), None), one


def note(
    key: LaunchKey, setting: object, candidates: Sequence[object], status: Status, computes: bool, reason: str = ""
) -> None:
    """Count a choice; one for a device that does not compute counts only where it is observed.

    Raises
    ------
    UncertifiedKeyError
        NBX_CERTIFIED_ONLY is set, and the choice is not certified.
    """
    seen: dict[LaunchKey, Use] | None = getattr(_state, "seen", None)
    if seen is None:
        if not computes:
            return
        if status != "certified":
            remember_at_exit(open_keys)
            if certified_only.get():
                uncertified = status == "uncertified"
                problem = "no setting is certified for this launch" if uncertified else f"stale certificate: {reason}"
                mend = f"run: {key.command}, or unset NBX_CERTIFIED_ONLY"
                function = key.call.partition("(")[0] or key.operator
                raise UncertifiedKeyError(f"nbx.{function}", problem, got=str(key), mend=mend)
        seen = _uses
    use = seen.get(key)
    if use is None or use.status != status:
        use = seen[key] = Use(key, status, setting, tuple(candidates), reason, 0 if use is None else use.count)
    use.count += 1


def open_keys() -> list[OpenKey]:
    """The keys that this process had no valid certificate for, as the log keeps them."""
    return [
        OpenKey(str(use.key), use.status, use.reason, use.key.command, use.count)
        for use in _uses.values()
        if use.status != "certified"
    ]
