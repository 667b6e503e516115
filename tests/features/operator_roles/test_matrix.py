"""Each page and each REST route of operators belongs to an area, and each role gets what its row says."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import transaction
from django.test import Client
from pytest_django import Settings

from tenants.api.auth import Caller
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoint
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.rules.operator_roles import ROLES, Area, Grant, Rights
from tests.api.builders import Site, a_site, a_token
from tests.builders import a_tenant_admin, actor_now, an_operator
from tests.roles import as_system
from tests.web.crawl import filled, views
from tests.web.operator_acts import ACTS, PLACES

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
SAFE = ("get", "head")
METHODS = ("get", "post", "put", "patch", "delete")
NAME = re.compile(r"<(\w+):\w+>")
DEFAULTS = {"uuid": "00000000-0000-0000-0000-000000000000", "int": "1", "slug": "x", "str": "x"}
# Area -> roles that read, roles that act; all as words, so that a change of the product's table shows.
TABLE = {
    "own": ("site class pool read_only billing support", "site class pool read_only billing support"),
    "overview": ("site class pool read_only billing support", "site"),
    "nodes": ("site class pool read_only support", "site class pool"),
    "fleet": ("site class pool read_only support", "site"),
    "bookings": ("site class pool read_only billing support", "site support"),
    "appeals": ("site read_only support", "site support"),
    "disputes": ("site read_only billing support", "site billing support"),
    "rules": ("site class pool read_only support", "site"),
    "money": ("site read_only billing support", "site billing"),
    "people": ("site read_only support", "site"),
    "access": ("site read_only support", "site support"),
    "system": ("site read_only support", "site"),
    "log": ("site read_only support", "site"),
    "roles": ("site read_only support", "site"),
}
# First part of the address below /ops/ -> area.
PAGES = {
    "own": "inbox search views",
    "overview": "overview insights insights.csv",
    "nodes": "fleet maintenance nodes",
    "fleet": "capacity clusters compaction engines install machines mix mix.csv zones",
    "bookings": "bookings decisions timeline",
    "appeals": "appeals",
    "disputes": "disputes",
    "rules": "catalogue dated-guarantees limit-cuts overrides policy quotas requirements speeds stops"
    " tier-guarantees tiers",
    "money": "budgets corrections prices",
    "people": "accounts announcements tenants",
    "access": "access",
    "system": "clock failed-messages portal setup webhooks",
    "log": "log log.csv",
    "roles": "roles",
}
# The same for REST.
ROUTES = {
    "own": "operator-notifications platform-views",
    "overview": "platform-kpis platform-kpi-comparison",
    "nodes": "fleet/nodes fleet/gpus maintenance",
    "fleet": "capacity clusters compaction fleet/engines fleet/enrolments platform-machines"
    " platform-mix platform-tier-energy platform-zones turn-rounds",
    "bookings": "decisions fleet/bookings platform/decisions",
    "appeals": "platform/pause-appeals",
    "disputes": "disputes",
    "rules": "gpu-classes gpu-models overrides policy quota-windows quotas requirements stops tiers"
    " workloads platform/dated-guarantees platform/limit-cuts platform/tier-guarantees",
    "money": "corrections platform-budgets platform-variances price-books",
    "people": "announcements fleet/tenants tenants",
    "access": "operator-access",
    "system": "failed-messages platform-webhooks portal",
    "log": "audit",
    "roles": "operator-roles",
}


@pytest.fixture
def site(db: None, settings: Settings) -> Site:
    """A site, whose webhooks go to this machine."""
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    return a_site()


def test_the_table_of_roles_is_this_one() -> None:
    said = {area: (set(reads.split()), set(acts.split())) for area, (reads, acts) in TABLE.items()}
    found = {
        area.value: (
            {name for name, role in ROLES.items() if area in role.reads},
            {name for name, role in ROLES.items() if area in role.acts},
        )
        for area in Area
    }
    assert found == said


def test_every_page_of_operators_declares_its_area_and_each_role_gets_what_it_says(site: Site) -> None:
    declared: dict[str, Any] = {
        route: getattr(callback, "operator_area", None) for route, callback in _pages()
    }
    assert [route for route, area in declared.items() if not isinstance(area, Area)] == []
    by_word = {word: area for area, words in PAGES.items() for word in words.split()}
    assert {route: area.value for route, area in declared.items()} == {
        route: by_word[route.split("/")[2]] for route in declared
    }
    wrong = []
    for role, user in _people().items():
        client, opened = Client(), set()
        client.force_login(user)
        for route, area in declared.items():
            # Of the areas that are open to the role, one page; of the others, each.
            if (
                role in TABLE[area.value][0].split()
                and area in opened
                and role in TABLE[area.value][1].split()
            ):
                continue
            opened.add(area)
            path = NAME.sub(lambda found: DEFAULTS[found[1]], route)
            for method, act in (("GET", False), ("POST", True)):
                may = role in TABLE[area.value][int(act)].split()
                with transaction.atomic():
                    answer = client.generic(method, path)
                    transaction.set_rollback(True)
                is_refused = answer.status_code == 403
                if answer.status_code != 405 and is_refused == may:
                    wrong.append((role, method, route, answer.status_code))
    assert wrong == []


def test_every_route_of_operators_declares_its_area(site: Site) -> None:
    by_word = {word: area for area, words in ROUTES.items() for word in words.split()}
    found = {}
    for route, view in _rest():
        if any(_asks_for_operator(view, method) for method in METHODS):
            assert view.area is not None, f"{route} declares no area of operators"
            found[route] = view.area.value
    words = {route: route.removeprefix("/api/v1/").split("/") for route in found}
    expected = {route: by_word.get(each[0]) or by_word["/".join(each[:2])] for route, each in words.items()}
    assert found == expected


def test_each_role_reaches_what_its_row_says_and_a_route_without_area_nothing() -> None:
    class Undeclared(ApiView):
        pass

    class Declared(ApiView):
        pass

    for role in ROLES:
        for area, (reads, acts) in TABLE.items():
            Declared.area = Area(area)
            for method, able in (("GET", reads), ("POST", acts), ("PUT", acts), ("DELETE", acts)):
                assert _may(Declared, role, method) == (role in able.split()), (role, area, method)
        with pytest.raises(LookupError, match="Undeclared declares no area"):
            _may(Undeclared, role, "GET")


def test_an_operator_who_only_reads_does_no_act_and_reads_whose_role_it_needs(site: Site) -> None:
    rita = an_operator("rita", "read_only")
    a_tenant_admin(site.tenant, user=rita)
    with as_system():
        token = a_token(actor_now(rita.pk, site.tenant.slug))
    done = {}
    for key, act in ACTS.items():
        # Their own inbox and their own views are everybody's.
        if "api/v1" not in key or "operator-notifications" in key or "platform-views" in key:
            continue
        method, _, route = key.partition(" ")
        with transaction.atomic():
            with as_system():
                values = PLACES | act.values | act.made(site)
            path = filled(route, {name: str(value) for name, value in values.items()}, "x")
            body = {name: values[name] for name in values if name in act.values or name == "proposal"}
            answer = Client().generic(
                method.upper(),
                f"/{path}",
                json.dumps(body) if body else "",
                content_type="application/json",
                headers={"authorization": f"Bearer {token}"},
            )
            transaction.set_rollback(True)
        if answer.status_code != 403 or "Roles are given by" not in answer.content.decode():
            done[key] = (answer.status_code, answer.content[:200])
    assert done == {}


def _may(view: type[ApiView], role: str, method: str) -> bool:
    made = view()
    rights = Rights((Grant(role, ("h100",) if ROLES[role].names else ()),))
    nobody = cast(Any, None)
    caller = Caller(actor=nobody, token_id=nobody, is_operator=True, scopes=frozenset(), rights=rights)
    made.request = cast(Any, SimpleNamespace(auth=caller, method=method))
    try:
        made.require_operator()
    except Refused as refusal:
        return refusal.code != "role_needed"
    return True


def _people() -> dict[str, User]:
    limits = {"class": ("h100",), "pool": ("r1",)}
    return {role: an_operator(f"{role}-operator", role, *limits.get(role, ())) for role in ROLES}


def _pages() -> Iterator[tuple[str, Any]]:
    return ((route, callback) for route, callback in views() if route.startswith("/ops/"))


def _rest() -> Iterator[tuple[str, type[ApiView]]]:
    for route, callback in views():
        view = getattr(callback, "cls", None)
        if view is not None and issubclass(view, ApiView):
            yield route, view


def _asks_for_operator(view: type[ApiView], method: str) -> bool:
    """Whether the method asks for an operator, there, in what it calls, or in the function behind it."""
    handler = getattr(view, method, None)
    if handler is None:
        return False
    if issubclass(view, Endpoint):
        behind = inspect.getclosurevars(handler).nonlocals["handler"]
        return view.for_operators or "require_operator()" in inspect.getsource(behind)
    asked = (".require_operator()", ".is_for_operator()", ".operator_tx()", ".operate(")
    return any(each in source for source in _sources(view, handler) for each in asked)


def _sources(view: type[ApiView], handler: Callable[..., Any]) -> Iterator[str]:
    source = inspect.getsource(handler)
    yield source
    for name, each in inspect.getmembers(view, inspect.isfunction):
        if f"self.{name}(" in source and each.__module__ != "tenants.api.base":
            yield inspect.getsource(each)
