"""The operator's six setup steps from an empty installation to the first booking."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Gpu, Node
from allocation.queries.fleet.setup import SiteSetup, has_booked, site_setup
from allocation.rules.site.known_models import known_catalogue
from allocation.services.nodes.fleet import node_approve
from allocation.services.operate.site_defaults import default_tiers_add, prices_proposed
from allocation.web.site.catalogue import (
    FormView,
    RefusedForm,
    are_many_known,
    catalogue_acts,
    shipped_choices,
    unnamed_model_forms,
)
from allocation.words.refusals import refusal_text
from billing.models import PriceBook
from billing.price_books import currency_latest
from billing.rules import amount_parse
from billing.services import (
    only_new_check,
    peaks_kept,
    price_book_publish,
    price_param,
    slices_kept,
)
from tenants.models import GpuClass, Quota, Tenant, Tier, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.text import CURRENCIES
from tenants.queries import tiers_all
from tenants.rules.operator_roles import Area
from tenants.services import (
    NewAdmin,
    Share,
    gpus_text,
    tenant_create_with_admin,
    tenant_quota_set,
    units_read,
)
from tenants.web.frame import operator_page
from tenants.web.parts import Field

PRICE_PLACES = 4
STEPS = (
    ("models", "Classes and models", "Name the GPU models that agents report."),
    ("tiers", "Tiers", "Priority, pauses and longest bookings."),
    ("prices", "Prices", "The price of a GPU-hour in each tier."),
    ("tenant", "First organisation", "An organisation and its admin, who creates projects."),
    ("quotas", "Quotas", "The organisation's guaranteed GPUs. It can also borrow idle GPUs."),
    ("nodes", "Nodes", "Approve the nodes that take bookings."),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A setup step."""

    key: str
    title: str
    text: str
    number: int
    is_done: bool
    is_next: bool
    missing: str = ""


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A tenant that was just created. The password is shown only once."""

    tenant: Tenant
    admin: str
    password: str


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.SYSTEM)
def ops_setup(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows all steps; each is saved separately."""
    refusal, made = None, None
    if request.method == "POST" and request.POST.get("act") == "tenant":
        made, refusal = _tenant_act(operator, request.POST)
    elif request.method == "POST":
        refusal = form_action_run(request, _acts(operator))
        if refusal is None:
            return redirect("ops-setup")
    sent = RefusedForm(request.POST, refusal) if refusal else None
    setup, waiting = site_setup(), unnamed_model_forms(sent)
    context = {
        "steps": setup_steps(setup),
        "setup": setup,
        "refusal": None if any(form.failed for _, form in waiting) else refusal,
        "failed": _failed_step(request.POST) if refusal else "",
        "made": made,
        "waiting": waiting,
        "many_known": are_many_known(waiting),
        "shipped": shipped_choices(),
        "classes": GpuClass.objects.all(),
        "tiers": tiers_all(),
        "usual": known_catalogue().tiers.values(),
        "prices": _price_rows(sent),
        "currency": currency_latest(),
        "currencies": list(CURRENCIES),
        "chosen": request.POST.get("currency", currency_latest()),
        "tenant_form": _tenant_form(sent),
        "tenants": Tenant.objects.order_by("name", "id"),
        "quotas": _quota_rows(sent),
    }
    return render(request, "allocation/ops_setup.html", context, status=422 if refusal else 200)


def site_steps() -> tuple[Step, ...]:
    """Returns the checklist on the fleet page; none after the first booking has run."""
    return () if has_booked() else setup_steps(site_setup())


def setup_steps(setup: SiteSetup) -> tuple[Step, ...]:
    """Returns the steps with the first open one marked."""
    missing_of = _missing(setup)
    following = next((n for n, is_done in enumerate(setup.done) if not is_done), None)
    return tuple(
        Step(key, title, text, number + 1, setup.done[number], number == following, missing_of[key])
        for number, (key, title, text) in enumerate(STEPS)
    )


def _missing(setup: SiteSetup) -> dict[str, str]:
    """Returns what each step lacks; empty for a completed step."""
    names = ", ".join(each.name for each in setup.unnamed)
    pairs = ", ".join(f"{gpu_class} in {tier}" for gpu_class, tier in setup.unpriced[:3])
    nodes = ", ".join(node.name for node in setup.waiting)
    more = f" and {len(setup.unpriced) - 3} more" if len(setup.unpriced) > 3 else ""
    return {
        "models": f"Unnamed models: {names}."
        if names
        else ""
        if setup.has_models
        else "No agent has reported yet. Install one, or add models from the built-in catalogue.",
        "tiers": "" if setup.has_tiers else "No tiers yet.",
        "prices": f"No price for {pairs}{more}." if pairs else "" if setup.has_prices else "No prices yet.",
        "tenant": "" if setup.has_tenant else "No organisations yet.",
        "quotas": "" if setup.has_quota else "No organisation has a quota yet.",
        "nodes": f"Waiting for approval: {nodes}."
        if nodes
        else ""
        if setup.ready
        else "No approved nodes yet.",
    }


def _acts(operator: User) -> Mapping[str, FormAction]:
    return {
        **catalogue_acts(operator),
        "tiers-usual": lambda _: _tiers(operator),
        "prices": lambda form: _prices(operator, form),
        "quotas": lambda form: _quotas(operator, form),
        "approve": lambda form: _approve(operator, form),
    }


def _failed_step(form: QueryDict) -> str:
    act = form.get("act", "")
    if act in ("tiers-usual", "prices", "quotas", "tenant"):
        return act.partition("-")[0]
    return "nodes" if act == "approve" else "models"


def _tiers(operator: User) -> str:
    made = default_tiers_add(operator=operator, now=timezone.now())
    return f"{', '.join(tier.name for tier in made) or 'No tier'} created. Change them under Tiers."


def _prices(operator: User, form: QueryDict) -> str:
    now, currency = timezone.now(), form.get("currency", "")
    of_site = currency or currency_latest()
    names = {pair: price_param(*pair) for pair in _pairs()}
    prices = {
        pair: amount_parse(form.get(name, ""), param=name, currency=of_site, places=4)
        for pair, name in names.items()
    }
    if not prices:
        raise invalid("price_missing", refusal_text("price_missing"), "prices")
    peaks = peaks_kept()
    only_new_check(prices, peaks, slices_kept())
    note = "Prices for what is new" if PriceBook.objects.exists() else "First prices"
    book = price_book_publish(
        actor_id=operator.pk,
        valid_from=now,
        prices=prices,
        peaks=peaks,
        slices=slices_kept(),
        note=note,
        currency=currency,
        now=now,
    )
    return f"Price book version {book.version} is in force."


def _tenant_act(operator: User, form: QueryDict) -> tuple[NewTenant | None, Refused | None]:
    admin = NewAdmin(form.get("username", "").strip(), form.get("admin_name", ""), form.get("email", ""))
    try:
        with transaction.atomic():
            tenant, password = tenant_create_with_admin(
                operator=operator,
                slug=form.get("slug", ""),
                name=form.get("name", ""),
                admin=admin,
                now=timezone.now(),
            )
    except Refused as refusal:
        return None, refusal
    return NewTenant(tenant, admin.username, password), None


@transaction.atomic
def _quotas(operator: User, form: QueryDict) -> str:
    tenant = Tenant.objects.filter(id=id_read(form, "tenant", "tenant")).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    now = timezone.now()
    for gpu_class in GpuClass.objects.all():
        param = f"quota-{gpu_class.slug}"
        try:
            units = units_read(form.get(param, "") or "0", param=param)
            tenant_quota_set(
                operator=operator,
                tenant=tenant,
                gpu_class=gpu_class.slug,
                share=Share(units),
                now=now,
            )
        except Refused as refusal:
            refusal.param = param
            raise
    return f"Quotas of {tenant.name} saved. It can also borrow idle GPUs."


def _approve(operator: User, form: QueryDict) -> str:
    name = form.get("node", "").replace("\x00", "\ufffd")
    node = Node.objects.select_for_update().filter(name=name).first()
    if node is None:
        raise missing("node")
    node_approve(operator=operator, node=node, now=timezone.now())
    return f"{node.name} takes bookings."


def _pairs() -> list[tuple[str, str]]:
    tiers = list(Tier.objects.values_list("slug", flat=True))
    return [
        (gpu_class, tier) for gpu_class in GpuClass.objects.values_list("slug", flat=True) for tier in tiers
    ]


def _price_rows(sent: RefusedForm | None) -> list[tuple[GpuClass, list[Field]]]:
    classes, tiers = list(GpuClass.objects.all()), list(tiers_all())
    proposed, _ = prices_proposed(
        [each.slug for each in classes], [each.slug for each in tiers], {}, currency_latest()
    )
    fields = {
        (gpu_class.slug, tier.slug): Field(
            price_param(gpu_class.slug, tier.slug),
            f"{gpu_class.label}, {tier.name}",
            _price_text(proposed.get((gpu_class.slug, tier.slug))),
        )
        for gpu_class in classes
        for tier in tiers
    }
    form = FormView("prices", "prices", (), tuple(fields.values()))
    shown = {field.name: field for field in (sent.into(form) if sent else form).fields}
    return [
        (gpu_class, [shown[price_param(gpu_class.slug, tier.slug)] for tier in tiers])
        for gpu_class in classes
    ]


def _price_text(price: Decimal | None) -> str:
    if price is None:
        return ""
    return f"{price:.2f}" if price == round(price, 2) else f"{price:f}"


def _tenant_form(sent: RefusedForm | None) -> FormView:
    form = FormView(
        key="tenant",
        act="tenant",
        hidden=(),
        fields=(
            Field("name", "Name of the organisation"),
            Field(
                "slug",
                "Short name",
                hint="Lowercase letters, digits and hyphens. Can't be changed later.",
            ),
            Field(
                "username",
                "Admin's sign-in name",
                hint="An existing account, or the name of a new one.",
            ),
            Field("admin_name", "Admin's name", hint="Only for a new account.", required=False),
            Field("email", "Admin's e-mail (optional)", required=False, type="email"),
        ),
    )
    return sent.into(form) if sent else form


def _quota_rows(sent: RefusedForm | None) -> list[tuple[GpuClass, int, Field]]:
    there: dict[str, int] = {}
    for slug in Gpu.objects.values_list("gpu_class_id", flat=True):
        there[slug] = there.get(slug, 0) + 1
    first = Tenant.objects.order_by("name", "id").first()
    quotas = dict(
        Quota.objects.filter(tenant=first, project=None).values_list("gpu_class_id", "guaranteed_units")
    )
    classes = list(GpuClass.objects.all())
    form = FormView(
        key="quotas",
        act="quotas",
        hidden=(),
        fields=tuple(
            Field(f"quota-{each.slug}", each.label, gpus_text(quotas.get(each.slug, 0))) for each in classes
        ),
    )
    shown = (sent.into(form) if sent else form).fields
    return [(each, there.get(each.slug, 0), field) for each, field in zip(classes, shown, strict=True)]


urlpatterns = [path("ops/setup", ops_setup, name="ops-setup")]
