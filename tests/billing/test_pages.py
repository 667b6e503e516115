"""The pages about money, as each role sees and uses them."""

import re
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from billing.models import Budget, PriceBook
from billing.queries import BudgetFigures, budget_figures
from billing.rules import Period, month_of
from billing.services import budget_set
from billing.web.budget_bar import budget_bar
from billing.web.budget_rows import Tree
from billing.web.budgets import totals_of
from tenants.models import Lab, Project, Role, Tenant, Tier
from tests.billing.builders import PRICES, a_catalogue
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, an_actor, an_operator
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db

MONTH = month_of(timezone.now().date())
BAD_AMOUNTS = ["NaN", "Infinity", "-1", "1e30", "1,00.00", "", "1.005", "\u0661"]


@pytest.fixture
def helix() -> Tenant:
    return a_tenant("helix", name="Helix Institute")


@pytest.fixture
def folding(helix: Tenant) -> Project:
    return a_project(helix, "folding", name="Protein folding")


def signed_in(project: Project, role: str) -> Client:
    member = a_tenant_admin(project.tenant) if role == Role.TENANT_ADMIN else a_member(project, role)
    client = Client()
    client.force_login(member.user)
    return client


def a_budget(project: Project, amount: str = "1200") -> Budget:
    with as_system():
        return budget_set(
            actor_id=None,
            project=project,
            period=MONTH,
            amount=Decimal(amount),
            now=timezone.now(),
        )


def a_form(project: Project, amount: str, warn_percent: str = "80") -> dict[str, str]:
    return {
        "month": f"{MONTH.starts:%Y-%m}",
        "project": project.slug,
        "starts": MONTH.starts.isoformat(),
        "ends": MONTH.ends.isoformat(),
        "amount": amount,
        "warn_percent": warn_percent,
    }


def amount_of(project: Project) -> Decimal | None:
    with as_system():
        effect = budget_figures(project_id=project.id, at=timezone.now())
    return effect.amount if effect else None


def test_the_figures_of_a_budget_add_up_to_the_cent_wherever_they_are_shown(folding: Project) -> None:
    """Each of the three would be rounded down."""
    spent, held, left = (Decimal(each) for each in ("1440.8833", "1036.7933", "7522.3234"))
    exact = BudgetFigures(
        budget_id=uuid4(),
        project_id=None,
        currency="EUR",
        starts=MONTH.starts,
        ends=MONTH.ends,
        warn_percent=80,
        level="tenant",
        amount=spent + held + left,
        spent=spent,
        held=held,
        left=left,
    )
    actor = an_actor(a_tenant_admin(folding.tenant))
    rows = Tree(actor, MONTH, [], [exact], {}, None).rows()
    shown = ("€1,440.88", "€1,036.79", "€7,522.33", "€10,000.00")
    for each in (rows[0], budget_bar(exact), totals_of([exact], rows, 0)):
        assert each is not None
        assert (each.spent, each.held, each.left, each.amount) == shown
    assert rows[0].bar is not None
    assert "€7,522.33 left of €10,000.00" in rows[0].bar.label


def test_what_is_spent_is_rounded_by_itself_as_statements_do_it() -> None:
    spent, held, left = (Decimal(each) for each in ("1.0049", "1.0013", "7.9938"))
    exact = BudgetFigures(
        budget_id=uuid4(),
        project_id=None,
        currency="EUR",
        starts=MONTH.starts,
        ends=MONTH.ends,
        warn_percent=80,
        amount=spent + held + left,
        spent=spent,
        held=held,
        left=left,
    )
    shown = exact.in_cents
    assert [shown.spent, shown.held, shown.left] == [Decimal("1.00"), Decimal("1.00"), Decimal("8.00")]
    assert shown.amount == Decimal("10.00")


def test_what_is_saved_of_a_budget_is_what_changed(folding: Project) -> None:
    a_budget(folding)
    lead = signed_in(folding, Role.TENANT_ADMIN)
    month = f"{MONTH.starts:%B %Y}"
    for form, said in (
        (a_form(folding, "1200", "70"), f"Budget of Protein folding, {month}: alert at 70 %."),
        (a_form(folding, "1300", "70"), f"Budget of Protein folding, {month}: €1,300.00."),
    ):
        assert said in lead.post("/t/helix/budgets", form, follow=True).content.decode()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESEARCHER, Role.LEAD])
def test_members_read_their_projects_budgets_and_find_nothing_to_change(folding: Project, role: str) -> None:
    hidden = a_project(folding.tenant, "hidden", name="Hidden project")
    a_budget(folding)
    a_budget(hidden)
    page = signed_in(folding, role).get("/t/helix/budgets").content.decode()
    assert "€1,200.00" in page
    assert "Hidden project" not in page
    assert 'id="amount-' not in page


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESEARCHER, Role.LEAD])
def test_only_admins_set_budgets(folding: Project, role: str) -> None:
    answer = signed_in(folding, role).post("/t/helix/budgets", a_form(folding, "1"))
    assert answer.status_code == 403
    assert amount_of(folding) is None


def test_an_admin_sees_every_project_and_sets_a_budget_in_its_row(folding: Project) -> None:
    client = signed_in(folding, Role.TENANT_ADMIN)
    a_project(folding.tenant, "cryo", name="Cryo-EM")
    page = client.get("/t/helix/budgets").content.decode()
    assert page.count('id="amount-') == 2
    answer = client.post("/t/helix/budgets", a_form(folding, "2500.50", "75"), follow=True)
    assert answer.redirect_chain[-1][0] == f"/t/helix/budgets?month={MONTH.starts:%Y-%m}"
    shown = answer.content.decode()
    assert "€2,500.50" in shown
    # A project without a budget is a row, and no budget of which an alert could be reached.
    assert re.search(r"Over their alert</dt>\s*<dd[^>]*>\s*0 <small>of <span data-figure=.budgets.>1<", shown)
    assert amount_of(folding) == Decimal("2500.50")


def test_a_closed_project_is_none_without_a_budget(folding: Project) -> None:
    client = signed_in(folding, Role.TENANT_ADMIN)
    a_project(folding.tenant, "cryo", name="Cryo-EM")
    closed = a_project(folding.tenant, "old", name="Old survey")
    with as_owner():
        type(closed).objects.filter(id=closed.id).update(is_open=False)
    client.post("/t/helix/budgets", a_form(folding, "2500.50", "75"))
    shown = client.get("/t/helix/budgets").content.decode()
    assert re.search(r"Projects without a budget</dt>\s*<dd[^>]*>\s*1 <small>of 2<", shown)


def test_a_refused_campaign_says_why_next_to_its_field_and_keeps_the_text(folding: Project) -> None:
    client = Client()
    client.force_login(a_member(folding, Role.LEAD).user)
    form = {"project": "folding", "name": "…", "match_ref": "LAB-9"}
    refused = client.post("/t/helix/budgets/campaigns", form)
    shown = " ".join(refused.content.decode().split())
    assert refused.status_code == 422
    assert re.search(r'id="campaign-name" name="name" type="text" value="…".*?aria-invalid="true"', shown)
    assert 'value="LAB-9"' in shown
    labels = client.post("/t/helix/budgets/campaigns", form | {"name": "A", "match_labels": "=="})
    assert re.search(r'value="==".*?aria-invalid="true"', " ".join(labels.content.decode().split()))


def test_no_limit_is_removed_that_is_not_there(folding: Project) -> None:
    client, budget = signed_in(folding, Role.TENANT_ADMIN), a_budget(folding)
    for sent in ({"remove": "x"}, {"remove": ""}, {}):
        refused = client.post(f"/t/helix/budgets/{budget.id}", sent)
        assert refused.status_code == 422, sent
        assert "There is no such limit" in refused.content.decode()


@pytest.mark.turn
def test_a_lead_sets_budgets_below_the_project_and_only_there(folding: Project) -> None:
    lead = a_member(folding, Role.LEAD)
    client = Client()
    client.force_login(lead.user)
    campaigns = "/t/helix/budgets/campaigns"
    client.post(campaigns, {"project": "folding", "name": "Ablation study"})
    form = {
        "month": f"{MONTH.starts:%Y-%m}",
        "starts": MONTH.starts.isoformat(),
        "last": (MONTH.ends - timedelta(days=1)).isoformat(),
        "warn_percent": "80",
        "kind": "soft",
    }
    for owner, status in [
        ("folding/campaign/ablation-study", 302),
        (f"folding/person/{lead.user.username}", 302),
        ("folding/person/nobody", 404),
        ("folding", 403),
        ("tenant", 403),
    ]:
        sent = client.post("/t/helix/budgets", {**form, "owner": owner, "amount": "€1,800"})
        assert sent.status_code == status, owner
    page = client.get("/t/helix/budgets").content.decode()
    assert page.count('value="1800.00"') == 2
    assert "soft: it only warns" in page
    client.post(campaigns, {"project": "folding", "campaign": "ablation-study"})
    assert "closed" in client.get("/t/helix/budgets").content.decode()
    viewer = signed_in(folding, Role.VIEWER)
    assert viewer.post(campaigns, {"project": "folding", "name": "x"}).status_code == 403
    assert lead.user.username not in viewer.get("/t/helix/budgets").content.decode()


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
def test_a_bad_amount_is_refused_beside_its_field_and_stays_typed(folding: Project, amount: str) -> None:
    a_budget(folding)
    answer = signed_in(folding, Role.TENANT_ADMIN).post("/t/helix/budgets", a_form(folding, amount))
    page = answer.content.decode()
    key = f"folding-{MONTH.starts.isoformat()}"
    field = re.search(rf'<input[^>]*id="amount-{key}"[^>]*>', page)
    assert answer.status_code == 422
    assert field is not None
    assert f'value="{amount}"' in field[0]
    assert f'aria-describedby="error-{key}"' in field[0]
    assert f'id="error-{key}"' in page
    assert amount_of(folding) == Decimal(1200)


@pytest.mark.parametrize("percent", ["0", "101", "x", "-5", "1e1", "0080" + "9" * 20, "0080" + "9" * 5000])
def test_a_bad_warning_is_refused(folding: Project, percent: str) -> None:
    answer = signed_in(folding, Role.TENANT_ADMIN).post("/t/helix/budgets", a_form(folding, "5", percent))
    assert answer.status_code == 422
    assert amount_of(folding) is None


@pytest.mark.parametrize(
    ("starts", "ends"),
    [("", ""), ("yesterday", ""), ("2026-13-01", ""), ("2026-11-01", "2026-11-01")],
)
def test_a_bad_period_is_refused(folding: Project, starts: str, ends: str) -> None:
    form = {**a_form(folding, "5"), "starts": starts, "ends": ends}
    answer = signed_in(folding, Role.TENANT_ADMIN).post("/t/helix/budgets", form)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()


@pytest.mark.parametrize("month", ["2026-02", "nonsense", "9999-12", "0001-01", "", "2026-13"])
def test_any_month_in_the_address_shows_a_page(folding: Project, month: str) -> None:
    client = signed_in(folding, Role.TENANT_ADMIN)
    assert client.get("/t/helix/budgets", {"month": month}).status_code == 200


def test_other_tenants_get_the_answer_of_a_missing_page(folding: Project) -> None:
    outsider = signed_in(a_project(), Role.TENANT_ADMIN)
    for path in ("/t/helix/budgets", "/t/helix/prices", "/t/nowhere/budgets"):
        assert outsider.get(path).status_code == 404
    assert outsider.post("/t/helix/budgets", a_form(folding, "1")).status_code == 404


def test_an_admin_can_not_set_a_foreign_project(folding: Project) -> None:
    other = a_project(a_tenant("northlab"), "climate")
    answer = signed_in(folding, Role.TENANT_ADMIN).post("/t/helix/budgets", a_form(other, "5"))
    assert answer.status_code == 404
    assert amount_of(other) is None


@pytest.mark.parametrize("path", ["/t/helix/budgets", "/t/helix/prices", "/ops/prices"])
def test_signed_out_readers_are_sent_to_sign_in(folding: Project, path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/sign-in?next={path}")


def publish(days: int = 0, factor: int = 1) -> None:
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=timezone.now() + timedelta(days=days),
            prices={key: price * factor for key, price in PRICES.items()},
            now=timezone.now() - timedelta(minutes=1),
        )


@pytest.fixture
def _catalogue() -> None:
    with as_system():
        a_catalogue()


@pytest.mark.usefixtures("_catalogue")
def test_everybody_reads_the_prices_and_those_to_come(folding: Project) -> None:
    publish()
    publish(days=3, factor=2)
    with as_system():
        Tier.objects.filter(slug="spot").update(late_share=30, notice_seconds=7200)
    page = signed_in(folding, Role.VIEWER).get("/t/helix/prices").content.decode()
    assert "€4.80" in page
    assert "then €9.60" in page
    assert "Version 2 is valid from" in page
    assert "What else a booking can cost" in page
    assert "30 % of what is given up later than 2 h before" in page


def test_without_prices_the_page_says_that_nothing_can_be_booked(folding: Project) -> None:
    page = signed_in(folding, Role.VIEWER).get("/t/helix/prices").content.decode()
    assert "No prices are in force" in page


def price_form(**changes: str) -> dict[str, str]:
    form = {f"price-{gpu_class}-{tier}": str(price) for (gpu_class, tier), price in PRICES.items()}
    return {**form, "valid_from": "", "note": "Winter", **changes}


def an_operators_client() -> Client:
    client = Client()
    client.force_login(an_operator())
    return client


@pytest.fixture
def operator() -> Client:
    return an_operators_client()


def a_draft(operator: Client) -> str:
    """The address of a new draft."""
    return str(operator.post("/ops/prices").headers["Location"])


@pytest.mark.usefixtures("_catalogue")
def test_an_operator_writes_a_draft_and_another_one_publishes_it(operator: Client) -> None:
    publish()
    draft, another = a_draft(operator), an_operators_client()
    later = f"{timezone.now() + timedelta(days=2):%Y-%m-%dT%H:%M}"
    changed = {"price-h100-spot": "1.7050", "valid_from": later, "act": "save"}
    assert operator.post(draft, price_form(**changed)).status_code == 302
    page = another.get(draft).content.decode()
    assert all(text in page for text in ("1.68", "1.7050", "+1.5 %", "No charges in that month"))
    assert 'name="price-h100-spot"' not in page
    form = {"act": "publish", "revision": "2"}
    mine = operator.post(draft, form)
    assert (mine.status_code, "You wrote this draft" in mine.content.decode()) == (422, True)
    old = another.post(draft, {**form, "revision": "1", "sure": "1"})
    assert (old.status_code, PriceBook.objects.count()) == (422, 1)
    assert "Publish version 2, change 1 price" in another.post(draft, form).content.decode()
    assert PriceBook.objects.count() == 1
    assert another.post(draft, {**form, "sure": "1"}).status_code == 302
    assert [book.version for book in PriceBook.objects.all()] == [2, 1]
    assert "Published as version 2" in operator.get(draft).content.decode()
    again = another.post(draft, {**form, "sure": "1"})
    assert (again.status_code, PriceBook.objects.count()) == (422, 2)


@pytest.mark.turn
@pytest.mark.usefixtures("_catalogue")
def test_a_bad_price_or_date_is_refused_beside_its_field(operator: Client) -> None:
    publish()
    draft = a_draft(operator)
    for field, value in (
        *(("price-h100-spot", amount) for amount in BAD_AMOUNTS if amount != "1.005"),
        ("price-l40s-standard", "1.00005"),
        ("peak-l40s-standard", "0.01"),
        ("valid_from", "2020-01-01T00:00"),
        ("valid_from", "tomorrow"),
        ("peak_hours", "Mon 8-99"),
    ):
        form = price_form(act="save", peak_hours="Mon 8-9", peak_zone="UTC") | {field: value}
        answer = operator.post(draft, form)
        page = answer.content.decode()
        assert answer.status_code == 422, (field, value)
        assert f'id="{field}-error"' in page, (field, value)
        assert f'value="{value}"' in page, (field, value)


@pytest.mark.usefixtures("_catalogue")
def test_a_version_can_not_begin_before_one_that_is_published(operator: Client) -> None:
    publish(days=10)
    soon = f"{timezone.now() + timedelta(days=2):%Y-%m-%dT%H:%M}"
    answer = operator.post(a_draft(operator), price_form(valid_from=soon, act="save"))
    assert answer.status_code == 422
    assert "Version 1 is valid from" in answer.content.decode()


@pytest.mark.parametrize("role", [Role.RESEARCHER, Role.TENANT_ADMIN])
def test_price_publishing_is_hidden_from_members(folding: Project, role: str) -> None:
    client = signed_in(folding, role)
    assert client.get("/ops/prices").status_code == 404
    assert client.post("/ops/prices", price_form()).status_code == 404


def test_a_budget_outside_calendar_months_is_named_by_its_days(folding: Project) -> None:
    period = Period(MONTH.starts, MONTH.starts + timedelta(days=10))
    with as_system():
        budget_set(
            actor_id=None,
            project=folding,
            period=period,
            amount=Decimal(7),
            now=timezone.now(),
        )
    page = signed_in(folding, Role.LEAD).get("/t/helix/budgets").content.decode()
    assert f"1 {MONTH.starts:%b %Y} to 10 {MONTH.starts:%b %Y}" in page


@pytest.mark.turn
def test_an_admin_sets_the_budget_of_a_lab_above_its_projects(folding: Project) -> None:
    with as_system():
        lab = Lab.objects.create(tenant=folding.tenant, slug="imaging", name="Imaging")
        Project.objects.filter(id=folding.id).update(lab=lab)
    a_budget(folding, "1200")
    client = signed_in(folding, Role.TENANT_ADMIN)
    form = {
        "month": f"{MONTH.starts:%Y-%m}",
        "starts": MONTH.starts.isoformat(),
        "last": (MONTH.ends - timedelta(days=1)).isoformat(),
        "warn_percent": "80",
    }
    made = client.post("/t/helix/budgets", {**form, "owner": "lab/imaging", "amount": "€1,000"})
    assert made.status_code == 302
    page = client.get("/t/helix/budgets").content.decode()
    assert "Its projects add up to €1,200.00, €200.00 more than this" in page
    assert page.index("Imaging</a>") < page.index("Protein folding</a>")
    row = {**a_form(folding, "1300"), "level": "lab", "project": "", "lab": "imaging"}
    assert client.post("/t/helix/budgets", row).status_code == 302
    assert 'value="1300.00"' in client.get("/t/helix/budgets").content.decode()
    member = signed_in(folding, Role.VIEWER)
    assert "Imaging" in member.get("/t/helix/budgets").content.decode()


@pytest.mark.turn
def test_operators_set_budgets_of_the_platform_and_their_ladders(folding: Project) -> None:
    operator = an_operators_client()
    a_budget(folding)
    form = {
        "starts": MONTH.starts.isoformat(),
        "alerts": ["committed-80"],
        "kind": "hard",
        "last": (MONTH.ends - timedelta(days=1)).isoformat(),
        "amount": "€1,500",
    }
    wrong = operator.post("/ops/budgets", {**form, "amount": "much"})
    assert (wrong.status_code, 'aria-invalid="true"' in wrong.content.decode()) == (422, True)
    page = operator.post("/ops/budgets", form, follow=True).content.decode()
    assert "€1,500.00" in page
    assert "Ask for an approval" not in page
    here = operator.get("/ops/budgets").content.decode().split('href="/ops/budgets/')[1][:36]
    assert "80 % spent or held" in page
    rung = {"add": "1", "measure": "spent", "percent": "90", "action": "notify"}
    added = operator.post(f"/ops/budgets/{here}", {**rung, "audience": "admins"}, follow=True)
    assert "90 % spent" in added.content.decode()
    admin = signed_in(folding, Role.TENANT_ADMIN)
    assert "1,500" not in admin.get("/t/helix/budgets").content.decode()
    assert admin.get(f"/t/helix/budgets/{here}").status_code == 404
    assert admin.get("/ops/budgets").status_code == 404
