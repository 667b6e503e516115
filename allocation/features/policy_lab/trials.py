"""Trials: asked for by operators, played by a process of its own, cancelled and taken over."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.policy_lab.demand import PAST, DemandTerms, history_under
from allocation.features.policy_lab.figures import Input, Rates, Report, Sides, report_of
from allocation.features.policy_lab.history import (
    energy_read,
    history_read,
    history_with,
    is_drawn,
    lengths_of,
)
from allocation.features.policy_lab.models import PolicyTrial, PolicyTrialPart
from allocation.features.policy_lab.play import Fate, History, Outcome, Play
from allocation.models import Booking, PolicyVersion
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of, policy_version
from allocation.services.policy.scenarios import scenario_read
from allocation.words.refusals import refusal_text
from billing.price_books import current_prices
from billing.rules import LEDGER_STEP
from tenants.audit import platform_record
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

TASK = "policy_lab.trials"
MOST_DAYS, MOST_SEEDS, MOST_OPEN = 90, 10, 5
ATTEMPTS = 3
# Its process writes more often, except while it reads the past; one that did not for so long is dead.
SILENT = timedelta(minutes=3)
BEAT_SECONDS = 2.0
State = PolicyTrial.State


@terms
class TrialTerms:
    """A trial on the site's past."""

    candidate: int = term("Candidate", says="A version of the policy.", min_value=1, max_value=2**31 - 1)
    days: int = term("Days of the past", default=7, min_value=1, max_value=MOST_DAYS)
    seeds: int = term(
        "Seeds",
        "For runs whose length nobody knows.",
        says="How often runs of unknown length are drawn.",
        default=3,
        min_value=1,
        max_value=MOST_SEEDS,
    )
    demand: DemandTerms | None = term(says="Null: the demand of the past.", default=None)


class _Cancelled(Exception):
    """Somebody has cancelled the trial that is played."""


class _Stopped(Exception):
    """The process that plays has to end."""


def trial_ask(*, terms: TrialTerms, operator_id: int | None, now: datetime) -> PolicyTrial:
    """Asks for a trial of a candidate against the version in force.

    Raises:
        Refused: `not_found`, `bad_policy`, `bad_trial` (days or seeds), or `too_many_trials`.
    """
    candidate = policy_version(terms.candidate)
    _policy_check(candidate)
    for name, most in (("days", MOST_DAYS), ("seeds", MOST_SEEDS)):
        if not 1 <= getattr(terms, name) <= most:
            raise invalid("bad_trial", refusal_text("trial_bounds", most=most), name)
    if PolicyTrial.objects.filter(state__in=PolicyTrial.OPEN).count() >= MOST_OPEN:
        raise Refused("too_many_trials", refusal_text("trials_open", most=MOST_OPEN), "conflict")
    demand = terms.demand or PAST
    for each in fields(demand):
        least, most = (each.metadata["serializer_kwargs"][name] for name in ("min_value", "max_value"))
        if not least <= getattr(demand, each.name) <= most:
            sentence = refusal_text("trial_demand", least=least, most=most)
            raise invalid("bad_trial", sentence, each.name)
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    with transaction.atomic():
        trial = PolicyTrial.objects.create(
            candidate=candidate,
            against=live,
            days=terms.days,
            seeds=terms.seeds,
            demand=asdict(demand) if demand != PAST else {},
            until=now.replace(microsecond=0),
            asked_at=now,
            asked_by_id=operator_id,
        )
        after = {"candidate": candidate.number, "days": terms.days, "seeds": terms.seeds, **trial.demand}
        platform_record(operator_id, "policy.trial_asked", ("policy", candidate.number), now, after=after)
        task_request(TASK)
    return trial


def trial_one(trial_id: UUID) -> PolicyTrial:
    """Returns a trial. Raises Refused `not_found`."""
    found = PolicyTrial.objects.select_related("asked_by", "candidate", "against").filter(id=trial_id).first()
    if found is None:
        raise missing("trial")
    return found


def trial_cancel(*, trial_id: UUID, operator_id: int | None, now: datetime) -> PolicyTrial:
    """Cancels a trial; its process ends within seconds. One that is over stays as it is.

    Raises:
        Refused: `not_found`, or `trial_over`.
    """
    with transaction.atomic():
        found = PolicyTrial.objects.select_for_update(of=("self",)).filter(id=trial_id).first()
        if found is None:
            raise missing("trial")
        if found.state not in PolicyTrial.OPEN:
            raise Refused("trial_over", refusal_text("trial_over"), "conflict")
        before, after = {"state": found.state}, {"state": State.CANCELLED.value}
        found.state, found.finished_at = State.CANCELLED, now
        found.save(update_fields=["state", "finished_at"])
        target = "policy", found.candidate_id
        platform_record(operator_id, "policy.trial_cancelled", target, now, before=before, after=after)
    return trial_one(trial_id)


def trials_waiting(now: datetime) -> QuerySet[PolicyTrial]:
    """Returns the trials without a process that plays them."""
    silent = Q(state=State.RUNNING, alive_at__lt=now - SILENT)
    return PolicyTrial.objects.filter(Q(state=State.WAITING) | silent)


def trials_unserved(now: datetime) -> QuerySet[PolicyTrial]:
    """Returns the trials for which a process has to be started: none has been for a while."""
    never = Q(alive_at=None) | Q(alive_at__lt=now - SILENT)
    return trials_waiting(now).filter(never)


def trials_served(now: datetime) -> bool:
    """Notes that a process is started; returns whether one has to be. What a dead one played waits again."""
    return trials_unserved(now).update(state=State.WAITING, alive_at=now) > 0


def trials_run(clock: Callable[[], datetime], is_over: Callable[[], bool] = lambda: False) -> int:
    """Plays what waits, one by one, until `is_over`; returns how many. One process at a time plays one."""
    done = 0
    while not is_over() and (trial := _claim(clock())) is not None:
        _run(trial, clock, is_over)
        done += 1
    return done


def _claim(now: datetime) -> PolicyTrial | None:
    """The oldest trial that waits, if no other process plays one now."""
    with transaction.atomic():
        rows = PolicyTrial.objects.select_for_update(of=("self",), skip_locked=True)
        if rows.filter(state=State.RUNNING, alive_at__gte=now - SILENT).exists():
            return None
        trial = rows.filter(id__in=trials_waiting(now).values("id")).order_by("asked_at", "id").first()
        if trial is None:
            return None
        if trial.attempts >= ATTEMPTS:
            _fail(trial, refusal_text("trial_attempts", most=ATTEMPTS), now)
            return _claim(now)
        trial.state, trial.alive_at, trial.attempts = State.RUNNING, now, trial.attempts + 1
        trial.save(update_fields=["state", "alive_at", "attempts"])
    return trial


def _run(trial: PolicyTrial, clock: Callable[[], datetime], is_over: Callable[[], bool]) -> None:
    began = time.process_time()
    try:
        report = _report(trial, clock, is_over)
    except _Cancelled:
        return
    except _Stopped:
        # The next process continues with the plays that are kept.
        PolicyTrial.objects.filter(id=trial.pk, state=State.RUNNING).update(
            state=State.WAITING, alive_at=None
        )
        return
    except SOLVER_FAULTS as error:
        _fail(trial, f"{type(error).__name__}: {error}", clock())
        return
    took = round((time.process_time() - began) * 1_000)
    PolicyTrial.objects.filter(id=trial.pk, state=State.RUNNING).update(
        state=State.DONE, report=report, finished_at=clock(), took_ms=took, permille=1_000
    )


def _fail(trial: PolicyTrial, why: str, now: datetime) -> None:
    PolicyTrial.objects.filter(id=trial.pk, state__in=PolicyTrial.OPEN).update(
        state=State.FAILED, note=why[:300], finished_at=now
    )


def _report(trial: PolicyTrial, clock: Callable[[], datetime], is_over: Callable[[], bool]) -> Report:
    since = trial.until - timedelta(days=trial.days)
    history, names = history_read(_begin(since), trial.until)
    history = history_under(history, DemandTerms(**trial.demand))
    names = names.with_copies(history)
    # Without unknown lengths all seeds would be the same play.
    seeds = range(1, trial.seeds + 1) if is_drawn(history) else range(1, 2)
    plays = [(is_candidate, seed) for seed in seeds for is_candidate in (False, True)]
    found: dict[tuple[bool, int], Outcome] = {}
    for number, key in enumerate(plays):
        progress = _Progress(trial, clock, is_over, (number, len(plays)), history)
        found[key] = _part(trial, history, key, progress)
    sides = Sides(tuple(found[False, seed] for seed in seeds), tuple(found[True, seed] for seed in seeds))
    rates = {key: int(price.per_gpu_hour / LEDGER_STEP) for key, price in current_prices(trial.until).items()}
    energy = energy_read(since, trial.until)
    others = _candidate_rates(rates, trial.candidate)
    return report_of(Input(history, names, sides, rates, others, energy))


def _candidate_rates(rates: Rates, candidate: PolicyVersion) -> Rates:
    """The prices that are in force with the candidate."""
    found = dict(rates)
    for (kind, whose, _), value in scenario_read(candidate.scenario).items():
        if kind == "price":
            gpu_class, _, tier = whose.partition("/")
            found[gpu_class, tier] = int(Decimal(str(value)) / LEDGER_STEP)
    return found


def _begin(since: datetime) -> datetime:
    """The history begins with the first booking, where the site is younger."""
    first = Booking.objects.order_by("submitted").values_list("submitted", flat=True).first()
    return since if first is None else max(since, first.replace(microsecond=0))


class _Progress:
    """Writes how far a trial is, and finds out whether it was cancelled."""

    def __init__(
        self,
        trial: PolicyTrial,
        clock: Callable[[], datetime],
        is_over: Callable[[], bool],
        plays: tuple[int, int],
        history: History,
    ) -> None:
        """`plays`: how many are made, of how many."""
        self._trial, self._clock, self._is_over = trial, clock, is_over
        self._done, self._plays = plays
        self._begin, self._ends = history.site.now, history.ends
        self._written = time.monotonic()

    def at(self, now: int) -> None:
        """Notes the instant of the play, now and then. Raises _Cancelled or _Stopped."""
        if time.monotonic() - self._written < BEAT_SECONDS:
            return
        if self._is_over():
            raise _Stopped
        part = (now - self._begin) * 1_000 // max(1, self._ends - self._begin)
        self.write((self._done * 1_000 + part) // self._plays)

    def write(self, permille: int) -> None:
        """Notes how far the trial is. Raises _Cancelled."""
        self._written = time.monotonic()
        rows = PolicyTrial.objects.filter(id=self._trial.pk, state=State.RUNNING)
        rows = rows.filter(attempts=self._trial.attempts)
        if not rows.update(alive_at=self._clock(), permille=permille):
            raise _Cancelled

    def part_made(self, part: PolicyTrialPart) -> None:
        """Keeps a play."""
        part.made_at = self._clock()
        part.save()
        self.write((self._done + 1) * 1_000 // self._plays)


def _part(trial: PolicyTrial, history: History, key: tuple[bool, int], progress: _Progress) -> Outcome:
    """One play, from the database if an earlier process has made it."""
    is_candidate, seed = key
    made = PolicyTrialPart.objects.filter(trial=trial, is_candidate=is_candidate, seed=seed).first()
    if made is not None:
        return outcome_read(made.outcome)
    version = trial.candidate if is_candidate else trial.against
    site = history_with(history, scenario_read(trial.candidate.scenario)) if is_candidate else history
    play = Play(site, policy_of(version), lengths_of(history, seed))
    with gc_paused():
        for now in play.turns():
            progress.at(now)
    written = outcome_write(play.outcome)
    progress.part_made(PolicyTrialPart(trial=trial, is_candidate=is_candidate, seed=seed, outcome=written))
    return play.outcome


def outcome_write(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {
        "turns": outcome.turns,
        "fates": {
            booking: [fate.started, fate.pauses, fate.lost, fate.refused, fate.inside, fate.cancelled]
            for booking, fate in outcome.fates.items()
        },
        "used": [[*key, amount] for key, amount in sorted(outcome.used.items())],
    }


def outcome_read(written: dict[str, Any]) -> Outcome:
    """The outcome that `outcome_write` wrote."""
    fates = {booking: Fate(*each) for booking, each in written["fates"].items()}
    used = Counter({(row[0], row[1], row[2], row[3]): row[4] for row in written["used"]})
    return Outcome(fates, used, written["turns"])


def _policy_check(version: PolicyVersion) -> None:
    try:
        policy_of(version)
    except ValueError as error:
        raise invalid("bad_policy", refusal_text("bad_policy", error=error)[:300], "candidate") from error
