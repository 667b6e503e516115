"""A candidate in the shadow of today: stored decisions are decided again, and what differs is kept.

A decision is stored with its whole input, so a shadow costs the solver's turn nothing. A worker decides
one at a time and then rests for four times as long as it took. Only operators see what a shadow finds.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from allocation.features.policy_lab.models import PolicyShadow, PolicyShadowDifference
from allocation.models import Booking, Decision, PolicyVersion
from allocation.services.decide.decision_log import decision_chain, decision_rebuild
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of, policy_version, with_peaks
from allocation.services.policy.scenario_sites import scenario_snapshot
from allocation.services.policy.scenarios import scenario_read
from allocation.services.snapshot.snapshot import instant
from allocation.words.refusals import refusal_text
from solver import Plan, decode, solve
from tenants.audit import platform_record
from tenants.failures import each_apart
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

MOST_EVERY, MOST_OPEN = 1_000, 3
# After each decision it rests so many times as long as it took: a fifth of a core at most.
REST = 4
# Without a new decision it looks again after so long.
IDLE = timedelta(seconds=10)
# Starts that differ by less are the same.
SAME = 60
# Of one decision at most so many are kept.
MOST_KEPT = 2_000
Kind = PolicyShadowDifference.Kind


@terms
class ShadowTerms:
    """How often a candidate in shadow decides."""

    every: int = term(
        "Of so many decisions, one",
        says="Of so many decisions of the solver, one is decided again.",
        default=1,
        min_value=1,
        max_value=MOST_EVERY,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs for one booking."""

    booking: str
    kind: PolicyShadowDifference.Kind
    active: int | None = None
    candidate: int | None = None
    rule: str = ""


def shadow_begin(*, number: int, terms: ShadowTerms, operator_id: int | None, now: datetime) -> PolicyShadow:
    """Puts a candidate in shadow, from the next decision on.

    Raises:
        Refused: `not_found`, `bad_every`, `shadow_live` (it is in force), `already_in_shadow`, or
            `too_many_shadows`.
    """
    version = policy_version(number)
    if not 1 <= terms.every <= MOST_EVERY:
        raise invalid("bad_every", refusal_text("trial_bounds", most=MOST_EVERY), "every")
    if version.state == PolicyVersion.State.LIVE:
        raise Refused("shadow_live", refusal_text("shadow_live", number=number), "conflict")
    with transaction.atomic():
        opened = PolicyShadow.objects.filter(ended_at=None)
        if opened.filter(version=version).exists():
            raise Refused("already_in_shadow", refusal_text("shadow_already", number=number), "conflict")
        if opened.count() >= MOST_OPEN:
            raise Refused("too_many_shadows", refusal_text("shadows_open", most=MOST_OPEN), "conflict")
        newest = Decision.objects.order_by("-id").values_list("id", flat=True).first()
        shadow = PolicyShadow.objects.create(
            version=version,
            every=terms.every,
            started_at=now,
            started_by_id=operator_id,
            last_decision=newest or 0,
            next_at=now,
        )
        after = {"version": number, "every": terms.every}
        platform_record(operator_id, "policy.shadow_begun", ("policy", number), now, after=after)
    return shadow


def shadow_end(*, number: int, operator_id: int | None, now: datetime) -> PolicyShadow:
    """Ends a shadow; what it found stays. Raises Refused `not_found` or `not_in_shadow`."""
    with transaction.atomic():
        shadow = PolicyShadow.objects.select_for_update(of=("self",))
        found = shadow.filter(version=policy_version(number), ended_at=None).first()
        if found is None:
            raise Refused("not_in_shadow", refusal_text("shadow_none", number=number), "conflict")
        found.ended_at = now
        found.save(update_fields=["ended_at"])
        was = {"since": found.started_at.isoformat(), "until": None}
        after = was | {"until": now.isoformat()}
        platform_record(operator_id, "policy.shadow_ended", ("policy", number), now, before=was, after=after)
    return found


def shadow_last(number: int) -> PolicyShadow | None:
    """Returns the newest shadow of a version, open or not. Raises Refused `not_found`."""
    version = policy_version(number)
    return PolicyShadow.objects.select_related("started_by").filter(version=version).order_by("-id").first()


def shadow_one(number: int) -> PolicyShadow:
    """As `shadow_last`. Raises Refused `not_found` if it never was in shadow."""
    found = shadow_last(number)
    if found is None:
        raise missing("shadow")
    return found


def differences_of(shadow: PolicyShadow) -> QuerySet[PolicyShadowDifference]:
    """Returns what differs, the newest first."""
    rows = PolicyShadowDifference.objects.filter(shadow=shadow)
    return rows.select_related("booking__tenant", "booking__project").order_by("-last_at", "-id")


def sums_by_tenant(shadow: PolicyShadow) -> list[dict[str, object]]:
    """Returns how many bookings of each organisation are treated otherwise, by kind."""
    found: dict[str, dict[str, int]] = {}
    rows = PolicyShadowDifference.objects.filter(shadow=shadow).order_by("booking__tenant__slug")
    for tenant, kind in rows.values_list("booking__tenant__slug", "kind"):
        counts = found.setdefault(tenant, dict.fromkeys(Kind.values, 0))
        counts[kind] += 1
    return [{"tenant": tenant, **counts} for tenant, counts in found.items()]


def shadows_due(now: datetime) -> QuerySet[PolicyShadow]:
    """Returns the shadows that may decide now."""
    return PolicyShadow.objects.filter(ended_at=None, next_at__lte=now)


def shadows_run(clock: Callable[[], datetime]) -> int:
    """Decides one decision for each shadow that may; returns how many."""
    now = clock()
    return each_apart("shadows", shadows_due(now).order_by("id"), lambda row: _run(row.id, clock), now)


def _run(shadow_id: int, clock: Callable[[], datetime]) -> bool:
    """One decision of one shadow, in a transaction whose lock keeps other workers from it."""
    with transaction.atomic():
        rows = PolicyShadow.objects.select_for_update(of=("self",), skip_locked=True)
        shadow = rows.select_related("version").filter(id=shadow_id, ended_at=None).first()
        if shadow is None:
            return False
        if shadow.version.state == PolicyVersion.State.LIVE:
            shadow.ended_at = clock()
            shadow.save(update_fields=["ended_at"])
            return False
        decision = _next(shadow)
        if decision is None:
            shadow.next_at = clock() + IDLE
            shadow.save(update_fields=["next_at"])
            return False
        began = time.process_time()
        try:
            found = _differences(decision, shadow.version)
        except (*SOLVER_FAULTS, zlib.error) as error:
            shadow.failed += 1
            shadow.note = f"Decision {decision.id}: {type(error).__name__}: {error}"[:200]
        else:
            shadow.decided += 1
            shadow.differing += bool(found)
            _keep(shadow, decision, found)
        took = time.process_time() - began
        shadow.took_ms += round(took * 1_000)
        shadow.last_decision = decision.id
        shadow.next_at = clock() + timedelta(seconds=took * REST)
        shadow.save()
    return True


def _next(shadow: PolicyShadow) -> Decision | None:
    """The newest decision, if it is the n-th since the last: one that falls behind skips some."""
    new = Decision.objects.filter(id__gt=shadow.last_decision, archived_in="")
    numbers = list(new.order_by("-id").values_list("id", flat=True)[: shadow.every])
    if len(numbers) < shadow.every:
        return None
    return Decision.objects.get(id=numbers[0])


def _differences(decision: Decision, version: PolicyVersion) -> list[Difference]:
    stored = decision_rebuild(decision_chain(decision))
    with gc_paused():
        policy = policy_of(version)
        snapshot = scenario_snapshot(stored.snapshot, scenario_read(version.scenario))
        candidate = solve(with_peaks(snapshot, policy, instant(snapshot.now)), policy)
    return list(differences(decode(Plan, stored.plan_bytes), candidate))


def differences(active: Plan, candidate: Plan) -> Iterator[Difference]:
    """Yields how two plans for the same snapshot differ, booking by booking."""
    ours, theirs = _starts(active), _starts(candidate)
    rules = _rules(candidate)
    for booking in sorted(ours.keys() & theirs.keys()):
        change = theirs[booking] - ours[booking]
        if abs(change) >= SAME:
            kind = Kind.LATER if change > 0 else Kind.EARLIER
            yield Difference(booking, kind, ours[booking], theirs[booking], rules.get(booking, ""))
    no, noes = _refused(active), _refused(candidate)
    for booking in sorted(noes.keys() - no.keys()):
        yield Difference(booking, Kind.REFUSED, ours.get(booking), None, noes[booking])
    for booking in sorted(no.keys() - noes.keys()):
        yield Difference(booking, Kind.TAKEN, None, theirs.get(booking))
    at, ats = _paused(active), _paused(candidate)
    for booking in sorted(ats.keys() - at.keys()):
        yield Difference(booking, Kind.PAUSED, None, *ats[booking])
    for booking in sorted(at.keys() - ats.keys()):
        yield Difference(booking, Kind.SPARED, at[booking][0])


def _refused(plan: Plan) -> dict[str, str]:
    return {row.booking: row.reasons[0].code for row in plan.refusals}


def _paused(plan: Plan) -> dict[str, tuple[int, str]]:
    return {row.booking: (row.at, row.reasons[0].code if row.reasons else "") for row in plan.pauses}


def _starts(plan: Plan) -> dict[str, int]:
    found = {row.booking: row.starts for row in plan.assigns}
    return found | {row.booking: row.starts for row in plan.waits}


def _rules(plan: Plan) -> Mapping[str, str]:
    found = {row.booking: row.reasons for row in plan.assigns}
    found |= {row.booking: row.reasons for row in plan.waits}
    return {booking: reasons[0].code for booking, reasons in found.items() if reasons}


def _keep(shadow: PolicyShadow, decision: Decision, found: list[Difference]) -> None:
    """Adds what differs, or counts it again. A booking that is gone, or a change of one, has no row."""
    ids = {each.booking: _uuid(each.booking) for each in found[:MOST_KEPT]}
    wanted = [each for each in ids.values() if each is not None]
    known = set(Booking.objects.filter(id__in=wanted).values_list("id", flat=True))
    for each in found[:MOST_KEPT]:
        booking = ids[each.booking]
        if booking not in known:
            continue
        facts = {
            "last_at": decision.at,
            "decision": decision.id,
            "active_starts": None if each.active is None else instant(each.active),
            "starts": None if each.candidate is None else instant(each.candidate),
            "rule": each.rule[:40],
        }
        rows = PolicyShadowDifference.objects.filter(shadow=shadow, booking_id=booking, kind=each.kind)
        if not rows.update(times=F("times") + 1, **facts):
            PolicyShadowDifference.objects.create(
                shadow=shadow, booking_id=booking, kind=each.kind, times=1, first_at=decision.at, **facts
            )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
