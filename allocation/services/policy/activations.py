"""Versions of the policy go into force: at once or at a time, and back to an earlier one.

Another operator than its author approves a version first. On a site with one operator it waits for
a day instead, unless that is waived in words. Going back needs a reason and no approval. Each
change is one transaction, so a version is in force as a whole or not at all.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from allocation.models import PolicyActivation, PolicyApproval, PolicyVersion
from allocation.rules.nodes.node_policy import node_policy_of
from allocation.services.nodes.unbooked_use import escalations_from_policy
from allocation.services.policy.parts import SITE, Part, part_names, part_read, part_values, parts_with
from allocation.services.policy.policies import (
    policy_add,
    policy_changes,
    policy_differences,
    policy_dry_run,
    policy_lock,
    policy_of,
    policy_tiers_check,
    policy_version,
)
from allocation.services.policy.scenarios import (
    Values,
    scenario_apply,
    scenario_lines,
    scenario_read,
    scenario_undo,
)
from allocation.services.record.site_events import policy_event
from allocation.words.refusals import refusal_text
from tenants.audit import audit_in, platform_record
from tenants.models import Tenant
from tenants.platform.errors import Refused, invalid, text_within
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area

WAITING_TIME = timedelta(days=1)
"""Replaces the approval of a second operator where there is none."""
FURTHEST = timedelta(days=366)
# A start so long ago was meant as now.
SKEW = timedelta(minutes=1)
State, Kind = PolicyActivation.State, PolicyActivation.Kind
_ACTIONS: Mapping[str, str] = {Kind.ROLLBACK: "policy.rolled_back", Kind.RETURN: "policy.returned"}


def policy_publish(*, document: object, now: datetime, created_by_id: int | None = None) -> PolicyVersion:
    """Puts a new version into force at once, after a dry run: for `manage.py`, whose callers hold the
    database themselves.

    Raises:
        Refused: `bad_policy`; the live version stays.
    """
    policy_dry_run(document, now)
    with transaction.atomic():
        live = policy_lock()
        version = policy_add(document, now, created_by_id)
        made = _asked(version, Kind.PUBLISHED, now, now, created_by_id)
        _carry_out(made, live, now)
    return version


def policy_activate(  # noqa: PLR0913 (named parts of one command)
    *,
    number: int,
    now: datetime,
    operator_id: int,
    starts: datetime | None = None,
    reason: str = "",
    waiver: str = "",
    guard: Mapping[str, Any] | None = None,
    classes: Sequence[str] = (),
    tenants: Sequence[str] = (),
) -> PolicyActivation:
    """Puts a version into force, at once or from `starts` on; replaces what it waited for before. The
    `guard` is kept with it. With `classes` or `tenants`, by their slugs, it is in force for these only,
    also in place of others for which it is already.

    Raises:
        Refused: `not_found`, `no_change` (it is what the live version says), `bad_starts`,
            `second_person_needed` (another operator can approve, so nothing is waived),
            `bad_policy`, or as `part_read`, `part_values` and `parts_with`.
    """
    _starts_check(starts, now)
    part = part_read(classes, tenants)
    with transaction.atomic():
        live = policy_lock()
        version = policy_version(number)
        _is_readable_check(version)
        _is_new_check(live, version, part)
        begins = max(starts or now, now)
        due = _due_at(version, begins, now, operator_id, waiver)
        PolicyActivation.objects.filter(version=version, state=State.WAITING).update(
            state=State.WITHDRAWN, ended_at=now
        )
        facts: dict[str, Any] = {"reason": reason, "waiver": waiver, "guard": guard, "part": part}
        made = _asked(version, Kind.ACTIVATION, now, begins, operator_id, due=due, **facts)
        if due is not None and due <= now:
            _carry_out(made, live, now)
        else:
            _log(made, "policy.activation_asked", operator_id, now, starts=begins.isoformat())
    return made


def _is_new_check(live: PolicyVersion, version: PolicyVersion, part: Part) -> None:
    """Raises Refused if nothing would change, or for what can't be in force for a part."""
    if part:
        rows = _parts_with(live, version, part)
        is_new = rows != live.parts and any(row["values"] for row in rows if row["version"] == version.number)
    else:
        is_new = bool(policy_differences(live, version)["after"]) or live.parts != version.parts
        is_new = is_new or bool(scenario_lines(version.scenario))
    if not is_new:
        raise invalid("no_change", refusal_text("policy_unchanged"), "number")


def _parts_with(live: PolicyVersion, version: PolicyVersion, part: Part) -> list[dict[str, Any]]:
    """The parts of the version in force, with one in which `version` is. Raises Refused."""
    if version.scenario:
        sentence = refusal_text("policy_part_scenario", names=", ".join(sorted(version.scenario)))
        raise invalid("not_for_a_part", sentence, "classes")
    if version.parts:
        raise invalid(
            "not_for_a_part", refusal_text("policy_part_of_parts", number=version.number), "classes"
        )
    values = part_values(policy_differences(live, version)["after"], part)
    return parts_with(live.parts, version.number, part, values)


def policy_approve(*, number: int, now: datetime, operator_id: int) -> PolicyVersion:
    """Approves a version that another operator wrote. If it waits for that, it goes into force at the
    time that was asked for.

    Raises:
        Refused: `not_found`, `second_person_needed` for its author, or `already_approved`.
    """
    with transaction.atomic():
        live = policy_lock()
        version = policy_version(number)
        if version.created_by_id == operator_id:
            raise _second_person("policy_own", number)
        if PolicyApproval.objects.filter(version=version).exists():
            raise Refused("already_approved", refusal_text("policy_approved", number=number), "conflict")
        PolicyApproval.objects.create(version=version, at=now, by_id=operator_id)
        platform_record(operator_id, "policy.approved", ("policy", number), now, after={"version": number})
        waiting = PolicyActivation.objects.filter(version=version, state=State.WAITING).first()
        if waiting is not None:
            waiting.due_at = waiting.starts
            waiting.save(update_fields=["due_at"])
            if waiting.starts <= now and version.state != PolicyVersion.State.LIVE:
                _carry_out(waiting, live, now)
    return policy_version(number)


def policy_withdraw(*, number: int, now: datetime, operator_id: int) -> PolicyVersion:
    """Withdraws a version that waits to go into force.

    Raises:
        Refused: `not_found` or `not_waiting`.
    """
    with transaction.atomic():
        policy_lock()
        version = policy_version(number)
        waiting = PolicyActivation.objects.filter(version=version, state=State.WAITING).first()
        if waiting is None:
            raise Refused("not_waiting", refusal_text("policy_not_waiting", number=number), "conflict")
        _end(waiting, State.WITHDRAWN, now)
        _log(waiting, "policy.activation_withdrawn", operator_id, now)
    return version


def policy_rollback(
    *,
    now: datetime,
    operator_id: int | None,
    reason: str,
    number: int | None = None,
    is_by_guard: bool = False,
) -> PolicyActivation:
    """Puts an earlier version into force again, at once: the one before the live one, or `number`.

    Raises:
        Refused: `reason_missing`, `not_found`, `never_live`, `no_earlier_version`, `no_change` or
            `bad_policy`.
    """
    if not reason.strip():
        raise invalid("reason_missing", refusal_text("policy_rollback_reason"), "reason")
    with transaction.atomic():
        live = policy_lock()
        version = _former_of(live) if number is None else policy_version(number)
        if version.state == PolicyVersion.State.LIVE:
            raise invalid("no_change", refusal_text("policy_unchanged"), "version")
        if version.state != PolicyVersion.State.RETIRED:
            sentence = refusal_text("policy_never_live", number=version.number)
            raise Refused("never_live", sentence, "conflict", param="version")
        _is_readable_check(version)
        kind = Kind.RETURN if is_by_guard else Kind.ROLLBACK
        made = _asked(version, kind, now, now, operator_id, reason=text_within(reason.strip(), 300, "reason"))
        _carry_out(made, live, now)
    return made


def activations_due(now: datetime) -> QuerySet[PolicyActivation]:
    """Returns the activations whose time has come."""
    return PolicyActivation.objects.filter(state=State.WAITING, due_at__lte=now)


def activations_carry_out(now: datetime) -> int:
    """Puts the versions into force whose time has come, each in its transaction; returns how many."""
    done = 0
    for row in activations_due(now).order_by("due_at", "id").values_list("id", flat=True):
        with transaction.atomic():
            live = policy_lock()
            waiting = activations_due(now).select_for_update(of=("self",)).select_related("version")
            found = waiting.filter(id=row).first()
            if found is None:
                continue
            if found.version.state == PolicyVersion.State.LIVE:
                _end(found, State.WITHDRAWN, now, note="It was in force already.")
                continue
            done += _carry_out_or_fail(found, live, now)
    return done


def _carry_out_or_fail(found: PolicyActivation, live: PolicyVersion, now: datetime) -> bool:
    """What can't be read by now is never in force."""
    try:
        _is_readable_check(found.version)
        # All of it, or none.
        with transaction.atomic():
            _carry_out(found, live, now)
    except Refused as refusal:
        found.refresh_from_db()
        _end(found, State.FAILED, now, note=refusal.sentence[:300])
        _log(found, "policy.activation_failed", found.asked_by_id, now, note=refusal.sentence[:300])
        return False
    return True


def _carry_out(made: PolicyActivation, live: PolicyVersion, now: datetime) -> None:
    """Exchanges the live version, in the caller's transaction, which has locked the versions. A version
    for a part of the site gets into force by a version of its own."""
    version, part = made.version, _part_of(made)
    if part:
        parts = _parts_with(live, version, part)
        version = policy_add(live.document, now, made.asked_by_id, parts)
    live.state = PolicyVersion.State.RETIRED
    live.save(update_fields=["state"])
    version.state = PolicyVersion.State.LIVE
    version.save(update_fields=["state"])
    made.former, made.in_force = live, version
    made.applied = scenario_apply(_wanted(made), made.asked_by, now)
    _end(made, State.DONE, now)
    action = _ACTIONS.get(made.kind, "policy.published")
    _log(made, action, made.asked_by_id, now, **_approval_words(made))
    _tell(made, action, live, now)
    escalations_from_policy(node_policy_of(version.document), now)
    policy_event(version, now)


def _wanted(made: PolicyActivation) -> Values:
    """What an activation sets of tiers, quotas and prices: its scenario, or, going back, what was before."""
    if made.kind not in _ACTIONS:
        return scenario_read(made.version.scenario)
    done = PolicyActivation.objects.filter(state=State.DONE)
    last = done.filter(in_force=made.version).order_by("-id").first()
    since = done.filter(id__gt=last.pk if last else 0).order_by("-id")
    return scenario_undo(since.values_list("applied", flat=True))


def _part_of(made: PolicyActivation) -> Part:
    return Part(tuple(made.classes), tuple(made.tenants))


def _approval_words(made: PolicyActivation) -> dict[str, str]:
    """What the log says of the second operator."""
    if made.kind in _ACTIONS:
        return {}
    approval = PolicyApproval.objects.select_related("by").filter(version=made.version).first()
    if approval is not None:
        return {"approved_by": approval.by.username}
    if made.waiver:
        return {"second_operator": f"There is none. Waived: {made.waiver}"}
    if made.kind == Kind.PUBLISHED:
        return {"second_operator": "None: published by manage.py."}
    earlier = PolicyActivation.objects.filter(version=made.version, state=State.DONE).exclude(id=made.id)
    if earlier.exists():
        return {"second_operator": "Not needed: it was in force before."}
    return {"second_operator": "There is none. It waited for a day."}


def _log(made: PolicyActivation, action: str, operator_id: int | None, now: datetime, **more: Any) -> None:  # noqa: ANN401
    """Writes the entry, with what the version changes and why."""
    former = made.former or PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    try:
        changes = policy_changes(former.document, made.version.document)
    except ValueError:
        changes = {"before": {}, "after": {}}
    said = {"reason": made.reason, "version": made.version_id, **_part_words(made)} | more
    said |= {"set": [" ".join(map(str, (*row[:3], row[4]))) for row in made.applied]}
    platform_record(
        operator_id,
        action,
        ("policy", made.version_id),
        now,
        before={**changes["before"], "version": former.number},
        after={**changes["after"], **{name: value for name, value in said.items() if value}},
    )


def _tell(made: PolicyActivation, action: str, live: PolicyVersion, now: datetime) -> None:
    """Writes into the logs of the organisations that it is for which version is in force, and no more."""
    tenants = Tenant.objects.filter(id__in=made.tenants) if made.tenants else Tenant.objects.all()
    audit_in(
        tenants.order_by("slug").values_list("id", flat=True),
        actor_id=made.asked_by_id,
        action=action,
        target=("policy", made.version_id),
        now=now,
        detail={"before": {"version": live.number}, "after": {"version": made.in_force_id}},
    )


def _part_words(made: PolicyActivation) -> dict[str, Any]:
    """Its part of the site, for the log; nothing: the whole site."""
    if not _part_of(made):
        return {}
    return {"for": part_names({"classes": made.classes, "tenants": made.tenants}), "as": made.in_force_id}


def _asked(  # noqa: PLR0913 (named columns of one row)
    version: PolicyVersion,
    kind: PolicyActivation.Kind,
    now: datetime,
    starts: datetime,
    operator_id: int | None,
    *,
    due: datetime | None = None,
    reason: str = "",
    waiver: str = "",
    guard: Mapping[str, Any] | None = None,
    part: Part = SITE,
) -> PolicyActivation:
    """Adds a row. Without an approval to come it is due when it starts."""
    return PolicyActivation.objects.create(
        version=version,
        kind=kind,
        asked_at=now,
        asked_by_id=operator_id,
        starts=starts,
        due_at=due if kind == Kind.ACTIVATION else starts,
        reason=reason,
        waiver=waiver,
        guard=dict(guard or {}),
        classes=list(part.classes),
        tenants=list(part.tenants),
    )


def _end(made: PolicyActivation, state: PolicyActivation.State, now: datetime, note: str = "") -> None:
    made.state, made.ended_at, made.note = state, now, note
    made.save(update_fields=["state", "ended_at", "former", "in_force", "applied", "note"])


def _due_at(
    version: PolicyVersion, starts: datetime, now: datetime, operator_id: int, waiver: str
) -> datetime | None:
    """When the version goes into force; None: another operator approves first."""
    if version.state == PolicyVersion.State.RETIRED:
        return starts
    if PolicyApproval.objects.filter(version=version).exists():
        return starts
    if version.created_by_id != operator_id:
        PolicyApproval.objects.create(version=version, at=now, by_id=operator_id)
        return starts
    if not is_only_operator(operator_id, Area.RULES, now):
        if waiver:
            raise _second_person("policy_waiver", version.number, "waiver")
        return None
    return starts if waiver else max(starts, now + WAITING_TIME)


def _starts_check(starts: datetime | None, now: datetime) -> None:
    if starts is None:
        return
    if starts < now - SKEW:
        raise invalid("bad_starts", refusal_text("policy_starts_past"), "starts")
    if starts > now + FURTHEST:
        raise invalid("bad_starts", refusal_text("policy_starts_far", most=FURTHEST.days), "starts")


def _is_readable_check(version: PolicyVersion) -> None:
    """Raises Refused `bad_policy` for a document that this software, or this site, can't use."""
    try:
        policy_tiers_check(policy_of(version), version.document)
    except ValueError as error:
        raise invalid("bad_policy", refusal_text("bad_policy", error=error)[:300], "number") from error


def _former_of(live: PolicyVersion) -> PolicyVersion:
    """The version that was in force before the live one."""
    made = PolicyActivation.objects.filter(in_force=live, state=State.DONE).order_by("-id").first()
    if made is None or made.former is None:
        raise Refused("no_earlier_version", refusal_text("policy_no_earlier"), "conflict")
    return made.former


def _second_person(sentence: str, number: int, param: str | None = None) -> Refused:
    text = refusal_text(sentence, number=number)
    return Refused("second_person_needed", text, "conflict", param=param, owner="operator")
