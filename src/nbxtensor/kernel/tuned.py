"""Plans with a chosen setting: certified where a certificate covers exactly what will run, else the default."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast

from nbxtensor.kernel.launch import Plan, planning
from nbxtensor.kernel.public_call import running_call
from nbxtensor.tuning.certificate import Certificate
from nbxtensor.tuning.choose import note, proved, wish_for
from nbxtensor.tuning.key import LaunchKey

S = TypeVar("S")
M = TypeVar("M")
P = ParamSpec("P")

FIXED: tuple[tuple[()]] = ((),)
"""The candidates of launches that know one way."""

_caches: list[dict[Any, Any]] = []
_memos: list[Callable[[], None]] = []


def plan_cache() -> dict[Any, Any]:
    """A dict of plans by the forms of their operands, emptied by `forget_plans`."""
    cache: dict[Any, Any] = {}
    _caches.append(cache)
    return cache


def plan_memo(make: Callable[P, M]) -> Callable[P, M]:
    """Keep the plans that a function of hashable arguments makes, until `forget_plans`."""
    kept = lru_cache(maxsize=4096)(make)
    _memos.append(kept.cache_clear)
    return cast("Callable[P, M]", kept)


def forget_plans() -> None:
    """Let every later call choose its setting anew."""
    for cache in _caches:
        cache.clear()
    for clear in _memos:
        clear()


def _uncovered(certificate: Certificate, plans: Sequence[Plan]) -> str:
    """Why the certificate does not cover what these plans run; "" if it does."""
    for plan in plans:
        if not plan.is_covered(certificate):
            return f"{plan.fn.__name__} was not proved for this operator, or has other sources or another compiler"
        if plan.device.computes and not plan.trust(certificate):
            return f"the code of {plan.fn.__name__} is not what was proved"
    return ""


def tuned(key: LaunchKey, candidates: Sequence[S], make: Callable[[S], M]) -> M:
    """What `make` makes of the best setting that may be used for `key`.

    Parameters
    ----------
    candidates
        The settings that the operator declares for this call, the default first.
    make
        Makes the plans of a setting, all of them before it returns; those that it lets another `tuned` make belong
        to that one's key.
    """
    wish = wish_for(key, candidates)
    if wish is not None:
        with planning() as plans:
            made = make(cast("S", wish.setting))
        wish.taken.append((key, list(plans)))
        return made
    reason = ""
    for setting, certificate in proved(key, candidates):  # a later one may cover what the first does not
        if setting is None:
            reason = reason or "its setting is not a candidate of this version"
            continue
        with planning() as plans:
            made = make(setting)
        uncovered = _uncovered(certificate, plans)
        if not uncovered:
            note(key, setting, candidates, "certified", _computes(plans))
            return made
        reason = reason or uncovered
    with planning() as plans:
        made = make(candidates[0])
    status = "stale" if reason else "uncertified"
    note(replace(key, call=running_call()), candidates[0], candidates, status, _computes(plans), reason)
    return made


def _computes(plans: Sequence[Plan]) -> bool:
    return any(plan.device.computes for plan in plans)
