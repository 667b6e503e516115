"""The booking panel: takes a text request, shows options with prices and books one.

The same view serves a page (`/book?q=`), a fragment next to the timeline, and a plain form without
JavaScript.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.access import LABEL
from allocation.errors import AskError
from allocation.models import Booking
from allocation.points import WORKLOADS_KNOWN
from allocation.queries.fleet.catalogue import ask_catalogue, pin_choices
from allocation.rules.ask import MAX_TEXT_LENGTH, AskDocument, Catalogue, Parsed, parse_ask
from allocation.rules.ask.line.text import document_text
from allocation.rules.recurrence import Recurrence
from allocation.rules.workload_names import LABEL as WORKLOAD_LABEL
from allocation.services.bookings.corrected_lines import LineRules
from allocation.services.bookings.remedy_lines import with_lines
from allocation.services.bookings.request_text import kinds_said
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, dates_refused, of_all_dates
from allocation.services.quotes.quotes import cheapest_class, cheapest_first, quote_make
from allocation.web.bookings.request_panel.array_form import (
    ArraySaid,
    array_of_fields,
    array_options,
    array_said,
    array_shown,
    array_typed,
)
from allocation.web.bookings.request_panel.options import (
    Repeats,
    made_words,
    option_book,
    options_context,
)
from allocation.web.bookings.request_panel.request_form import (
    SHARE,
    SHARES,
    ProblemShown,
    RequestFields,
    ask_of_fields,
    fields_of,
    groups_line,
    groups_text,
    highlights_of,
    host_fields,
    problem_shown,
    text_as_chosen,
    understood_words,
    where_line,
    where_shown,
)
from allocation.web.bookings.request_panel.series_form import (
    dates_context,
    repeat_of_fields,
    repeat_shown,
    repeat_typed,
    series_preview,
    series_text,
)
from allocation.web.parts.times import date_words, length_words
from allocation.words.refusals import coded_text, refusal_text
from billing.models import Campaign
from tenants.access import Actor, access_project
from tenants.models import Project, Tier
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, invalid
from tenants.services.sign_in.rate_limits import call_limit_check
from tenants.web.frame import STATUS, tenant_page, zone_of
from tenants.web.parts import counted

EXAMPLES = ("2 h100 6h", "1g.10gb 2h now", "1 h100 tomorrow 9:00 for 8h")
Named = TypeVar("Named", Project, Tier, Campaign)


@costly("quote", needs_query=True)
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def book_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """GET `?q=&project=&tier=` shows options with prices; POST books the chosen one."""
    if request.method == "POST":
        return _confirm(request, actor)
    if LABEL.fullmatch(request.GET.get("q", "").strip()):
        label = request.GET["q"].strip().upper()
        return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{label}")
    context = panel_context(request, actor, timezone.now())
    wait = context.get("wait_seconds")
    if wait is None:
        return _answer(request, context)
    response = _answer(request, context, status=HTTPStatus.TOO_MANY_REQUESTS)
    response["Retry-After"] = str(wait)
    return response


def panel_context(request: HttpRequest, actor: Actor, now: datetime) -> dict[str, Any]:
    """Returns the template context of the panel for the text and fields of a GET."""
    fields = fields_of(request.GET, MAX_TEXT_LENGTH)
    projects, tiers = _choices(actor)
    project, tier = _defaults(actor, fields, projects, tiers)
    context: dict[str, Any] = {
        "text": fields.text,
        "panel_projects": projects,
        "panel_tiers": tiers,
        "examples": EXAMPLES,
        "key": uuid4().hex,
        "name": fields.name,
        "labels": fields.labels,
        "external_ref": fields.external_ref,
        **_chosen(project, tier),
        **_campaigns(project, fields),
        **_workloads(project, fields),
    }
    if project is None or tier is None or not (fields.text or fields.is_edited):
        return context
    try:
        context |= _understood(actor, fields, projects, now)
        project = _by_slug(projects, context["said"].project) or project
        context |= _campaigns(project, fields) | _workloads(project, fields)
        tier = _by_slug(tiers, context["said"].tier) or tier
        context |= _corrected(actor, project, tier, context, now)
        context |= _chosen(project, tier)
        # The tier that was selected before is no demand.
        is_asked = fields.is_chosen or context["said"].tier
        context["tier_asked"] = tier.slug if is_asked else None
        if "ask" in context:
            context |= _priced(actor, (project, tier, tiers), context, now)
    except AskError as error:
        context["trouble"] = coded_text(error.text)
        context["trouble_param"] = error.param
    except Refused as refusal:
        is_limit = refusal.code == "too_many_requests"
        shown = _with_requests(refusal, context, zone_of(actor.time_zone))
        context |= _too_often(refusal) if is_limit else {"refusal": shown}
    return context


def _corrected(
    actor: Actor, project: Project, tier: Tier, context: dict[str, Any], now: datetime
) -> dict[str, Any]:
    """Returns the problems of the line with the corrected lines that the rules would admit."""
    problems: list[ProblemShown] = context["problems"]
    missing: ProblemShown | None = context["missing"]
    if not problems and missing is None:
        return {}
    zone = zone_of(actor.time_zone)
    rules = LineRules(actor, project, tier.slug, now, zone)

    def tried(shown: ProblemShown) -> ProblemShown:
        return replace(shown, repairs=rules.admitted(shown.repairs, context["read"]))

    return {"problems": [tried(each) for each in problems], "missing": missing and tried(missing)}


def _with_requests(refusal: Refused, context: dict[str, Any], zone: ZoneInfo) -> Refused:
    """Returns the refusal, with the text of each request that would work."""
    ask: AskDocument | None = context.get("ask")
    if ask is None:
        return refusal
    rule: Recurrence | None = context["rule"]
    shown = with_lines(refusal, ask, zone, rule)
    if not shown.alternatives and "latest" in shown.numbers:
        return replace(
            shown, alternatives=[_latest(ask, datetime.fromisoformat(shown.numbers["latest"]), zone)]
        )
    texts = [
        each
        if "tier" in each or "request" not in each
        else {"request": each["request"], "words": _change_words(each, zone)}
        for each in shown.alternatives
    ]
    return replace(refusal, alternatives=texts)


def _change_words(change: Mapping[str, Any], zone: ZoneInfo) -> str:
    """`See prices for Mon 28 Dec 09:00`, `See prices of 2 dates from Mon 28 Dec 09:00`; empty for a
    change of something else, which is shown as its line."""
    if set(change) - {"request", "starts", "times", "rrule"} or "starts" not in change:
        return ""
    starts = date_words(datetime.fromisoformat(change["starts"]), zone)
    if "times" not in change:
        return f"See prices for {starts}"
    return f"See prices of {counted(change['times'], 'date')} from {starts}"


def _latest(ask: AskDocument, latest: datetime, zone: ZoneInfo) -> dict[str, str]:
    """Returns the line of one booking at the latest start that its tier allows."""
    text = document_text(replace(ask, starts=latest, not_before=None, deadline=None), zone)
    return {"request": text, "words": f"See prices for {date_words(latest, zone)}"}


def _too_often(refusal: Refused) -> dict[str, Any]:
    """Returns the message for a person who has exceeded the quote limit."""
    numbers = refusal.numbers
    wait = numbers["retry_after_seconds"]
    sentence = refusal_text(
        "too_many_quotes_page",
        most=f"{numbers['most']:,}",
        in_seconds=numbers["in_seconds"],
        wait=wait,
    )
    return {"trouble": sentence, "trouble_param": "q", "wait_seconds": wait}


def _chosen(project: Project | None, tier: Tier | None) -> dict[str, str]:
    """Returns the selected values of the project and tier fields."""
    return {
        "project_slug": project.slug if project else "",
        "tier_slug": tier.slug if tier else "",
    }


def _campaigns(project: Project | None, fields: RequestFields) -> dict[str, Any]:
    """Returns the open campaigns of the project, and the chosen one."""
    campaigns = list(Campaign.objects.filter(project=project, is_open=True)) if project else []
    chosen = _by_slug(campaigns, fields.campaign)
    return {"panel_campaigns": campaigns, "campaign_slug": chosen.slug if chosen else ""}


def _workloads(project: Project | None, fields: RequestFields) -> dict[str, Any]:
    """Returns the workloads of the project, and the chosen one."""
    known = [name for read in WORKLOADS_KNOWN for name in read(project.id)] if project else []
    chosen = [fields.work] if fields.work and fields.work not in known else []
    return {"panel_workloads": [*chosen, *known], "work": fields.work}


def _priced(
    actor: Actor,
    chosen: tuple[Project, Tier, list[Tier]],
    context: dict[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """Returns the options for the context's request and the effect of the best one."""
    project, tier, tiers = chosen
    ask, rule = context["ask"], context["rule"]
    if context["said"].cheapest:
        ask = cheapest_class(ask, context["tier_asked"], now)
    terms = BookingRequest(
        project.slug,
        tier.slug,
        ask,
        name=context["name"],
        zone=actor.time_zone,
        campaign=context["campaign_slug"],
        labels={WORKLOAD_LABEL: context["work"]} if context["work"] else {},
    )
    array: ArraySaid | None = context["array"]
    line = document_text(ask, zone_of(actor.time_zone))
    found: dict[str, Any] = {"wait_text": array.text(line) if array else line}
    repeats = Repeats(array.count) if array else Repeats()
    repeat = Repeat(rule, keeps_end=context["said"].ends is not None) if rule else None
    if repeat is not None:
        terms, found["series"] = series_preview(terms, repeat)
        repeats = Repeats(windows=found["series"].windows)
    # One limit covers the quotes of pages and REST.
    call_limit_check("quotes", str(actor.user_id), now)
    runs = array.runs if array else None
    try:
        quote = quote_make(actor=actor, request=terms, now=now, runs=runs)
    except Refused as refusal:
        if repeat is None:
            raise
        raise of_all_dates(refusal, actor, terms, repeat, now) from refusal
    if context["said"].cheapest:
        quote = cheapest_first(quote, context["ask"], context["tier_asked"])
    found |= options_context(actor, project, tiers, quote, now, repeats)
    # A full window can be waited for, but not one that money refuses.
    found["window_full"] = quote.is_full and ask.starts is not None and rule is None
    if array is not None:
        found["options"] = array_options(found["options"], array, terms.zone, now)
    if repeat is not None:
        found |= dates_context(
            terms, repeat, dates_refused(actor, project, terms, repeat, now), context | found, repeats
        )
    return found


def _by_slug(rows: Sequence[Named], slug: str | None) -> Named | None:
    return next((row for row in rows if row.slug == slug), None)


def _understood(
    actor: Actor, fields: RequestFields, projects: list[Project], now: datetime
) -> dict[str, Any]:
    """Returns the parsed text, or the request from the fields and its equivalent text."""
    zone = zone_of(actor.time_zone)
    names = [(each.slug, each.name) for each in projects]
    catalogue = ask_catalogue(names, kinds_said(fields.project, fields.text))
    read = partial(parse_ask, catalogue=catalogue, now=now, zone=zone)
    parsed = read(fields.text)
    if fields.is_chosen:
        fields = replace(fields, text=text_as_chosen(fields, parsed))
        parsed = read(fields.text)
    ask: AskDocument | None = None
    wrong: dict[str, str] = {}
    if fields.is_edited:
        hosts = [entry.slug for entry in catalogue.hosts]
        ask = _asked(fields, parsed, read, hosts)
        today = now.astimezone(zone).date()
        says_end = bool(fields.often) and _keeps_window(ask, parsed)
        line = document_text(ask, zone, says_end=says_end)
        text, wrong = _text_of_fields(fields, line, parsed, today)
        parsed = read(text)
    else:
        text = fields.text
        ask = _ask_or_none(parsed)
    found: dict[str, Any] = {
        "text": text,
        "echo": highlights_of(text, parsed),
        "said": parsed,
        "read": read,
        "problems": [] if parsed.is_for_rules else [problem_shown(each) for each in parsed.problems],
        "missing": problem_shown(parsed.missing) if parsed.missing else None,
        "catalogue": catalogue.every_class,
        "workloads": catalogue.workloads,
        "zones": catalogue.zones,
        "pins": pin_choices(ask.classes if ask else parsed.classes),
        "data_sets": catalogue.data,
        "shape": _shape(parsed, ask),
        "profiles": _profiles(catalogue, ask.classes if ask else parsed.classes),
        "shares": SHARES,
        **_many(fields, parsed, is_wrong=bool(wrong)),
    }
    if wrong:
        return found | wrong
    if ask is not None:
        found["ask"] = _soon(ask, now)
        labels = {entry.slug: entry.label for entry in catalogue.every_class}
        found["understood"] = understood_words(ask, parsed, labels, zone)
    return found


def _many(fields: RequestFields, parsed: Parsed, *, is_wrong: bool) -> dict[str, Any]:
    """Returns the dates of a series and the runs of an array; wrong fields are shown as they were typed."""
    array = array_said(parsed)
    return {
        "repeat": repeat_typed(fields) if is_wrong else repeat_shown(parsed.repeat),
        "rule": parsed.repeat,
        "array": array,
        "runs": array_typed(fields) if is_wrong else array_shown(array),
    }


def _asked(
    fields: RequestFields, parsed: Parsed, read: Callable[[str], Parsed], hosts: Sequence[str]
) -> AskDocument:
    """Returns the request of the fields, with the groups and places that they have as words."""
    more = read(groups_line(fields)) if fields.groups else None
    there = read(where_line(fields)) if fields.where else None
    return host_fields(ask_of_fields(fields, parsed, more, there), parsed, hosts)


def _text_of_fields(
    fields: RequestFields, text: str, parsed: Parsed, today: date
) -> tuple[str, dict[str, str]]:
    """Returns the text with the series and the array of the fields, and what is wrong with them."""
    try:
        text = series_text(text, repeat_of_fields(fields, parsed.repeat, today))
        array = array_of_fields(fields)
    except AskError as error:
        return text, {"trouble": coded_text(error.text), "trouble_param": error.param}
    return (array.text(text) if array else text), {}


def _keeps_window(ask: AskDocument, parsed: Parsed) -> bool:
    """Returns whether the text names the end of the window, and the fields did not change it."""
    window = (parsed.starts, parsed.duration)
    return parsed.ends is not None and (ask.starts, ask.duration) == window


def _ask_or_none(parsed: Parsed) -> AskDocument | None:
    """Returns the request; None if a part is unknown, wrong or missing."""
    if parsed.is_for_rules:
        return parsed.refused_document(first=True, many=True)
    return None if parsed.problems or parsed.missing else parsed.document(first=True, many=True)


def _profiles(catalogue: Catalogue, classes: tuple[str, ...]) -> list[str]:
    """Returns the distinct MIG profiles of these classes."""
    entries = [entry for entry in catalogue.classes if entry.slug in classes]
    return list(dict.fromkeys(profile for entry in entries for profile in entry.profiles))


def _soon(ask: AskDocument, now: datetime) -> AskDocument:
    """Drops a "not before" that has passed: a minute later it would be a start in the past."""
    is_now = ask.not_before is not None and ask.not_before <= now
    return replace(ask, not_before=None) if is_now else ask


def _shape(parsed: Parsed, ask: AskDocument | None) -> dict[str, Any]:
    """Returns the values of the editable fields."""
    classes = ask.classes if ask else parsed.classes
    duration = ask.duration if ask else parsed.duration
    return {
        "count": ask.count if ask else parsed.count or 1,
        "classes": " ".join(classes),
        "profile": _size(ask or parsed),
        "cores": (ask or parsed).cores or "",
        "memory": (ask or parsed).memory or "",
        "length": length_words(duration).replace(" ", "") if duration else "",
        "workload": parsed.workload or "",
        "pin": " ".join((ask or parsed).pin),
        "where": where_shown(ask or parsed),
        "data": " ".join((ask or parsed).data),
        "groups": groups_text((ask or parsed).groups),
        "host": (ask or parsed).host,
    }


def _size(said: AskDocument | Parsed) -> str:
    return said.profile or "" if said.share is None else f"{SHARE}{said.share}"


def _confirm(request: HttpRequest, actor: Actor) -> HttpResponse:
    now = timezone.now()
    try:
        booking = option_book(request, actor, now)
    except (Refused, AskError) as error:
        refusal = error if isinstance(error, Refused) else invalid(error.code, coded_text(error.text), "q")
        return _refused(request, actor, refusal, now)
    made = made_words(actor, booking)
    if _is_fragment(request):
        return render(request, "allocation/panel_made.html", {"made": made})
    messages.success(request, made["message"])
    return HttpResponseRedirect(made["href"])


def _refused(request: HttpRequest, actor: Actor, refusal: Refused, now: datetime) -> HttpResponse:
    """Renders the panel again with the refusal and the current options."""
    context = panel_context(_as_get(request), actor, now)
    context["refusal"] = refusal
    return _answer(request, context, status=int(STATUS.get(refusal.kind, 409)))


def _as_get(request: HttpRequest) -> HttpRequest:
    shown = HttpRequest()
    shown.GET = request.POST
    return shown


def _answer(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    is_page = not _is_fragment(request)
    name = "book" if is_page else "panel_part"
    context["is_page"] = is_page
    return render(request, f"allocation/{name}.html", context, status=status)


def _is_fragment(request: HttpRequest) -> bool:
    return request.headers.get("X-Fragment") == "1"


def _choices(actor: Actor) -> tuple[list[Project], list[Tier]]:
    projects = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    return [each for each in projects if actor.may_book(each.id)], list(Tier.objects.all())


def _defaults(
    actor: Actor, fields: RequestFields, projects: list[Project], tiers: list[Tier]
) -> tuple[Project | None, Tier | None]:
    """Returns the selected project and tier, else those of the last booking, else the first project
    and Standard."""
    last = (
        Booking.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id)
        .order_by("-submitted")
        .values_list("project__slug", "tier_id")
        .first()
    )
    last_project, last_tier = last or ("", "")
    if fields.project:
        access_project(actor, fields.project, "project")
    by_slug = {project.slug: project for project in projects}
    tier_by_slug = {tier.slug: tier for tier in tiers}
    project = by_slug.get(fields.project) or by_slug.get(last_project)
    tier = tier_by_slug.get(fields.tier) or tier_by_slug.get(last_tier)
    return (
        project or next(iter(projects), None),
        tier or tier_by_slug.get("standard") or next(iter(tiers), None),
    )


urlpatterns = [path("t/<slug:tenant>/book", book_page, name="book")]
