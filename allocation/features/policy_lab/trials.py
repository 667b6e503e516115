"""Trials: asked for by operators, played by a process of its own, cancelled and taken over."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.policy_lab.demand import PAST, DemandTerms, history_under
from allocation.features.policy_lab.figures import Input, Report, Sides, report_of
from allocation.features.policy_lab.history import (
    Names,
    energy_read,
    history_read,
    history_with,
    is_drawn,
    lengths_of,
)
from allocation.features.policy_lab.models import PolicyTrial, PolicyTrialPart, PolicyTrialTenant
from allocation.features.policy_lab.past_rules import (
    Prices,
    Repeated,
    forecast_days,
    prices_read,
    repeated_read,
    rules_read,
)
from allocation.features.policy_lab.plays.fleets import (
    MOST_GPUS,
    FleetTerms,
    gpu_seconds_of,
    history_with_gpus,
)
from allocation.features.policy_lab.plays.past import Fate, History, Outcome
from allocation.features.policy_lab.plays.play import Play
from allocation.models import Booking, Gpu, PolicyVersion
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of, policy_version
from allocation.services.policy.scenarios import NOTHING, scenario_read
from allocation.words.refusals import refusal_text
from solver import Policy
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
SIDES = ("active", "candidate")


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
    fleet: FleetTerms | None = term(says="GPUs that only the candidate has. Null: none.", default=None)


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
    fleet = {} if terms.fleet is None else _fleet(terms.fleet)
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    with transaction.atomic():
        trial = PolicyTrial.objects.create(
            candidate=candidate,
            against=live,
            days=terms.days,
            seeds=terms.seeds,
            demand=asdict(demand) if demand != PAST else {},
            fleet=fleet,
            until=now.replace(microsecond=0),
            asked_at=now,
            asked_by_id=operator_id,
        )
        asked = {"days": terms.days, "seeds": terms.seeds, **trial.demand, **fleet}
        after = {"candidate": candidate.number, **asked}
        platform_record(operator_id, "policy.trial_asked", ("policy", candidate.number), now, after=after)
        task_request(TASK)
    return trial


def _fleet(terms: FleetTerms) -> dict[str, Any]:
    """The GPUs that are added. Raises Refused: `bad_trial`."""
    bounds = (("gpus", 1, MOST_GPUS), ("from_hour", 0, 23), ("to_hour", 1, 24))
    for name, least, most in bounds:
        if not least <= getattr(terms, name) <= most:
            raise invalid("bad_trial", refusal_text("trial_fleet", least=least, most=most), f"fleet.{name}")
    if not Gpu.objects.filter(gpu_class=terms.gpu_class).exists():
        raise invalid("bad_trial", refusal_text("trial_class", name=terms.gpu_class), "fleet.gpu_class")
    return asdict(terms)


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
        report, names = _report(trial, clock, is_over)
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
    with transaction.atomic():
        done = PolicyTrial.objects.filter(id=trial.pk, state=State.RUNNING).update(
            state=State.DONE, report=report, finished_at=clock(), took_ms=took, permille=1_000
        )
        if done and trial.fleet:
            PolicyTrialTenant.objects.bulk_create(_parts_of_tenants(trial, report, names))


def _parts_of_tenants(trial: PolicyTrial, report: Report, names: Names) -> Iterator[PolicyTrialTenant]:
    """What organisations read of a trial with more GPUs: their own rows."""
    for tenant_id, slug in sorted(names.tenants.items()):
        rows = [row | {"name": ""} for row in report["tenants"] if row["name"] == slug]
        projects = [row for row in report["projects"] if row["name"].startswith(f"{slug}/")]
        rows += [row | {"name": row["name"].partition("/")[2]} for row in projects]
        if rows:
            yield PolicyTrialTenant(
                tenant_id=tenant_id,
                trial=trial.pk,
                fleet=trial.fleet,
                days=trial.days,
                until=trial.until,
                rows=rows,
            )


def _fail(trial: PolicyTrial, why: str, now: datetime) -> None:
    PolicyTrial.objects.filter(id=trial.pk, state__in=PolicyTrial.OPEN).update(
        state=State.FAILED, note=why[:300], finished_at=now
    )


def _report(
    trial: PolicyTrial, clock: Callable[[], datetime], is_over: Callable[[], bool]
) -> tuple[Report, Names]:
    since = _begin(trial.until - timedelta(days=trial.days))
    history, names = history_read(since, trial.until)
    history = history_under(history, DemandTerms(**trial.demand))
    names = names.with_copies(history)
    sides = {side: _side(trial, history, since, is_candidate=side == "candidate") for side in SIDES}
    # Without unknown lengths all seeds would be the same play.
    seeds = range(1, trial.seeds + 1) if is_drawn(history) else range(1, 2)
    plays = [(side, seed) for seed in seeds for side in SIDES]
    found: dict[tuple[str, int], Outcome] = {}
    for number, (side, seed) in enumerate(plays):
        progress = _Progress(trial, clock, is_over, (number, len(plays)), history)
        found[side, seed] = _part(trial, sides[side], seed, progress)
    active, candidate = (tuple(found[side, seed] for seed in seeds) for side in SIDES)
    report = report_of(
        Input(
            history,
            names,
            Sides(active, candidate),
            sides["active"].prices,
            sides["candidate"].prices,
            energy_read(since, trial.until),
            {name: side.repeated for name, side in sides.items()},
            {name: forecast_days(side.history.rules) for name, side in sides.items()},
            gpu_seconds_of(FleetTerms(**trial.fleet), history.ends - history.site.now) if trial.fleet else 0,
        )
    )
    return report, names


@dataclass(frozen=True, slots=True)
class _Side:
    """What is played of one of both versions: the past with its rules, its policy and its prices."""

    is_candidate: bool
    history: History
    policy: Policy
    prices: Prices
    repeated: list[Repeated]


def _side(trial: PolicyTrial, history: History, since: datetime, *, is_candidate: bool) -> _Side:
    policy = policy_of(trial.candidate if is_candidate else trial.against)
    scenario = scenario_read(trial.candidate.scenario) if is_candidate else NOTHING
    prices = prices_read(trial.until, scenario, history.site)
    repeated = repeated_read(trial.until, scenario)
    if is_candidate and trial.fleet:
        history = history_with_gpus(history, FleetTerms(**trial.fleet))
    history = replace(
        history_with(history, scenario),
        rules=rules_read(since, trial.until, scenario, dict(policy.headroom)),
        peak_hours=prices.hours,
        repeated={each.tier: each.seconds for each in repeated},
    )
    return _Side(is_candidate, history, policy, prices, repeated)


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


def _part(trial: PolicyTrial, side: _Side, seed: int, progress: _Progress) -> Outcome:
    """One play, from the database if an earlier process has made it."""
    key = {"trial": trial, "is_candidate": side.is_candidate, "seed": seed}
    made = PolicyTrialPart.objects.filter(**key).first()
    if made is not None:
        return outcome_read(made.outcome)
    play = Play(side.history, side.policy, lengths_of(side.history, seed))
    with gc_paused():
        for now in play.turns():
            progress.at(now)
    progress.part_made(PolicyTrialPart(**key, outcome=outcome_write(play.outcome)))
    return play.outcome


def outcome_write(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {
        "turns": outcome.turns,
        "fates": {booking: list(astuple(fate)) for booking, fate in outcome.fates.items()},
        "used": [[*key, amount, outcome.peak[key]] for key, amount in sorted(outcome.used.items())],
    }


def outcome_read(written: dict[str, Any]) -> Outcome:
    """The outcome that `outcome_write` wrote."""
    fates = {booking: Fate(*each) for booking, each in written["fates"].items()}
    found = Outcome(fates, turns=written["turns"])
    for tenant, project, gpu_class, tier, profile, amount, peak in written["used"]:
        use = (tenant, project, gpu_class, tier, profile)
        found.used[use] = amount
        if peak:
            found.peak[use] = peak
    return found


def _policy_check(version: PolicyVersion) -> None:
    try:
        policy_of(version)
    except ValueError as error:
        raise invalid("bad_policy", refusal_text("bad_policy", error=error)[:300], "candidate") from error
