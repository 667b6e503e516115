"""The page of a tenant's limits of tiers: members read them, admins set them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import TierVersion
from allocation.queries.decisions.horizon import horizon_hint
from allocation.rules.tier_limits import TierLimits
from allocation.services.tiers.limits import bounds_of, tier_limits, version_in_force, versions_read
from allocation.services.tiers.versions import (
    VersionTerms,
    start_hours_text,
    tier_version_set,
    tier_version_withdraw,
)
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.models import GpuClass, Project, Tier
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.services import seconds_read, seconds_words, whole_sent
from tenants.web.frame import tenant_page, zone_of
from tenants.web.parts import Field, counted

SECONDS = {
    "min_seconds": "Shortest booking",
    "max_seconds": "Longest booking",
    "min_lead_seconds": "Shortest notice before the start",
    "max_lead_seconds": "Longest notice before the start",
}
NUMBERS = {
    "max_open": "Open bookings of a person",
    "max_open_gpus": "GPUs of these bookings",
}


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier with the limits in force, and its versions to come."""

    slug: str
    name: str
    limits: tuple[str, ...]
    since: str
    coming: tuple["ComingRow", ...]


@dataclass(frozen=True, slots=True)
class ComingRow:
    """A version that is not in force yet."""

    id: UUID
    starts: str
    limits: tuple[str, ...]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def tier_versions_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the limits by tier, and to admins the form of a new version."""
    refusal = None
    now = timezone.now()
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "set": lambda form: _set(actor, form, now),
            "withdraw": lambda form: _withdraw(actor, form, now),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("tier-versions", tenant=actor.tenant_slug)
    tiers = list(Tier.objects.all())
    context = {
        "rows": [_row(actor, tier, now) for tier in tiers],
        "form": _form(actor, tiers, request, refusal) if actor.is_tenant_admin else None,
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/tiers/versions.html", context, status=status)


def _set(actor: Actor, form: QueryDict, now: datetime) -> str:
    limits: dict[str, int | None] = {
        name: seconds_read(form.get(name, ""), param=name) if form.get(name, "").strip() else None
        for name in SECONDS
    }
    limits |= {name: whole_sent(form, name) for name in NUMBERS}
    row = tier_version_set(
        actor=actor,
        terms=VersionTerms(
            tier=form.get("tier", ""),
            starts=_starts(actor, form),
            audience=form.get("audience", ""),
            projects=form.getlist("projects"),
            classes=form.getlist("classes"),
            start_hours=form.get("start_hours", ""),
            zone=actor.time_zone,
            **limits,
        ),
        now=now,
    )
    begins = "at once" if row.starts <= now else f"from {actor.clock(row.starts, now)}"
    saved = f"Limits of {row.tier.name} saved. They apply {begins} to new bookings."
    return f"{saved} {horizon_hint(row.max_lead_seconds)}".strip()


def _withdraw(actor: Actor, form: QueryDict, now: datetime) -> str:
    key = id_read(form, "version", "version")
    row = tier_version_withdraw(actor=actor, version_id=key, now=now)
    return f"Withdrawn: the limits of {row.tier.name} stay as they are."


def _starts(actor: Actor, form: QueryDict) -> datetime | None:
    text = form.get("starts", "").strip()
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise invalid("bad_starts", refusal_text("day_example"), "starts") from None
    return datetime.combine(day, time(), zone_of(actor.time_zone))


def _row(actor: Actor, tier: Tier, now: datetime) -> TierRow:
    zone = zone_of(actor.time_zone)
    version = version_in_force(actor.tenant_id, tier.slug, now)
    coming = [
        each for each in versions_read(actor.tenant_id) if each.tier_id == tier.slug and each.starts > now
    ]
    return TierRow(
        slug=tier.slug,
        name=tier.name,
        limits=tuple(_words(tier_limits(actor.tenant_id, tier, now), version)),
        since="" if version is None else f"since {moment_words(version.starts, zone, now)}",
        coming=tuple(
            ComingRow(
                each.id,
                moment_words(each.starts, zone, now),
                tuple(_words(tier_limits(actor.tenant_id, tier, each.starts), each)),
            )
            for each in coming
        ),
    )


def _words(limits: TierLimits, version: TierVersion | None) -> list[str]:
    """The limits in words, such as `1 h to 7 d long`."""
    found = [
        _span(limits.shortest.value, limits.longest.value, "long"),
        _span(limits.least_lead.value, limits.most_lead.value, "ahead"),
    ]
    if limits.most_open.value is not None:
        found.append(f"{counted(limits.most_open.value, 'open booking')} a person")
    if limits.most_gpus.value is not None:
        found.append(f"{counted(limits.most_gpus.value, 'GPU')} a person")
    return found if version is None else [*_who(version), *found, *_what(version)]


def _span(least: int | None, most: int | None, word: str) -> str:
    longest = seconds_words(most or 0)
    return f"{seconds_words(least)} to {longest} {word}" if least else f"up to {longest} {word}"


def _who(version: TierVersion) -> Iterator[str]:
    if version.projects:
        yield f"in {', '.join(version.projects)}"
    if version.audience != TierVersion.Audience.EVERYBODY:
        yield f"for {version.get_audience_display().lower()}"


def _what(version: TierVersion) -> Iterator[str]:
    if version.classes:
        yield f"on {', '.join(version.classes)}"
    if version.start_hours:
        yield f"starts {start_hours_text(version)} ({version.zone})"


def _form(
    actor: Actor, tiers: Sequence[Tier], request: HttpRequest, refusal: Refused | None
) -> dict[str, object]:
    typed = request.POST if refusal is not None else QueryDict()
    slug = typed.get("tier") or request.GET.get("tier") or (tiers[0].slug if tiers else "")
    tier = next((each for each in tiers if each.slug == slug), None)

    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
        error = refusal.sentence if refusal is not None and refusal.param == name else ""
        value = more.pop("value", typed.get(name, ""))
        return Field(name, label, value, hint=hint, error=error, required=False, id=f"tier-{name}", **more)

    projects = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    classes = GpuClass.objects.values_list("slug", "label")
    return {
        "tier": field("tier", "Tier", value=slug, choices=[(t.slug, t.name) for t in tiers]),
        "audience": field("audience", "Who may use it", choices=TierVersion.Audience.choices),
        "bounds": "" if tier is None else "; ".join(_words(TierLimits(bounds_of(tier)), None)),
        "limits": [
            *(field(name, label, placeholder="2h or 7d") for name, label in SECONDS.items()),
            *(
                field(name, label, placeholder="no limit", inputmode="numeric")
                for name, label in NUMBERS.items()
            ),
        ],
        "hours": field(
            "start_hours", "Hours of starts", f"In {actor.time_zone}.", placeholder="Mon-Fri 8-18"
        ),
        "starts": field("starts", "In force from", "Empty: today.", type="date"),
        "checks": [
            ("classes", "GPU classes (none ticked: all)", _checks(classes, typed.getlist("classes"))),
            (
                "projects",
                "Projects (none ticked: all)",
                _checks(projects.values_list("slug", "name"), typed.getlist("projects")),
            ),
        ],
    }


def _checks(rows: Any, chosen: Sequence[str]) -> list[tuple[str, str, bool]]:  # noqa: ANN401 (a query of pairs)
    return [(slug, label, slug in chosen) for slug, label in rows]


urlpatterns = [path("t/<slug:tenant>/tiers/limits", tier_versions_page, name="tier-versions")]
