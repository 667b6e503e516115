"""Versions of a tier's limits: a tenant's admins set them, inside the operator's bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from allocation.models import TierVersion
from allocation.rules.tier_limits import outside_bounds
from allocation.services.tiers.limits import bounds_of, own_bounds
from allocation.words.refusals import refusal_text
from billing.peak_text import peak_hours_read, peak_hours_text
from billing.rates import PeakHours
from tenants.access import Actor, require_tenant_admin
from tenants.audit import actor_record
from tenants.models import GpuClass, Project, Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import seconds_text

MOST_VERSIONS = 200
LATEST = timedelta(days=2 * 366)
MOST_NUMBER = 100_000
# The names of the limits in the rules, and as fields of a version.
FIELDS = {
    "shortest": "min_seconds",
    "longest": "max_seconds",
    "least_lead": "min_lead_seconds",
    "most_lead": "max_lead_seconds",
    "most_open": "max_open",
    "most_gpus": "max_open_gpus",
}


@dataclass(frozen=True, slots=True)
class VersionTerms:
    """A version as an admin states it; None and empty: no limit inside the operator's bounds.

    `start_hours` is a text like `Mon-Fri 8-18, Sat 10-14`. `starts` None: from now on.
    """

    tier: str
    starts: datetime | None = None
    audience: str = TierVersion.Audience.EVERYBODY
    projects: Sequence[str] = ()
    classes: Sequence[str] = ()
    min_seconds: int | None = None
    max_seconds: int | None = None
    min_lead_seconds: int | None = None
    max_lead_seconds: int | None = None
    max_open: int | None = None
    max_open_gpus: int | None = None
    start_hours: str = ""
    zone: str = "UTC"


def tier_version_set(*, actor: Actor, terms: VersionTerms, now: datetime) -> TierVersion:
    """Adds a version. Bookings that were asked for before it keep theirs.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_audience`, `unknown_project`, `unknown_class`,
            `outside_bounds`, `bad_starts`, `bad_peak_hours`, `bad_zone`, `too_many_versions`,
            `version_exists`.
    """
    require_tenant_admin(actor)
    tier = Tier.objects.filter(slug=terms.tier).first()
    if tier is None:
        raise missing("tier", "tier")
    row = _row(actor, tier, terms, now)
    _bounds_check(row, tier)
    try:
        with transaction.atomic():
            _number_check(actor)
            row.save(force_insert=True)
    except IntegrityError as error:
        if "tier_version_once" not in str(error):
            raise
        raise invalid("version_exists", refusal_text("version_exists"), "starts") from error
    _audit(actor, "tier_version.set", row, now)
    return row


def tier_version_withdraw(*, actor: Actor, version_id: UUID, now: datetime) -> TierVersion:
    """Withdraws a version before it is in force. Idempotent.

    Raises:
        Refused: `not_found`, also for everybody but tenant admins, or `version_in_force`.
    """
    if not actor.is_tenant_admin:
        raise missing("version")
    with transaction.atomic():
        rows = TierVersion.objects.select_for_update(of=("self",)).order_by("id")
        row = rows.filter(tenant_id=actor.tenant_id, id=version_id).first()
        if row is None:
            raise missing("version")
        if row.withdrawn is not None:
            return row
        if row.starts <= now:
            raise Refused("version_in_force", refusal_text("version_in_force"))
        row.withdrawn = now
        row.save(update_fields=["withdrawn"])
        _audit(actor, "tier_version.withdrawn", row, now)
    return row


def start_hours_text(version: TierVersion) -> str:
    """Returns `Mon-Fri 8-18`; empty if bookings may start at any time."""
    weekly = tuple((int(day), int(first), int(ends)) for day, first, ends in version.start_hours)
    return peak_hours_text(PeakHours(version.zone, weekly))


def _row(actor: Actor, tier: Tier, terms: VersionTerms, now: datetime) -> TierVersion:
    if terms.audience not in TierVersion.Audience.values:
        known = ", ".join(TierVersion.Audience.values)
        raise invalid("bad_audience", refusal_text("bad_audience", known=known), "audience")
    starts = terms.starts or now
    if not now <= starts <= now + LATEST:
        raise invalid("bad_starts", refusal_text("version_starts"), "starts")
    projects = Project.objects.filter(tenant_id=actor.tenant_id, slug__in=terms.projects)
    classes = GpuClass.objects.filter(slug__in=terms.classes)
    found = {
        "projects": set(projects.values_list("slug", flat=True)),
        "classes": set(classes.values_list("slug", flat=True)),
    }
    for param, code in (("projects", "unknown_project"), ("classes", "unknown_class")):
        unknown = set(getattr(terms, param)) - found[param]
        if unknown:
            raise invalid(code, refusal_text("no_such_name", name=f"{min(unknown)[:40]!r}"), param)
    hours = peak_hours_read(terms.start_hours, terms.zone, "start_hours")
    return TierVersion(
        tenant_id=actor.tenant_id,
        tier=tier,
        starts=starts,
        audience=terms.audience,
        projects=sorted(found["projects"]),
        classes=sorted(found["classes"]),
        **{field: getattr(terms, field) for field in FIELDS.values()},
        start_hours=[list(each) for each in hours.weekly],
        zone=hours.zone,
        created=now,
        created_by_id=actor.user_id,
    )


def _number_check(actor: Actor) -> None:
    """Refuses more versions than a tenant may have. A lock makes those that come together wait."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"tier versions {actor.tenant_id}"],
        )
    if TierVersion.objects.filter(tenant_id=actor.tenant_id).count() >= MOST_VERSIONS:
        raise Refused("too_many_versions", refusal_text("too_many_versions", most=MOST_VERSIONS))


def _bounds_check(row: TierVersion, tier: Tier) -> None:
    for field in FIELDS.values():
        value = getattr(row, field)
        if value is not None and not 0 <= value <= 366 * 86_400:
            raise invalid("out_of_range", refusal_text("tier_number"), field)
    for field in ("max_open", "max_open_gpus"):
        value = getattr(row, field)
        if value is not None and not 1 <= value <= MOST_NUMBER:
            raise invalid("out_of_range", refusal_text("tier_number"), field)
    if row.max_seconds is not None and row.max_seconds < 60:
        raise invalid("out_of_range", refusal_text("tier_number"), "max_seconds")
    for name, bound in outside_bounds(own_bounds(row), bounds_of(tier)):
        field = FIELDS[name]
        shown = seconds_text(bound) if field.endswith("seconds") else f"{bound:,}"
        sentence = refusal_text("outside_bounds", tier=tier.name, bound=shown)
        raise invalid("outside_bounds", sentence, field)


def _audit(actor: Actor, action: str, row: TierVersion, now: datetime) -> None:
    detail = {
        "tier": row.tier_id,
        "starts": row.starts.isoformat(),
        "audience": row.audience,
        "projects": ", ".join(row.projects),
        "classes": ", ".join(row.classes),
        "start_hours": start_hours_text(row),
        "zone": row.zone,
        **{field: getattr(row, field) for field in FIELDS.values()},
    }
    actor_record(actor, action, ("tier_version", row.id), now, detail)
