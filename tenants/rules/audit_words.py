"""Texts of log entries: the action, its object, and the changed values. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any

ACTIONS = {
    "access.ended": "ended the access of an operator",
    "access.opened": "opened the data for an operator",
    "access.page_read": "read a page as an operator",
    "account.closed": "closed the account {object}",
    "account.created": "created the account {object}",
    "account.erased": "erased the personal data of {object}",
    "account.opened": "reopened the account {object}",
    "announcement.published": "published an announcement",
    "engine.enrolled": "enrolled the engine {object}",
    "engine.enrolment_token_made": "created an enrolment token for the engine {object}",
    "engine.key_rotated": "rotated the keys of the engine {object}",
    "engine.locked_out": "revoked the access of the engine {object}",
    "failed_message.dismissed": "gave a failed message up",
    "failed_message.retried": "had a failed message tried again",
    "announcement.withdrawn": "withdrew an announcement",
    "approval.approved": "approved booking {object}",
    "approval.declined": "declined booking {object}",
    "approval.countered": "offered something else for booking {object}",
    "approval.counter_accepted": "accepted a counter-offer for booking {object}",
    "approval.counter_declined": "declined a counter-offer for booking {object}",
    "tier_version.set": "set the limits of the tier {object}",
    "tier_version.withdrawn": "withdrew the limits of the tier {object}",
    "audit.verified": "verified the chains of the log",
    "booking.cancel": "cancelled booking {object}",
    "booking.change": "changed booking {object}",
    "booking.change_asked": "requested a change of booking {object}",
    "booking.corrected": "corrected the charge of booking {object}",
    "booking.extend": "requested an extension of booking {object}",
    "booking.message_sent": "sent a message about booking {object}",
    "booking.more_time": "requested extra time for booking {object}",
    "booking.pause_ordered": "paused booking {object}",
    "booking.release_asked": "asked to release booking {object}",
    "booking.released": "released booking {object}",
    "booking.request": "requested booking {object}",
    "booking.saved": "confirmed that booking {object} is saved",
    "budget.set": "set {object}",
    "budget.ladder": "set the alerts and limits of {object}",
    "budget.threshold_reached": "saw {object} reach an alert or limit",
    "budget.threshold_cleared": "saw {object} fall below an alert or limit",
    "budget.unit_limit_set": "set the most spend per unit of progress of {object}",
    "budget.labels_set": "set labels of {object}",
    "campaign.close": "closed the campaign {object}",
    "campaign.create": "created the campaign {object}",
    "campaign.open": "reopened the campaign {object}",
    "campaign.match": "set what belongs to {object}",
    "project.labels_set": "set labels of {object}",
    "budget.variance_rule_set": "set when spend of {object} is unusual",
    "clock.accepted": "accepted the portal's clock as it is",
    "compaction.order": "ordered running work to move, with booking {object}",
    "compaction.ordered": "ordered running work to move for {object}",
    "directory.created": "created the account {object} from the directory",
    "directory.group_removed": "removed the group {object} from the directory",
    "directory.group_set": "set the group {object} from the directory",
    "directory_token.removed": "removed the directory's token of {object}",
    "directory_token.set": "created the directory's token of {object}",
    "decision.replayed": "replayed decision {object}",
    "demo.filled": "filled the demo up to {object}",
    "epoch.raised": "raised the epoch to {object} after a restore",
    "freeze.begun": "froze decisions",
    "freeze.ended": "resumed decisions",
    "gpu.returned": "returned a GPU of {object} to service",
    "gpu_class.removed": "removed the GPU class {object}",
    "gpu_class.set": "set the GPU class {object}",
    "gpu_model.removed": "removed the GPU model {object}",
    "gpu_model.set": "set the GPU model {object}",
    "invitation.accepted": "accepted an invitation",
    "invitation.created": "invited a person",
    "invitation.declined": "declined an invitation",
    "invitation.revoked": "withdrew an invitation",
    "lab.archived": "archived the lab {object}",
    "lab.created": "created the lab {object}",
    "lab.lead_added": "made somebody a lead of the lab {object}",
    "lab.lead_removed": "took the lead of the lab {object} from somebody",
    "lab.opened": "reopened the lab {object}",
    "lab.renamed": "renamed the lab {object}",
    "maintenance.changed": "changed maintenance of {object}",
    "maintenance.ended": "ended maintenance of {object}",
    "maintenance.planned": "planned maintenance of {object}",
    "member.disabled": "disabled {object} in the organisation",
    "member.enabled": "enabled {object} in the organisation",
    "membership.removed": "removed a member",
    "membership.set": "set a member's role",
    "month.close": "closed the month {object}",
    "node.approved": "put {object} into service",
    "node.drained": "drained {object}",
    "node.enrolled": "enrolled the agent of {object}",
    "node.enrolment_token_made": "created an enrolment token for {object}",
    "node.fenced": "confirmed that hardware of {object} is powered off",
    "node.gpu_mode_pinned": "set the mode of a GPU of {object}",
    "node.joined_engine": "approved {object} as a host of an engine",
    "node.key_rotated": "rotated the signing key of {object}",
    "node.ladder_follows_policy": "reset the enforcement on {object} to the policy",
    "node.ladder_set": "set the enforcement on {object}",
    "node.locked_out": "revoked the access of {object}",
    "node.rack_set": "set the rack of {object}",
    "operator.created": "created the operator {object}",
    "outage.begun": "announced an outage of the portal",
    "outage.closed": "closed the portal for its outage",
    "outage.ended": "ended the outage of the portal",
    "person_quota.set": "set the limit of {object}",
    "policy.drafted": "drafted policy version {object}",
    "policy.published": "published policy version {object}",
    "policy.activation_asked": "asked for policy version {object} to go into force",
    "policy.activation_withdrawn": "withdrew policy version {object}, which waited to go into force",
    "policy.activation_failed": "could not put policy version {object} into force",
    "policy.approved": "approved policy version {object}",
    "policy.returned": "returned by its guard to policy version {object}",
    "policy.rolled_back": "went back to policy version {object}",
    "prices.draft_changed": "changed a draft of prices",
    "prices.draft_discarded": "discarded a draft of prices",
    "prices.drafted": "wrote a draft of prices",
    "prices.published": "published price book version {object}",
    "passkey.added": "added a passkey to {object}",
    "passkey.copy_refused": "refused a copied passkey of {object}",
    "passkey.removed": "removed a passkey of {object}",
    "passkey.renamed": "renamed a passkey of {object}",
    "project.closed": "closed {object}",
    "project.created": "created {object}",
    "project.moved": "moved {object} to another lab",
    "project.opened": "reopened {object}",
    "quota.set": "set the quota of {object}",
    "quota_window.added": "set a limit of {object} at some times",
    "quota_window.removed": "removed a limit of {object} at some times",
    "second_factor.codes_renewed": "renewed the recovery codes of {object}",
    "second_factor.recovery_used": "used a recovery code of {object}",
    "second_factor.removed": "removed the second factor of {object}",
    "second_factor.set": "turned on the second factor of {object}",
    "series.change": "changed a series of bookings",
    "series.cancel": "cancelled a series of bookings",
    "series.request": "requested a series of bookings",
    "service_account.closed": "closed the service account {object}",
    "service_account.created": "created the service account {object}",
    "session.all_ended": "ended all other sessions",
    "session.ended": "ended a session",
    "sign_in.done": "signed in",
    "sign_in.failed": "failed to sign in",
    "sign_in.locked_out": "was locked out after failed sign-ins",
    "sign_on.connected": "connected the account {object} with a provider",
    "sign_on.group_added": "gave a group a role in {object}",
    "sign_on.group_removed": "took a role from a group in {object}",
    "sign_on.off": "switched off single sign-on of {object}",
    "sign_on.on": "switched on single sign-on of {object}",
    "sign_on.set": "set the sign-in provider of {object}",
    "stop.begun": "stopped new work",
    "stop.ended": "ended a stop of new work",
    "tenant.admin_invited": "invited an admin of {object}",
    "tenant.closed": "closed the organisation {object}",
    "tenant.created": "created the organisation {object}",
    "tenant.opened": "reopened the organisation {object}",
    "tier.set": "set the tier {object}",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "token.rotated": "replaced an API token",
    "user.mails_set": "changed their e-mail settings",
    "user.notifications_set": "changed which notifications they get",
    "user.password_reset": "set a new password by a mailed link",
    "user.password_set": "changed their password",
    "user.zone_set": "changed their time zone",
    "workload.set": "set the speeds of {object}",
}
FIELDS = {
    "borrow_limit_units": "borrows at most",
    "by": "drain by",
    "drain_by": "drain by",
    "gpu_class": "GPU class",
    "gpu_class_id": "GPU class",
    "gpus": "GPUs",
    "grams": "g of CO₂ per kWh, by hour",
    "has_email": "has e-mail",
    "is_open": "open",
    "jump_seconds": "jump of the clock",
    "key_version": "key version",
    "lend_limit_units": "lends at most",
    "most_cost": "at most",
    "first": "first bookings of a person",
    "issue": "of the issue",
    "is_shared": "for everybody",
    "list": "list of",
    "query": "filter",
    "request": "what is booked",
    "steps": "who approves",
    "is_hard": "stops bookings at its end",
    "warn_percent": "warns at percent",
    "open_places": "allocations in use",
    "price": "price per kWh, by hour",
    "scratch_gb": "scratch space, GB",
    "url": "address",
    "username": "sign-in name",
}
# By kind, the part of `detail` that names an object whose id means nothing to people.
NAMED_BY = {
    # Earlier entries of corrections and of acts on many bookings name it as `number`.
    "booking": ("label", "number"),
    "campaign": ("campaign",),
    "compaction_order": ("for",),
    "lab": ("slug",),
    "maintenance": ("where",),
    "person_quota": ("person", "in_project", "gpu_class"),
    "project": ("slug",),
    "quota": ("tenant", "lab", "project", "gpu_class"),
    "quota_window": ("of", "gpu_class"),
    "service_account": ("name",),
    "tier_version": ("tier",),
    "user": ("username",),
}
NAMELESS = {
    "budget": "a budget",
    "project": "a project",
    "quota": "the organisation",
}
# Parts of an entry that are not changed values.
NO_CHANGE = {"before", "after", "address", "label", "project", "user", "order", "invitation"}
_SETUP = "set-up in "
_DAY = 86_400
_UNITS_PER_GPU = 56_000
_DAY_HOURS = 24
_NUMBER = re.compile(r"^\d+(\.\d+)?$")
# An amount of money as the database has it, "80.000000": what follows the cents are zeros.
_AMOUNT = re.compile(r"^(-?\d+\.\d\d)0+$")


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value; `before` is empty if there was none."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of GPU classes and tiers by slug, and of projects, as pages show them."""

    classes: Mapping[str, str]
    tiers: Mapping[str, str]
    projects: Mapping[str, str] = field(default_factory=dict)
    """By id and by short name."""
    cores: frozenset[str] = frozenset()
    """The labels of classes of CPU cores, whose quotas are in cores."""

    def of(self, name: str) -> Mapping[str, str]:
        """The names of what a part of a detail, or a kind of object, refers to."""
        if name in ("tier", "tier_id", "tiers"):
            return self.tiers
        if name in ("project", "in_project"):
            return self.projects
        return self.classes if name in ("gpu_class", "gpu_class_id", "classes") else {}

    def field(self, name: str) -> str:
        """The name of a part that is named after classes and tiers: `h100 spot`, `set-up in spot`."""
        first, *rest = name.split(" ")
        if first in self.classes:
            return " ".join([self.classes[first], *(self.tiers.get(each, each) for each in rest)])
        if name.startswith(_SETUP):
            return _SETUP + self.tiers.get(tier := name.removeprefix(_SETUP), tier)
        return name


def with_labels(detail: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    """The detail with GPU classes and tiers by the names that pages show."""
    return {labels.field(name): _labelled(name, value, labels) for name, value in detail.items()}


def _labelled(name: str, value: object, labels: Labels) -> object:
    if isinstance(value, Mapping):
        return with_labels(value, labels)
    known = labels.of(name)
    if isinstance(value, list):
        return [known.get(each, each) if isinstance(each, str) else each for each in value]
    return ", ".join(known.get(each, each) for each in value.split(", ")) if isinstance(value, str) else value


def object_name(kind: str, identifier: str, detail: Mapping[str, Any], labels: Labels) -> str:
    """The name of an entry's object for people: `gpu-a1-01`, `BK-2041`, `helix H100 80 GB`. `detail` has
    the labels."""
    parts = (detail, _part(detail, "after"), _part(detail, "before"))
    found = []
    for name in NAMED_BY.get(kind, ()):
        value = next((str(part[name]) for part in parts if part.get(name)), "")
        if kind == "project":
            value = labels.projects.get(value, value)
        found += ["a project" if is_uuid_text(value) else value] if value else []
    known = labels.of(kind).get(identifier, identifier)
    return " ".join(found) or NAMELESS.get(kind, known)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How values of an entry are read: with times of a zone, and quotas in GPUs or cores."""

    zone: tzinfo
    unit: str


def changes_of(
    detail: Mapping[str, Any], zone: tzinfo = UTC, cores: Collection[str] = ()
) -> Iterator[Change]:
    """The changed values, and the other details of the entry, with times of a zone. A new thing that lacks
    a part or answers it with no has no line for it, nor for the state in which all begin."""
    before, after = _part(detail, "before"), _part(detail, "after")
    reading = _Reading(zone, "core" if {**before, **after}.get("gpu_class") in cores else "GPU")
    for name in dict.fromkeys((*before, *after)):
        if isinstance(before.get(name, after.get(name)), dict):
            continue
        if name not in before and _is_empty(name, after.get(name)):
            continue
        old, new = _words(name, before, reading), _words(name, after, reading)
        if old != new:
            yield Change(_field(name), old, new)
    for name, value in detail.items():
        if name not in NO_CHANGE and not isinstance(value, dict) and not _is_empty(name, value):
            yield Change(_field(name), "", _value(name, value, reading))


def _is_empty(name: str, value: object) -> bool:
    if name.endswith("_limit_units"):
        return False
    return value is None or value is False or value in ("", []) or (name, value) == ("state", "requested")


def _part(detail: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = detail.get(name)
    return found if isinstance(found, Mapping) else {}


def _field(name: str) -> str:
    return FIELDS.get(name, name.removesuffix("_seconds").removesuffix("_units").replace("_", " "))


def _words(name: str, part: Mapping[str, Any], reading: _Reading) -> str:
    return _value(name, part[name], reading) if name in part else ""


def _value(name: str, value: object, reading: _Reading) -> str:
    if value is None or value in ("", []):
        return "no limit" if name.endswith("_limit_units") else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _listed([str(each) for each in value])
    if isinstance(value, int) and name.endswith(("_seconds", "_after")):
        return _length(value)
    if isinstance(value, int) and name.endswith("_units"):
        return _amount(value, reading.unit)
    return _moment(value, reading.zone) if isinstance(value, str) else str(value)


def _moment(text: str, zone: tzinfo) -> str:
    """A time of a zone as text for people, and an amount without the zeros after its cents."""
    try:
        found = datetime.fromisoformat(text) if len(text) > len("2026-11-22") else None
        if found is not None and found.tzinfo is not None:
            found = found.astimezone(zone)
    except (ValueError, OverflowError):
        # No time, or one that people wrote and that is outside of the calendar in this zone.
        found = None
    if found is None:
        return _AMOUNT.sub(r"\1", text)
    return f"{found.day} {found:%b %Y %H:%M}{' UTC' * (zone == UTC)}"


def _listed(values: Sequence[str]) -> str:
    """`a1, a2`; of the numbers of a day's hours the least and the most."""
    if len(values) != _DAY_HOURS or not all(_NUMBER.match(each) for each in values):
        return ", ".join(values)
    least, most = min(values, key=float), max(values, key=float)
    return least if least == most else f"{least} to {most}"


def _amount(units: int, unit: str) -> str:
    text = f"{units / _UNITS_PER_GPU:.3f}".rstrip("0").rstrip(".")
    return f"{text} {unit}" if units == _UNITS_PER_GPU else f"{text} {unit}s"


def _length(seconds: int) -> str:
    for size, unit in ((_DAY, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def is_uuid_text(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4
