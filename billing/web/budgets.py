"""The tenant's budgets as a tree, edited in place by its admins and the leads of projects."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from billing.access import access_owner, budgets_visible, require_budget_right
from billing.models import Budget, Campaign
from billing.price_books import currency_latest
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import (
    BudgetOwner,
    BudgetTerms,
    Period,
    amount_parse,
    money_text,
    month_of,
    period_text,
)
from billing.services import CampaignMatch, alerts_set, budget_put, campaign_create, campaign_open_set
from billing.web.alerts import alerts_read, budgets_with_main_alert, form_of_new
from billing.web.budget_rows import BUDGET_KINDS, RefusedBudget, Row, Tree, row_key, without_budget
from billing.words import refusal_text
from tenants.access import Actor, access_project
from tenants.models import Lab, Membership, Project, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.labels import labels_read
from tenants.platform.text import whole_number
from tenants.web.frame import tenant_page

YEARS = range(2000, 2200)


@dataclass(frozen=True, slots=True)
class Totals:
    """The tenant's figures: of its own budget, else sums over its projects."""

    amount: str
    spent: str
    held: str
    left: str
    warning: int
    budgets: int
    without: int
    """Open projects that can't book in the month, of so many."""
    open_projects: int


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def budgets(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows a month (`?month=2026-11`); POST sets one budget."""
    now = timezone.now()
    form = request.POST if request.method == "POST" else request.GET
    month = _month(form.get("month", ""), now.astimezone(UTC).date())
    if request.method != "POST":
        return _page(request, actor, month, None)
    try:
        owner = _owner(actor, form)
        require_budget_right(actor, owner)
        terms = _terms(form)
        before = _stored(owner, terms.period)
        with transaction.atomic():
            budget = budget_put(actor_id=actor.user_id, owner=owner, terms=terms, now=now)
            if "owner" in form:
                alerts = alerts_read(form, budget)
                alerts_set(actor_id=actor.user_id, budget=budget, alerts=alerts, now=now)
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            raise
        if "owner" in form:
            return _page(request, actor, month, None, refusal)
        return _page(request, actor, month, _typed(form, refusal))
    figures = budget_figures_of([budget.id])[budget.id]
    messages.success(request, _saved_words(before, figures))
    return redirect(f"{reverse('budgets', args=[actor.tenant_slug])}?month={month.starts:%Y-%m}")


def _stored(owner: BudgetOwner, period: Period) -> BudgetFigures | None:
    """The budget of exactly these days as it is; None if there is none yet."""
    rows = Budget.objects.filter(**asdict(owner), starts=period.starts, ends=period.ends)
    return next(iter(budget_figures_of(rows.values_list("id", flat=True)).values()), None)


def _saved_words(before: BudgetFigures | None, now: BudgetFigures) -> str:
    """What changed of a budget: its amount, its alert, or both."""
    changed = []
    if before is None or before.amount != now.amount:
        changed.append(f"{money_text(now.amount, now.currency)}")
    if before is not None and before.warn_percent != now.warn_percent:
        changed.append(f"alert at {now.warn_percent} %")
    said = ", ".join(changed) or "saved, amount and alert as before"
    return f"Budget of {now.name}, {period_text(now.period)}: {said}."


@require_POST
@tenant_page
def campaign_new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Creates a campaign, or opens or closes one."""
    now = timezone.now()
    try:
        project = access_project(actor, request.POST.get("project", ""), "project")
        slug = request.POST.get("campaign", "")
        if slug:
            _campaign_toggle(request, actor, project, slug)
        else:
            name = request.POST.get("name", "").strip()
            match = CampaignMatch(
                labels_read(request.POST.get("match_labels", ""), "match_labels"),
                request.POST.get("match_ref", "").strip(),
            )
            campaign = campaign_create(actor=actor, project=project, name=name, match=match, now=now)
            messages.success(request, f"Created the campaign {campaign.name}.")
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            raise
        if "campaign" not in request.POST:
            month = month_of(now.astimezone(UTC).date())
            return _page(request, actor, month, None, campaign_refusal=refusal)
        # A button has no field.
        messages.error(request, refusal.sentence)
    return redirect(reverse("budgets", args=[actor.tenant_slug]) + "#campaigns")


def _campaign_toggle(request: HttpRequest, actor: Actor, project: Project, slug: str) -> None:
    campaign = Campaign.objects.filter(project=project, slug=slug).first()
    if campaign is None:
        raise invalid("not_found", refusal_text("no_such_campaign"), "campaign")
    is_open = not campaign.is_open
    campaign_open_set(actor=actor, campaign=campaign, is_open=is_open, now=timezone.now())
    word = "open for new bookings" if is_open else "closed for new bookings"
    messages.success(request, f"The campaign {campaign.name} is {word}.")


def _page(
    request: HttpRequest,
    actor: Actor,
    month: Period,
    typed: RefusedBudget | None,
    new_refusal: Refused | None = None,
    campaign_refusal: Refused | None = None,
) -> HttpResponse:
    """`typed` is a refused row of the tree, `new_refusal` that of the form for a new budget, and
    `campaign_refusal` that of the form for a new campaign."""
    form = request.POST if new_refusal else None
    members = User.objects.filter(
        is_active=True, id__in=Membership.objects.filter(tenant_id=actor.tenant_id).values("user")
    )
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    shown = list(projects)
    visible = list(
        budgets_visible(actor)
        .filter(starts__lt=month.ends, ends__gt=month.starts)
        .select_related("campaign", "person", "lab")
    )
    figures = list(budget_figures_of(budget.id for budget in visible).values())
    alerted = budgets_with_main_alert(budget.id for budget in visible)
    tree = Tree(actor, month, shown, figures, _owners(visible), typed, alerted)
    rows = tree.rows()
    return render(
        request,
        "billing/budgets.html",
        {
            **_months(month),
            "rows": rows,
            "projects": shown,
            "totals": totals_of(figures, rows, sum(each.is_open for each in shown)),
            # A refusal of a row that is not shown appears above the table.
            "stray": None if typed is None or any(row.error for row in rows) else typed,
            "is_admin": actor.is_tenant_admin,
            "new_budget": form or _new_budget(month),
            "new_refusal": new_refusal,
            "alert_form": form_of_new(form, members),
            "budget_kinds": BUDGET_KINDS,
            "may_edit": any(row.may_edit for row in rows),
            "people_url": f"/t/{actor.tenant_slug}/people",
            "campaign_refusal": campaign_refusal,
            "typed_campaign": request.POST if campaign_refusal else {},
            **_choices(actor, shown),
        },
        status=422 if typed or new_refusal or campaign_refusal else 200,
    )


def _months(month: Period) -> dict[str, Any]:
    """The month that is shown and its neighbours."""
    before, after = month_of(month.starts - timedelta(days=1)), month_of(month.ends)
    return {
        "month": month,
        "month_text": period_text(month),
        "before": before,
        "before_text": period_text(before),
        "after": after,
        "after_text": period_text(after),
    }


def _new_budget(month: Period) -> dict[str, str]:
    """What the form for a new budget begins with."""
    return {"starts": f"{month.starts}", "last": f"{month.ends - timedelta(days=1)}", "kind": "hard"}


def _choices(actor: Actor, projects: Sequence[Project]) -> dict[str, Any]:
    """The possible owners of a new budget, and the campaigns of projects that the reader leads."""
    led = [project for project in projects if actor.may_lead(project.id)]
    campaigns = list(Campaign.objects.filter(project__in=led).select_related("project"))
    members = Membership.objects.filter(project__in=led).select_related("user", "project")
    groups = [
        (
            project.name,
            [
                (f"{project.slug}/campaign/{each.slug}", f"{each.name} (campaign)")
                for each in campaigns
                if each.project_id == project.id
            ]
            + sorted(
                (f"{project.slug}/person/{each.user.username}", each.user.display_name)
                for each in members
                if each.project_id == project.id
            ),
        )
        for project in led
    ]
    return {"led": led, "campaigns": campaigns, "owner_groups": groups, "owner_tops": _tops(actor, projects)}


def _tops(actor: Actor, projects: Sequence[Project]) -> list[tuple[str, str]]:
    """The owners of new budgets that only admins set."""
    if not actor.is_tenant_admin:
        return []
    labs = Lab.objects.filter(tenant=actor.tenant_id, is_open=True)
    return [
        ("tenant", "The whole organisation"),
        *((f"lab/{each.slug}", f"{each.name} (lab)") for each in labs),
        *((each.slug, f"{each.name} (project)") for each in projects),
    ]


def _owners(budgets: Sequence[Budget]) -> dict[str, str]:
    found = {}
    for budget in budgets:
        if budget.campaign is not None:
            found[str(budget.campaign.id)] = budget.campaign.slug
        if budget.person is not None:
            found[str(budget.person.pk)] = budget.person.username
        if budget.lab is not None:
            found[str(budget.lab.id)] = budget.lab.slug
    return found


def totals_of(figures: Sequence[BudgetFigures], rows: Sequence[Row], open_projects: int) -> Totals | None:
    """The figures above the tree; None without any budget."""
    if not figures:
        return None
    top = [each for each in figures if each.level == "tenant"]
    counted = [each.in_cents for each in top or [each for each in figures if each.level == "project"]]

    def text(name: str) -> str:
        total = sum((getattr(each, name) for each in counted), Decimal(0))
        return money_text(total, figures[0].currency)

    return Totals(
        amount=text("amount"),
        spent=text("spent"),
        held=text("held"),
        left=text("left"),
        warning=sum(each.is_warning for each in figures),
        budgets=len(figures),
        without=len(list(without_budget(rows))),
        open_projects=open_projects,
    )


def _owner(actor: Actor, form: QueryDict) -> BudgetOwner:
    """The owner from the fields of a row, or from `owner` of the form for a new budget."""
    named = form.get("owner", "")
    if named == "tenant":
        return access_owner(actor, "", "", "")
    if named.startswith("lab/"):
        return access_owner(actor, "", "", "", named.removeprefix("lab/"))
    if named:
        project, _, rest = named.partition("/")
        kind, _, name = rest.partition("/")
        fields = {"campaign": "", "person": "", kind: name}
        return access_owner(actor, project, fields["campaign"], fields["person"])
    if form.get("level") == "tenant":
        return access_owner(actor, "", "", "")
    if form.get("level") == "lab":
        return access_owner(actor, "", "", "", form.get("lab", ""))
    access_project(actor, form.get("project", ""), "project")
    return access_owner(actor, form.get("project", ""), form.get("campaign", ""), form.get("person", ""))


def _terms(form: QueryDict) -> BudgetTerms:
    """The terms from a row, which has an amount and an alert, or from the full form."""
    is_full = "owner" in form
    return BudgetTerms(
        period=_period(form),
        amount=amount_parse(form.get("amount", ""), param="amount", currency=currency_latest()),
        warn_percent=None if is_full else _warn_percent(form.get("warn_percent", "")),
        is_hard=form.get("kind") != "soft" if is_full else None,
        is_repeated="is_repeated" in form if is_full else None,
        rolls_over="rolls_over" in form if is_full else None,
    )


def _typed(form: QueryDict, refusal: Refused) -> RefusedBudget:
    level = form.get("level", "project")
    owner = form.get("campaign", "") or form.get("person", "") or form.get("lab", "")
    try:
        key = row_key(form.get("project", ""), level, owner, _period(form))
    except Refused:
        key = ""
    return RefusedBudget(
        key=key,
        amount=form.get("amount", ""),
        warn_percent=form.get("warn_percent", ""),
        param=refusal.param or "amount",
        sentence=refusal.sentence,
    )


def _month(text: str, today: date) -> Period:
    """Returns the month of `2026-11`; this month for any other text."""
    try:
        return month_of(_day(f"{text}-01"))
    except ValueError:
        return month_of(today)


def _period(form: QueryDict) -> Period:
    """The period of a row; the full form names its last day."""
    try:
        if "last" in form:
            last = _day(form.get("last", ""))
            return Period(_day(form.get("starts", "")), last + timedelta(days=1))
        return Period(_day(form.get("starts", "")), _day(form.get("ends", "")))
    except ValueError:
        raise invalid("bad_period", refusal_text("month_or_days"), "starts") from None


def _day(text: str) -> date:
    """Returns a day of the supported years. Raises ValueError."""
    day = date.fromisoformat(text)
    if day.year not in YEARS:
        raise ValueError("a year that no calendar here goes to")
    return day


def _warn_percent(text: str) -> int | None:
    """The share of the alert; None for an empty field, which keeps what is there."""
    if not (text := text.strip()):
        return None
    percent = whole_number(text)
    if percent is None or not 1 <= percent <= 100:
        raise invalid("bad_warning", refusal_text("bad_warning"), "warn_percent")
    return percent
