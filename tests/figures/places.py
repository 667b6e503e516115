"""The table of figures: each with its scope, its period, and all places that show it.

A place is a page, read by `data-figure`, or a field of REST. `says` are words that the page must
have with the figure: its period, or which part of it was measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from typing import Any

from django.test import Client

from allocation.models import Approval
from allocation.rules.states import PHASES
from billing.models import Budget
from billing.rules import Period, money_text, month_of, period_text
from tenants.models import GpuClass, Project, Tenant, User
from tests.api.builders import Api, said
from tests.figures.shown import Key, figures_of, number_of
from tests.roles import as_system
from tests.web.flat import flat

CENT = Decimal("0.01")
PHASE_NAMES = ("waiting", "scheduled", "running", "paused")


@dataclass
class World:
    """A site as its admin and its operator see it; pages and answers are read once."""

    tenant: Tenant
    admin: User
    operator: User
    admin_api: Api
    operator_api: Api
    now: datetime
    _pages: dict[str, str] = field(default_factory=dict)

    def page(self, address: str) -> str:
        """A page; those of operators begin with `/ops/`."""
        if address not in self._pages:
            client = Client()
            client.force_login(self.operator if address.startswith("/ops/") else self.admin)
            response = client.get(address)
            assert response.status_code == 200, (address, response.status_code)
            self._pages[address] = response.content.decode()
        return self._pages[address]

    def on(self, address: str, figure: str, of: str = "", tenant: str = "") -> Decimal:
        """A figure of a page."""
        key: Key = (figure, of, tenant)
        found = figures_of(self.page(address))
        assert key in found, (address, key, sorted(found))
        return number_of(found[key])

    def says(self, address: str, *words: str) -> None:
        """The page has these words."""
        page = flat(self.page(address))
        for each in words:
            assert each in page, (address, each)

    @cached_property
    def base(self) -> str:
        """The address of the organisation."""
        return f"/t/{self.tenant.slug}"

    @cached_property
    def projects(self) -> list[Project]:
        """Those of the organisation."""
        with as_system():
            return list(Project.objects.filter(tenant=self.tenant).order_by("slug"))

    @cached_property
    def budgets(self) -> list[Budget]:
        """Those of today."""
        today = self.now.astimezone(UTC).date()
        with as_system():
            rows = Budget.objects.filter(tenant=self.tenant, starts__lte=today, ends__gt=today)
            return list(rows.select_related("project").order_by("id"))

    @cached_property
    def month(self) -> str:
        """`2026-11`."""
        return f"{self.now.astimezone(UTC):%Y-%m}"

    @cached_property
    def bookings(self) -> list[dict[str, Any]]:
        """All bookings of the organisation over REST."""
        return self._listed("bookings")

    def _listed(self, path: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            page = said(self.admin_api.get(path, limit="200", **query, **after))
            found += page["items"]
            if not page.get("next"):
                return found
            after = {"cursor": page["next"]}

    @cached_property
    def of_operator(self) -> dict[str, Any]:
        """The organisation in the operators' list over REST."""
        rows = said(self.operator_api.get("fleet/tenants"))["items"]
        return next(row for row in rows if row["slug"] == self.tenant.slug)

    @cached_property
    def budgets_rest(self) -> Mapping[str, dict[str, Any]]:
        """Budgets of the month over REST, by id."""
        return {row["id"]: row for row in said(self.admin_api.get("budgets"))["items"]}

    @cached_property
    def forecasts_rest(self) -> Mapping[str, dict[str, Any]]:
        """Forecasts over REST, by budget."""
        return {row["budget"]: row for row in said(self.admin_api.get("forecasts"))["items"]}


Places = dict[str, Decimal]


@dataclass(frozen=True)
class Figure:
    """A figure: whose, of which time, and what all of its places show."""

    name: str
    scope: str
    period: str
    places: Callable[[World], list[Places]]
    rounded: Decimal = CENT


def cents(amount: object) -> Decimal:
    """An amount as pages round it."""
    return Decimal(str(amount)).quantize(CENT, rounding=ROUND_HALF_EVEN)


def in_cents(budget: Mapping[str, str]) -> dict[str, Decimal]:
    """The exact amounts of a budget as pages show them: in cents that add up to its amount."""
    spent, held = cents(budget["spent"]), cents(budget["held"])
    amount = cents(sum((Decimal(budget[name]) for name in ("spent", "held", "left")), Decimal(0)))
    return {"spent": spent, "held": held, "left": amount - spent - held, "amount": amount}


def _phases(world: World) -> list[Places]:
    """Open bookings of the organisation, by what pages call their states."""
    world.says("/ops/tenants", "scheduled")
    pages = [f"{world.base}/p/{each.slug}" for each in world.projects]
    found = []
    for name in PHASE_NAMES:
        is_shown = name != "paused" or bool(world.of_operator["paused"])
        rows = sum(each["state"] in PHASES[name] for each in world.bookings)
        on_projects = [figures_of(world.page(page)).get((name, "", ""), "0") for page in pages]
        places = {
            "REST bookings": Decimal(rows),
            "REST fleet/tenants": Decimal(world.of_operator[name]),
            "project pages": sum(map(number_of, on_projects), Decimal(0)),
        }
        if is_shown:
            places["/ops/tenants"] = world.on("/ops/tenants", name, tenant=world.tenant.slug)
        found.append(places)
    return found


def _waiting(world: World) -> list[Places]:
    """Bookings that wait, of all organisations."""
    rows = figures_of(world.page("/ops/tenants")).items()
    of_all = sum((number_of(text) for (name, _, _), text in rows if name == "waiting"), Decimal(0))
    return [{"/ops/tenants": of_all, "/ops/overview": world.on("/ops/overview", "waiting")}]


def _in_use_of_all(world: World) -> list[Places]:
    """GPUs in use now, of all organisations, as quotas count them."""
    rows = figures_of(world.page("/ops/tenants")).items()
    of_all = sum((number_of(text) for (name, _, _), text in rows if name == "in-use"), Decimal(0))
    pages = ("/ops/overview", "/ops/fleet")
    return [{"/ops/tenants": of_all, **{page: world.on(page, "in-use") for page in pages}}]


def _budgets(world: World) -> list[Places]:
    """The budgets of which an alert can be reached."""
    tree = f"{world.base}/budgets"
    return [{tree: world.on(tree, "budgets"), "all": Decimal(len(world.budgets))}]


def _budget(name: str) -> Callable[[World], list[Places]]:
    def places(world: World) -> list[Places]:
        tree = f"{world.base}/budgets"
        found = []
        for each in world.budgets:
            key, page = str(each.id), f"{world.base}/budgets/{each.id}"
            world.says(page, period_text(Period(each.starts, each.ends)))
            row = {
                tree: world.on(tree, name, key),
                page: world.on(page, name),
                "REST budgets": in_cents(world.budgets_rest[key])[name],
            }
            if each.level == "project" and each.project is not None:
                project = f"{world.base}/p/{each.project.slug}"
                row[project] = world.on(project, name)
                world.says(project, f"Budget for {period_text(Period(each.starts, each.ends))}")
            found.append(row)
        return found

    return places


def _committed(world: World) -> list[Places]:
    return [
        {
            "REST forecasts": cents(world.forecasts_rest[str(each.id)]["committed"]),
            "REST budgets": cents(
                Decimal(world.budgets_rest[str(each.id)]["spent"])
                + Decimal(world.budgets_rest[str(each.id)]["held"])
            ),
        }
        for each in world.budgets
    ]


def _forecast(world: World) -> list[Places]:
    """At the end of the budget's days, never below what is spent and held."""
    found = []
    for each in world.budgets:
        page, rest = f"{world.base}/budgets/{each.id}", world.forecasts_rest[str(each.id)]
        row = {page: world.on(page, "forecast"), "REST forecasts": cents(rest["spend"] or 0)}
        assert rest["spend"] is None or Decimal(rest["spend"]) >= Decimal(rest["committed"])
        if rest["spend"] is not None:
            row["CSV of days"] = cents(_csv_forecast(world, page))
        if each.level == "project" and each.project is not None and rest["spend"] is not None:
            project = f"{world.base}/p/{each.project.slug}"
            row[project] = world.on(project, "forecast")
        found.append(row)
    return found


def _csv_forecast(world: World, page: str) -> str:
    last = world.page(f"{page}/days.csv").strip().splitlines()[-1].split(",")
    assert last[-1] == "forecast"
    return last[2]


def _charged(world: World) -> list[Places]:
    """Since the month (UTC) began."""
    statement, month = f"{world.base}/statements", world.month
    world.says("/ops/tenants", "since the month (UTC) began")
    world.says(statement, period_text(month_of(world.now.astimezone(UTC).date())))
    return [
        {
            "/ops/tenants": world.on("/ops/tenants", "spent", tenant=world.tenant.slug),
            "REST fleet/tenants": cents(world.of_operator["spent"]),
            statement: world.on(statement, "charged"),
            "REST statements": cents(said(world.admin_api.get("statements", month=month))["exact"]),
        }
    ]


def _held_in_all(world: World) -> list[Places]:
    """Of all open bookings, also for days after this month: what all budgets of projects hold."""
    world.says("/ops/tenants", "held, all months")
    years = {"starts": "2000-01-01", "ends": "2100-01-01", "level": "project"}
    rows = said(world.admin_api.get("budgets", **years))["items"]
    held = sum((Decimal(each["held"]) for each in rows), Decimal(0))
    return [
        {
            "/ops/tenants": world.on("/ops/tenants", "held", tenant=world.tenant.slug),
            "REST fleet/tenants": cents(world.of_operator["held"]),
            "REST budgets": cents(held),
        }
    ]


def _in_use(world: World) -> list[Places]:
    """GPUs of each class now, of each project and of the organisation."""
    quotas, labs = f"{world.base}/quotas", f"{world.base}/labs"
    found: list[Places] = []
    total = Decimal(0)
    with as_system():
        classes = list(GpuClass.objects.values_list("slug", flat=True))
    for name in classes:
        shown = figures_of(world.page(labs))
        key = f"{name} {world.tenant.id}"
        if ("in-use", key, "") not in shown:
            continue
        total += world.on(labs, "in-use", key)
        row = {labs: world.on(labs, "in-use", key)}
        if ("in-use", key, "") in figures_of(world.page("/ops/quotas")):
            row["/ops/quotas"] = world.on("/ops/quotas", "in-use", key)
        found.append(row)
        for project in world.projects:
            of, page = f"{name} {project.id}", f"{world.base}/p/{project.slug}"
            places = {labs: world.on(labs, "in-use", of)}
            for address, key in ((quotas, of), (page, name)):
                if ("in-use", key, "") in figures_of(world.page(address)):
                    places[address] = world.on(address, "in-use", key)
            found.append(places)
    of_all = {
        "/ops/tenants": world.on("/ops/tenants", "in-use", tenant=world.tenant.slug),
        "REST fleet/tenants": Decimal(str(world.of_operator["gpus_used"])),
        labs: total,
        f"{world.base}/fleet": world.on(f"{world.base}/fleet", "in-use"),
    }
    return [*found, of_all]


def _unused(world: World) -> list[Places]:
    """Of the month; only of what nodes have measured."""
    rest = said(world.admin_api.get("held-use", month=world.month))
    assert Decimal(rest["held_hours"]) >= Decimal(rest["hours"]) >= Decimal(rest["unused_hours"])
    if not Decimal(rest["hours"]):
        return []
    statement = f"{world.base}/statements"
    held, measured = (f"{Decimal(rest[name]):,.1f}" for name in ("held_hours", "hours"))
    world.says(statement, f"{measured} of {held} held GPU-hours were measured")
    return [
        {
            statement: world.on(statement, "unused-hours"),
            "REST held-use": round(Decimal(rest["unused_hours"]), 1),
        },
        {
            statement: world.on(statement, "unused-cost"),
            "REST held-use": cents(rest["unused_cost"]),
        },
    ]


def _histories(world: World) -> list[Places]:
    """Of the asker in the project, in the last 90 days."""
    with as_system():
        rows = list(Approval.objects.filter(tenant=world.tenant, state="open"))
    for each in rows:
        rest = said(world.admin_api.get(f"approvals/{each.id}"))["history"]
        page = f"{world.base}/approvals/{each.id}"
        assert Decimal(rest["gpu_hours"]) >= Decimal(rest["measured_gpu_hours"])
        assert bool(Decimal(rest["charged"])) <= bool(Decimal(rest["gpu_hours"]))
        world.says(page, f"{money_text(Decimal(rest['charged']), 'EUR')} charged")
        if Decimal(rest["gpu_hours"]):
            world.says(page, f"{Decimal(rest['gpu_hours']):,.1f} GPU-hours")
    return []


FIGURES = (
    Figure("open bookings", "organisation", "now", _phases, Decimal(1)),
    Figure("waiting bookings", "site", "now", _waiting, Decimal(1)),
    Figure("budgets", "organisation", "this month (UTC)", _budgets, Decimal(1)),
    Figure("spent", "budget", "the budget's days", _budget("spent")),
    Figure("held", "budget", "the budget's days", _budget("held")),
    Figure("left", "budget", "the budget's days", _budget("left")),
    Figure("spent and held", "budget", "the budget's days", _committed),
    Figure("forecast", "budget", "the end of the budget's days", _forecast),
    Figure("charged", "organisation", "this month (UTC) until now", _charged),
    Figure("held", "organisation", "all days of open bookings", _held_in_all),
    Figure("GPUs in use", "owner and class", "now", _in_use, Decimal("0.002")),
    Figure("GPUs in use", "site", "now", _in_use_of_all, Decimal("0.004")),
    Figure("reserved but unused", "organisation", "this month, as far as measured", _unused, Decimal("0.1")),
    Figure("history of a person", "person in a project", "90 days until now", _histories),
)


def differences(world: World) -> list[str]:
    """The figures that two places show differently: they may differ by less than the last digit
    that is shown."""
    wrong = []
    for figure in FIGURES:
        for places in figure.places(world):
            if max(places.values()) - min(places.values()) >= figure.rounded:
                shown = ", ".join(f"{name}: {value}" for name, value in places.items())
                wrong.append(f"{figure.name} of the {figure.scope}, {figure.period}: {shown}")
    return wrong
