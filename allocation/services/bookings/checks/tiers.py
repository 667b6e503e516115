"""The checks of a request against the limits of its tier."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from allocation.models import Booking, Override, TierVersion
from allocation.queries.decisions.horizon import live_horizon
from allocation.rules.ask import AskDocument
from allocation.rules.tier_limits import Limit, TierLimits
from allocation.services.overrides.use import Need, override_for
from allocation.services.record.refusals import refusal
from allocation.services.tiers.limits import limits_by, start_hours, version_in_force
from allocation.services.tiers.versions import start_hours_text
from allocation.words.amounts import class_name
from allocation.words.refusals import refusal_text
from tenants.models import Membership, Project, Role, Tier, User
from tenants.platform.errors import Refused
from tenants.rules.moments import instant_text
from tenants.services.input_values import seconds_words


@dataclass(frozen=True, slots=True)
class TierUse:
    """A use of a tier by a person in a project, and the booking if it changes one. Refusals say their
    times in `zone`, or without one in that of the person."""

    project: Project
    tier: Tier
    person_id: int | None
    booking: Booking | None
    now: datetime
    version: TierVersion | None
    limits: TierLimits
    zone: str = ""
    _known: dict[str, int] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        project: Project,
        tier: Tier,
        person_id: int | None,
        booking: Booking | None,
        now: datetime,
        zone: str = "",
    ) -> "TierUse":
        """Reads the limits that count: a booking keeps those of its request."""
        keeps = booking is not None and booking.tier_id == tier.slug
        at = booking.submitted if booking is not None and keeps else now
        version = version_in_force(project.tenant_id, tier.slug, at)
        return cls(project, tier, person_id, booking, now, version, limits_by(tier, version), zone)

    def horizon(self) -> int:
        """The horizon of the policy, read once for all dates of a series."""
        if "horizon" not in self._known:
            self._known["horizon"] = live_horizon()
        return self._known["horizon"]

    def keeps_start(self, ask: AskDocument) -> bool:
        """Whether the request has the start of the booking that it changes."""
        booking = self.booking
        return booking is not None and booking.tier_id == self.tier.slug and booking.starts == ask.starts


def audience_check(use: TierUse) -> None:
    """Raises Refused `tier_audience` if the person, or the project, may not use the tier."""
    version = use.version
    if version is None:
        return
    who = ""
    if version.projects and use.project.slug not in version.projects:
        who = "Only the projects " + ", ".join(version.projects)
    elif version.audience != TierVersion.Audience.EVERYBODY and not _is_among(use, version):
        is_leads = version.audience == TierVersion.Audience.LEADS
        who = "Only leads and admins" if is_leads else "Only admins"
    if not who or _lifted(Override.Kind.TIER_AUDIENCE, use):
        return
    others = Tier.objects.exclude(slug=use.tier.slug).values_list("slug", "name")
    names = ", ".join(name for _, name in others) or "–"
    raise refusal(
        "tier_audience",
        refusal_text("tier_audience", who=who, tier=use.tier.name, others=names),
        "denied",
        "tier",
        alternatives=[{"tier": slug, "name": name} for slug, name in others],
        more=_more(Override.Kind.TIER_AUDIENCE, use),
    )


def _is_among(use: TierUse, version: TierVersion) -> bool:
    rows = Membership.objects.filter(tenant_id=use.project.tenant_id, user=use.person_id)
    if rows.filter(role=Role.TENANT_ADMIN).exists():
        return True
    is_leads = version.audience == TierVersion.Audience.LEADS
    return is_leads and rows.filter(role=Role.LEAD, project=use.project).exists()


def classes_within(use: TierUse, units: Mapping[str, int], *, every: bool = False) -> dict[str, int]:
    """Returns the classes that the tier is open for. Raises Refused `tier_class` if none is, or
    with `every` if one is not."""
    allowed = use.limits.classes
    found = {
        name: needed
        for name, needed in units.items()
        if not allowed or name in allowed or _lifted(Override.Kind.TIER_CLASS, use, name)
    }
    if found and not (every and len(found) < len(units)):
        return found
    closed = next(name for name in units if name not in found)
    facts = {"gpu_class": closed, "classes": ", ".join(map(class_name, sorted(allowed)))}
    raise refusal(
        "tier_class",
        refusal_text("tier_class", tier=use.tier.name, **facts),
        "invalid",
        "request",
        numbers=facts,
        more=_more(Override.Kind.TIER_CLASS, use) | {"gpu_class": closed},
    )


def shortest_check(use: TierUse, seconds: int) -> None:
    """Raises Refused `shorter_than_tier`."""
    least = use.limits.shortest
    short = (least.value or 0) - seconds
    if short <= 0:
        return
    is_beyond = seconds < (use.limits.bounds.shortest or 0)
    need = Need(use.project, use.tier, use.person_id, use.booking, short, is_beyond)
    if override_for(Override.Kind.SHORTER, need, use.now) is None:
        raise refusal(
            "shorter_than_tier",
            refusal_text("shorter_than_tier", tier=use.tier.name, shortest=seconds_words(least.value or 0)),
            "invalid",
            "request",
            owner=least.owner,
            numbers={"asked": seconds, "limit": least.value},
            more=_more(Override.Kind.SHORTER, use, short),
        )


def start_check(use: TierUse, ask: AskDocument, not_before: datetime) -> datetime:
    """Returns the earliest start that the tier allows for a request.

    Raises:
        Refused: `too_soon`, `advance_window` or `start_hours`.
    """
    if use.keeps_start(ask):
        return not_before
    limits = use.limits
    ahead = int((not_before - use.now).total_seconds())
    least = limits.least_lead
    # The start of a request "now" has no fractions of a second.
    if ask.starts is not None and least.value and ahead + 1 < least.value:
        short = least.value - max(0, ahead)
        if _notice_override(use, short, is_beyond=_bound(use, "least_lead") > ahead + 1) is None:
            raise _too_soon(use, least)
    elif ask.starts is None and least.value:
        earliest = use.now + timedelta(seconds=least.value)
        not_before = max(not_before, earliest.replace(microsecond=0))
    _lead_check(use, ahead, not_before)
    is_outside = limits.hours is not None and (ask.starts is None or not limits.hours.has(ask.starts))
    if is_outside and not _lifted(Override.Kind.START_HOURS, use):
        raise _outside_hours(use, not_before)
    return not_before


def _lead_check(use: TierUse, ahead: int, not_before: datetime) -> None:
    """Raises Refused `advance_window` by the tier, or by the policy, which plans no later start
    whatever the tier allows."""
    most = use.limits.most_lead
    horizon = use.horizon() if ahead > 0 else None
    is_planned = horizon is None or ahead <= horizon
    if most.value is not None and ahead > most.value:
        over = ahead - most.value
        if _notice_override(use, over, is_beyond=_bound(use, "most_lead") < ahead) is None:
            far = _too_far(use, most, not_before)
            # An exception from the tier's limit would not be planned either.
            raise far if is_planned else replace(far, more={})
    if horizon is not None and not is_planned:
        far = _too_far(use, Limit(horizon, "operator"), not_before)
        sentence = refusal_text("beyond_horizon", horizon=seconds_words(horizon))
        raise replace(far, sentence=sentence, more={})


def _bound(use: TierUse, name: str) -> int:
    """The operator's bound."""
    return int(getattr(use.limits.bounds, name))


def _notice_override(use: TierUse, seconds: int, *, is_beyond: bool) -> Override | None:
    kind = Override.Kind.NOTICE
    need = Need(use.project, use.tier, use.person_id, use.booking, seconds, is_beyond)
    return override_for(kind, need, use.now)


def _lifted(kind: Override.Kind, use: TierUse, gpu_class: str | None = None) -> bool:
    """Whether an exception lifts a rule of the tier that has no number."""
    need = Need(
        use.project,
        use.tier,
        use.person_id,
        use.booking,
        amount=1,
        is_beyond=False,
        gpu_class=gpu_class,
    )
    return override_for(kind, need, use.now) is not None


def _more(kind: Override.Kind, use: TierUse, amount: int = 1) -> dict[str, str]:
    where = {"tier": use.tier.slug, "project": use.project.slug}
    return {"kind": str(kind), "amount": str(amount), **where}


def _too_soon(use: TierUse, least: Limit) -> Refused:
    earliest = (use.now + timedelta(seconds=(least.value or 0) + 60)).replace(second=0, microsecond=0)
    hours = use.limits.hours
    if hours is not None and not hours.has(earliest) and not _lifted(Override.Kind.START_HOURS, use):
        earliest = hours.following(earliest) or earliest
    shown = instant_text(earliest, zone_of_reader(use), use.now)
    facts = {"lead": seconds_words(least.value or 0), "earliest": shown}
    return refusal(
        "too_soon",
        refusal_text("too_soon", tier=use.tier.name, **facts),
        "invalid",
        "request",
        owner=least.owner,
        numbers={"limit": least.value},
        alternatives=[{"starts": earliest.isoformat()}],
        # What is short grows until somebody decides.
        more=_more(Override.Kind.NOTICE, use, least.value or 0),
    )


def zone_of_reader(use: TierUse) -> ZoneInfo:
    """The time zone in which a refusal says times."""
    if use.zone or use.person_id is None:
        return ZoneInfo(use.zone or "UTC")
    return ZoneInfo(User.objects.values_list("time_zone", flat=True).get(id=use.person_id))


def _too_far(use: TierUse, most: Limit, starts: datetime) -> Refused:
    """Returns the refusal, with the last start at the same time of the day within the limit."""
    days, latest = seconds_words(most.value or 0), use.now + timedelta(seconds=most.value or 0)
    zone = zone_of_reader(use)
    same_hour = _same_hour_by(starts, latest, zone)
    is_same_hour = same_hour > use.now
    latest = same_hour if is_same_hour else latest.replace(second=0, microsecond=0)
    over = int((starts - use.now).total_seconds()) - (most.value or 0)
    return refusal(
        "advance_window",
        refusal_text(
            "advance_window",
            tier=use.tier.name,
            ahead=days,
            of=" at that time of day" if is_same_hour else "",
            latest=instant_text(latest, zone, use.now),
        ),
        "invalid",
        "request",
        owner=most.owner,
        numbers={"horizon_seconds": most.value, "latest": latest.isoformat()},
        more=_more(Override.Kind.NOTICE, use, over),
    )


def _same_hour_by(starts: datetime, latest: datetime, zone: ZoneInfo) -> datetime:
    """The last instant by `latest` with the time of day of `starts` in the zone, also where clocks change
    between them."""
    local = starts.astimezone(zone)
    day = latest.astimezone(zone).date()
    for back in range(2):
        found = local.replace(year=day.year, month=day.month, day=day.day) - timedelta(days=back)
        if found.astimezone(UTC) <= latest:
            break
    return found.astimezone(UTC)


def _outside_hours(use: TierUse, not_before: datetime) -> Refused:
    version = use.version
    hours = start_hours(version) if version is not None else None
    following = hours.following(not_before) if hours is not None else None
    text = start_hours_text(version) if version is not None else ""
    zone = version.zone if version is not None else "UTC"
    return refusal(
        "start_hours",
        refusal_text("start_hours", tier=use.tier.name, hours=text, zone=zone),
        "invalid",
        "request",
        numbers={"hours": text, "zone": zone},
        alternatives=[{"starts": following.isoformat()}] if following else [],
        more=_more(Override.Kind.START_HOURS, use),
    )
