"""The pages of quotas: of the projects of an organisation, and of all organisations."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.fleet.loans import loans_text
from allocation.queries.limits.tree import owner_uses
from allocation.queries.limits.use_now import UseNow, use_now
from allocation.web.limits.cut_question import choices_of, effects_of, lost_by
from allocation.web.parts.times import moment_words
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.lab_queries import guarantees_to_come, labs_led, projects_seen
from tenants.models import DatedGuarantee, Project, Tenant, Tier, User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import form_action_run, id_text_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.nouns import unit_text
from tenants.queries import ClassShares, ShareRow, project_shares, tenant_shares
from tenants.rules.operator_roles import Area
from tenants.services import (
    Share,
    gpus_text,
    quota_more_set,
    quota_set,
    tenant_quota_more_set,
    tenant_quota_set,
)
from tenants.services.labs.limits import project_to_limit
from tenants.services.limit_changes import CHOSEN, Cut, answer_of
from tenants.web.frame import operator_page, tenant_page
from tenants.web.parts import counted
from tenants.web.quota_form import ChangedRow, changed_rows, rows_saved
from tenants.web.quotas import (
    RefusedForm,
    Units,
    class_cards,
    share_read,
    share_text,
    weights_caps_read,
    weights_caps_text,
)

MOST_NOTES = 3
Uses = Mapping[tuple[UUID, str], UseNow]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def quotas(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the quotas of projects; tenant admins change them, lab leads those of their labs."""
    refusal, led = None, labs_led(actor)
    tenant, projects = Tenant.objects.get(id=actor.tenant_id), list(projects_seen(actor, led))
    shares = project_shares(tenant, projects)
    uses = use_now("project_id", timezone.now(), actor.tenant_id)
    if request.method == "POST":
        if not led:
            require_tenant_admin(actor)
        save = partial(_project_saved, actor, Cut(answer_of(request.POST)))
        asked = cut_question(
            request.POST, shares, uses, f"/t/{tenant.slug}/quotas", partial(_project_saved, actor)
        )
        if asked is not None:
            return confirm_page(request, asked)
        refusal = form_action_run(request, {"save": lambda form: rows_saved(form, save)})
        if refusal is None:
            return redirect("quotas", tenant=actor.tenant_slug)
    changed = [each for each in projects if actor.is_tenant_admin or each.lab_id in led]
    dated = guarantee_notes(guarantees_to_come(timezone.now()).filter(tenant=tenant))
    cards = class_cards(shares, "project", _sent(request, refusal), _inside(actor, uses), changed, dated)
    context = {
        "classes": cards,
        "can_save": any(each.may_change for each in cards),
        "loans": loans_text(Tier.objects.order_by("-priority", "slug")),
        "may_change": actor.is_tenant_admin,
        "refusal": refusal,
    }
    return render(request, "tenants/quotas.html", context, status=422 if refusal else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_quotas(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the quotas of tenants; operators change them."""
    refusal, shares, uses = None, tenant_shares(), use_now("tenant_id", timezone.now())
    if request.method == "POST":
        save = partial(_tenant_saved, operator, Cut(answer_of(request.POST)))
        asked = cut_question(request.POST, shares, uses, request.path, partial(_tenant_saved, operator))
        if asked is not None:
            return confirm_page(request, asked)
        refusal = form_action_run(request, {"save": lambda form: rows_saved(form, save)})
        if refusal is None:
            return redirect("ops-quotas")
    dated = guarantee_notes(guarantees_to_come(timezone.now()))
    cards = class_cards(shares, "tenant", _sent(request, refusal), _units(uses), dated=dated)
    context = {
        "classes": cards,
        "can_save": any(each.may_change for each in cards),
        "may_change": True,
        "refusal": refusal,
    }
    return render(request, "tenants/ops_quotas.html", context, status=422 if refusal else 200)


def guarantee_notes(rows: Iterable[DatedGuarantee]) -> dict[tuple[UUID, str], tuple[str, ...]]:
    """Returns what is guaranteed between dates, by owner and class: the next few as text."""
    now, zone = timezone.now(), timezone.get_current_timezone()
    found: dict[tuple[UUID, str], tuple[str, ...]] = {}
    for row in rows:
        key = row.owner_id, row.gpu_class_id
        until = moment_words(row.ends, zone, now)
        since = "" if row.starts <= now else f"from {moment_words(row.starts, zone, now)} "
        note = f"{gpus_text(row.guaranteed_units)} guaranteed {since}until {until}"
        if len(found.get(key, ())) < MOST_NOTES:
            found[key] = (*found.get(key, ()), note)
    return found


def cut_question(
    form: QueryDict,
    shares: Iterable[ClassShares],
    uses: Uses,
    back: str,
    save: Callable[[Cut, ChangedRow], str],
) -> Confirmation | None:
    """Returns the question before shares are lowered whose owners have bookings in the class. Where
    something is above a limit, it asks what happens to that."""
    if form.get("act") != "save" or CONFIRMED_FIELD in form:
        return None
    now, zone = timezone.now(), timezone.get_current_timezone()
    cards = {card.gpu_class.slug: card for card in shares}
    lowered = [cut for row in changed_rows(form) if (cut := _cut(row, cards.get(row.gpu_class), uses))]
    effects = effects_of(lambda cut: rows_saved(form, partial(save, cut)))
    labels = {slug: card.gpu_class.label for slug, card in cards.items()}
    lowered += [
        (f"{each.name} on {labels.get(each.gpu_class, each.gpu_class)}", lost_by(each, zone, now))
        for each in effects
    ]
    if not lowered:
        return None
    choices = choices_of([each for each in effects if each.is_guarantee] or effects)
    names = dict.fromkeys(name for name, _ in lowered)
    if len(names) == 1:
        lost = tuple(sentence for _, sentences in lowered for sentence in sentences)
        title = f"Lower the quota of {next(iter(names))}?"
        return Confirmation(
            title, lost, "Lower the quota", back, "Keep the quota", chosen=CHOSEN, choices=choices
        )
    said = tuple(f"{name}: {sentence}" for name, lost in lowered for sentence in lost)
    title = f"Lower {len(names)} quotas?"
    return Confirmation(
        title, said, "Lower the quotas", back, "Keep the quotas", chosen=CHOSEN, choices=choices
    )


def _cut(changed: ChangedRow, card: ClassShares | None, uses: Uses) -> tuple[str, tuple[str, ...]] | None:
    """Returns whose share of what is lowered, and what is lost by it."""
    row = next((each for each in card.rows if _is_named(each, changed.owner)), None) if card else None
    if card is None or row is None or not changed.is_share:
        return None
    try:
        after = share_read(changed.values)
    except Refused:
        return None
    used = uses.get((row.owner.id, card.gpu_class.slug), UseNow())
    lost = tuple(unit_text(each, card.gpu_class.slug) for each in _lost_guarantee(row, after, used))
    if not lost:
        return None
    if used.planned:
        whose = "1 booking has" if used.planned == 1 else f"{used.planned} bookings have"
        lost = (*lost, f"{whose} a planned start, which can become later.")
    return f"{row.owner.name} on {card.gpu_class.label}", lost


def _is_named(row: ShareRow, owner: str) -> bool:
    return owner == (row.owner.slug if isinstance(row.owner, Project) else str(row.owner.id))


def _lost_guarantee(row: ShareRow, after: Share, used: UseNow) -> tuple[str, ...]:
    before, less = row.guaranteed_units, after.guaranteed_units
    if less >= before or not (used.running or used.planned):
        return ()
    cut = f"The guarantee falls from {gpus_text(before)} to {counted(gpus_text(less), 'GPU')}."
    lent = max(0, min(used.used - used.borrowed, before) - less)
    if not lent:
        return (cut,)
    return (
        f"{cut} Of {gpus_text(used.used)} in use, {gpus_text(lent)} more would be borrowed: their "
        "owners can have bookings paused there, in tiers that allow it.",
    )


def _units(uses: Uses) -> dict[tuple[UUID, str], Units]:
    return {key: Units(each.used, each.borrowed) for key, each in uses.items()}


def _inside(actor: Actor, uses: Uses) -> dict[tuple[UUID, str], Units]:
    """The use of projects as the page of labs has it, with what they borrow from each other."""
    rows = owner_uses(actor, timezone.now())
    return _units(uses) | {key: Units(each.used, each.borrowed, each.spare) for key, each in rows.items()}


def _sent(request: HttpRequest, refusal: Refused | None) -> RefusedForm | None:
    return RefusedForm(request.POST, refusal) if refusal else None


def _project_saved(actor: Actor, cut: Cut, row: ChangedRow) -> str:
    now = timezone.now()
    if row.is_share:
        project, share = project_to_limit(actor, row.owner), share_read(row.values)
        quota = quota_set(
            actor=actor, project=project, gpu_class=row.gpu_class, share=share, now=now, cut=cut
        )
        return unit_text(share_text(project.name, quota.gpu_class.label, share), row.gpu_class)
    project, more = access_project(actor, row.owner, "project"), weights_caps_read(row.values)
    quota = quota_more_set(actor=actor, project=project, gpu_class=row.gpu_class, more=more, now=now, cut=cut)
    return unit_text(weights_caps_text(project.name, quota.gpu_class.label, more), row.gpu_class)


def _tenant_saved(operator: User, cut: Cut, row: ChangedRow) -> str:
    now = timezone.now()
    tenant = Tenant.objects.filter(id=id_text_read(row.owner, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    if row.is_share:
        share = share_read(row.values)
        quota = tenant_quota_set(
            operator=operator, tenant=tenant, gpu_class=row.gpu_class, share=share, now=now, cut=cut
        )
        return unit_text(share_text(tenant.name, quota.gpu_class.label, share), row.gpu_class)
    more = weights_caps_read(row.values)
    quota = tenant_quota_more_set(
        operator=operator, tenant=tenant, gpu_class=row.gpu_class, more=more, now=now, cut=cut
    )
    return unit_text(weights_caps_text(tenant.name, quota.gpu_class.label, more), row.gpu_class)


urlpatterns = [
    path("t/<slug:tenant>/quotas", quotas, name="quotas"),
    path("ops/quotas", ops_quotas, name="ops-quotas"),
]
