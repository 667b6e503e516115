"""The operators' page of decisions: how well claims hold, and the latest cycles."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET

from allocation.models import BookingEvent, Decision, PolicyVersion
from allocation.queries.decisions.filters import DID, DecisionFilter, decisions_found, events_by_decision
from allocation.queries.decisions.samples import sample_report
from allocation.queries.fleet.claims import ClaimsReport, TenantClaims, claims_report
from allocation.services.decide.decision_log import decision_counts
from allocation.services.policy.policies import policy_of
from allocation.web.bookings.operator_words import operator_words
from allocation.web.parts.times import length_words
from tenants.access import PlatformActor
from tenants.models import Tenant, User
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page
from tenants.web.list_menu import list_menus
from tenants.web.log import midnight

SPAN = timedelta(days=7)
# A notice goes out with the next cycle, and the GPUs are cleared after it.
CYCLE = timedelta(seconds=60)
KEYS = (
    ("firm", "fixed window"),
    ("guarantee", "guarantee"),
    ("tier", "tier"),
    ("part", "part of the idle GPUs"),
    ("share", "past use"),
    ("age", "waiting time"),
)
RULES = (
    ("taken_back", "guarantee"),
    ("own_part", "own project's part"),
    ("higher_tier", "higher tier"),
    ("fairer_share", "fairer share"),
    ("one_class", "one class before several"),
    ("moved_together", "operator's move"),
)
DECISIONS_SHOWN = 25
CHANGES_SHOWN = 3
LARGEST = 2**63 - 1
# Parts of a plan, and how a decision's outcome names them.
PLAN_WORDS = (
    ("assigns", "placed"),
    ("moves", "moved"),
    ("waits", "waiting"),
    ("pauses", "asked to pause"),
    ("refusals", "refused"),
    ("extensions", "extensions answered"),
)


@dataclass(frozen=True, slots=True)
class BookingChange:
    """What became of a booking, as a sentence that names its organisation."""

    event: BookingEvent
    text: str

    @property
    def name(self) -> str:
        """Returns the booking's name, or its number."""
        return self.event.booking.name or self.event.booking.label


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision, what became of bookings by it (`more`: of how many others), and, without that, its
    outcome as text. `caveat`: what of its plan was not written."""

    decision: Decision
    changes: tuple[BookingChange, ...]
    more: int
    outcome: str
    caveat: str


@dataclass(frozen=True, slots=True)
class ClaimsRow:
    """An organisation's line. `is_bad`: a claim inside its guarantee was not met in time."""

    name: str
    claims: str
    is_bad: bool
    overtaken: str
    delayed: int
    pauses: str


@dataclass(frozen=True, slots=True)
class ClaimsBlock:
    """The block; `dropped` is empty if every pause that was planned was allowed."""

    span: str
    bound: str
    rows: tuple[ClaimsRow, ...]
    dropped: str


def claims_block(now: datetime) -> ClaimsBlock:
    """Returns the block of the last week."""
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    cool_down, margin = (timedelta(seconds=n) for n in (policy.cool_down, policy.notice_margin))
    found = claims_report(now - SPAN, now, cool_down, margin + CYCLE)
    return ClaimsBlock(
        span=length_words(SPAN.total_seconds()),
        bound=length_words(found.bound.total_seconds()),
        rows=tuple(map(_row, found.tenants)),
        dropped=_dropped(found),
    )


def _row(each: TenantClaims) -> ClaimsRow:
    claims = f"{each.had} of {each.asked}"
    if each.open:
        claims += f", {each.open} waiting"
    return ClaimsRow(
        name=each.name,
        claims=claims if each.asked else "none",
        is_bad=each.missed > 0,
        overtaken=_counts(each.overtaken, KEYS),
        delayed=each.delayed,
        pauses=_counts(each.pauses, RULES),
    )


def _counts(found: dict[str, int], words: tuple[tuple[str, str], ...]) -> str:
    """Returns `12 by tier, 3 by past use`, or `none`."""
    return ", ".join(f"{found[key]} by {word}" for key, word in words if found.get(key)) or "none"


def _dropped(found: ClaimsReport) -> str:
    if not found.dropped:
        return ""
    words = dict(RULES)
    return ", ".join(f"{words.get(rule, rule)} {count}" for rule, count in found.dropped.items())


class DecisionForm(forms.Form):
    """The filter of decisions. Days are in the reader's time zone; invalid fields are ignored."""

    did = forms.ChoiceField(required=False, choices=[("", ""), *DID.items()])
    tenant = forms.SlugField(required=False, max_length=40)
    since = forms.DateField(required=False)
    until = forms.DateField(required=False)
    before = forms.IntegerField(required=False, min_value=1, max_value=LARGEST)

    def wanted(self) -> DecisionFilter:
        """Returns the filter."""
        said = self.cleaned_data
        until: date | None = said.get("until")
        return DecisionFilter(
            did=said.get("did", ""),
            tenant=said.get("tenant", ""),
            since=midnight(said.get("since")),
            until=midnight(until + timedelta(days=1)) if until and until < date.max else None,
        )


@require_GET
@operator_page(Area.BOOKINGS)
def ops_decisions(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows how well claims hold, and the latest cycles that changed something; `did`, `tenant`, `since`,
    `until` filter, and `before` is the number of the last one of the page before."""
    form = DecisionForm(request.GET)
    form.is_valid()
    wanted = form.wanted()
    every, before = decisions_found(wanted), form.cleaned_data.get("before")
    rest = list((every.filter(id__lt=before) if before else every)[: DECISIONS_SHOWN + 1])
    found = rest[:DECISIONS_SHOWN]
    events = events_by_decision([each.id for each in found])
    rows = [_decision_row(each, events.get(each.id, [])) for each in found]
    context = {
        "decisions": rows,
        "claims": claims_block(timezone.now()),
        "sample": sample_report(),
        "asked": {name: request.GET.get(name, "") for name in form.fields},
        "errors": {name: errors[0] for name, errors in form.errors.items()},
        "is_filtered": not wanted.is_any,
        "newest": _here(request) if before else "",
        "older": _here(request, found[-1].id) if len(rest) > DECISIONS_SHOWN else "",
        "did": [("", "Anything"), *DID.items()],
        "tenants": [("", "All organisations"), *Tenant.objects.order_by("name").values_list("slug", "name")],
        "list_menus": list_menus(request, PlatformActor.of(operator), "decisions"),
    }
    return render(request, "allocation/ops_decisions.html", context)


def _here(request: HttpRequest, before: int | None = None) -> str:
    """The address of this page with its filters, from the decision before a number on."""
    query = request.GET.copy()
    query.pop("before", None)
    if before is not None:
        query["before"] = str(before)
    return f"{request.path}?{query.urlencode()}"


def _decision_row(decision: Decision, events: Sequence[BookingEvent]) -> DecisionRow:
    """The row; of several events of one booking the last says what became of it."""
    last = tuple({event.booking_id: event for event in events}.values())
    return DecisionRow(
        decision,
        changes=tuple(
            BookingChange(event, operator_words(event.text, event.booking)) for event in last[:CHANGES_SHOWN]
        ),
        more=max(0, len(last) - CHANGES_SHOWN),
        outcome="" if last else _outcome(decision),
        caveat=_caveat(decision),
    )


def _outcome(decision: Decision) -> str:
    if decision.archived_in:
        return f"archived in {decision.archived_in}"
    try:
        found = decision_counts(decision)
    except (ValueError, zlib.error):
        return "recorded by another version"
    counts = ((found.get(name, 0), word) for name, word in PLAN_WORDS)
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "nothing"


def _caveat(decision: Decision) -> str:
    """What of the plan was not written; empty if all was."""
    said, withheld = [], decision.withheld
    if decision.pieces > 1:
        pieces = list(decision.written.all())
        withheld = [part for piece in pieces for part in piece.withheld]
        said.append(f"{len(pieces)} of {decision.pieces} transactions written")
    if withheld:
        said.append(f"{len(withheld)} withheld")
    return "; ".join(said)


urlpatterns = [path("ops/decisions", ops_decisions, name="ops-decisions")]
