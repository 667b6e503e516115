"""Every act of operators stands in the platform's log, with its values and where it came from.

The acts are found in the URL configuration, on the pages and among the commands; one that is not in
`tests.web.operator_acts` fails here.
"""

import inspect
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.core.management import call_command, get_commands
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from portal.storage.audit_sources import audit_seal_all
from tenants.api.endpoints import Endpoint
from tenants.models import AuditEntry
from tenants.rules.audit_words import ACTIONS, Labels, is_uuid_text, object_name
from tests.api.builders import Site, a_site
from tests.roles import as_system
from tests.web.acts import Act
from tests.web.crawl import filled, routes, views
from tests.web.operator_acts import ACTS, AS_ANOTHER, ASKING, PLACES
from tests.web.operator_sites import Values, contested, my_draft, on_trial, with_platform_budget
from tests.web.view_acts import with_view
from tests.web.webhook_acts import with_webhook

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
ADDRESS = "203.0.113.9"
NO_ID = "00000000-0000-0000-0000-000000000000"
UNSAFE = ("post", "put", "patch", "delete")
OWN_COMMANDS = ("allocation", "portal", "tenants", "billing")
# A backup changes nothing; a restore, which needs a database of its own: faults/.
READING_COMMANDS = {
    # They make the first operator, the token of one, or a whole site, with entries of their own.
    "bootstrap",
    "createoperator",
    "operator_token",
    "backup",
    "restore",
    # By the owner of the tables, before anybody can sign in.
    "migrate",
    # By the owner of the tables, who writes a list of files of its own.
    "archive",
    "audit_verify",
    "decision_replay",
    "invariants",
    # What other clusters ran: it changes nothing here.
    "import_history",
    "notebook_proxy",
    "reports_reader",
    "webhooks_sender",
}


@pytest.fixture
def site(db: None, settings: Settings) -> Site:
    """One that has every price, so that a page can publish others."""
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    return a_site()


def test_every_act_of_operators_is_in_the_log_with_its_values_and_address(site: Site) -> None:
    found = {*_page_acts(site), *_rest_acts(), *_commands()} - ASKING - AS_ANOTHER
    assert (sorted(found - ACTS.keys()), sorted(ACTS.keys() - found)) == ([], [])
    wrong = {}
    for key, act in ACTS.items():
        with transaction.atomic():
            wrong[key] = _fault(site, key, act)
            # Each act meets the same site.
            transaction.set_rollback(True)
    assert {key: fault for key, fault in wrong.items() if fault} == {}
    assert {act.action for act in ACTS.values()} <= ACTIONS.keys()
    again = ACTS["ops/tiers set"]
    _done(site, "ops/tiers set", again, _values(site, again))
    with as_system():
        assert audit_seal_all(timezone.now()) > 0
        call_command("audit_verify", stdout=io.StringIO())


def _fault(site: Site, key: str, act: Act) -> str:
    """What is wrong with the entry of the act; empty when nothing is."""
    values = _values(site, act)
    last = _last()
    answer = _done(site, key, act, values)
    with as_system():
        entries = list(AuditEntry.objects.filter(tenant=None, id__gt=last))
    # Some forms do several things, each with an entry.
    entry = next((each for each in entries if each.action == act.action), None)
    if entry is None:
        return f"{[each.action for each in entries]}, answered {answer}"
    address = None if key.startswith("manage.py") else ADDRESS
    said = {
        "who": entry.actor_id == site.people["operator"].id,
        "on what": entry.object_kind == act.kind and bool(entry.object_id),
        "before": bool(entry.detail["before"]) == act.has_before,
        "after": bool(entry.detail.get("after")) == act.has_after,
        "a change": entry.detail.get("after") != entry.detail["before"],
        "a name": not is_uuid_text(
            object_name(entry.object_kind, entry.object_id, entry.detail, Labels({}, {}))
            if "{object}" in ACTIONS[act.action]
            else ""
        ),
        "from where": entry.detail.get("address") == address,
        "when": abs(entry.at - timezone.now()) < timedelta(minutes=1),
    }
    return ", ".join(part for part, holds in said.items() if not holds)


def _values(site: Site, act: Act) -> Values:
    with as_system():
        return PLACES | act.values | act.made(site)


def _done(site: Site, key: str, act: Act, values: Values) -> str:
    if key.startswith("manage.py"):
        return _command(key.partition(" ")[2], act.values)
    method, _, route = key.rpartition(" ") if "api/v1" in key else ("", "", key.partition(" ")[0])
    path = filled(route, {name: str(value) for name, value in values.items()}, "x")
    sent = {name: value for name, value in values.items() if name in act.values}
    if method:
        return _rest(site, method, path, sent, values)
    named = key.partition(" ")[2]
    form = values | ({"act": named} if named else {}) | {"sure": "1"}
    client = Client(REMOTE_ADDR=ADDRESS)
    client.force_login(site.people["operator"])
    answer = client.post(f"/{path}", form)
    refusal = answer.context.get("refusal") if answer.context else None
    return f"{answer.status_code} {refusal}"


def _rest(site: Site, method: str, path: str, sent: Values, values: Values) -> str:
    body = sent | {name: values[name] for name in ("proposal",) if name in values}
    client = Client(REMOTE_ADDR=ADDRESS)
    answer = client.generic(
        method.upper(),
        f"/{path}",
        json.dumps(body) if body else "",
        content_type="application/json",
        headers={"authorization": f"Bearer {site.operator.token}"},
    )
    return f"{answer.status_code} {answer.content[:300]!r}"


def _command(name: str, values: Mapping[str, Any]) -> str:
    with as_system():
        out = io.StringIO()
        entries = values.get("entries", ())
        named = {key: value for key, value in values.items() if key != "entries"}
        call_command(name, *entries, **named, operator="otto", stdout=out)
    return out.getvalue()


def _last() -> int:
    with as_system():
        return AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0


def _page_acts(site: Site) -> Iterator[str]:
    """Operators' pages that take a POST; of those with several forms, each act."""
    client = Client()
    client.force_login(site.people["operator"])
    with as_system():
        draft = {"draft_id": my_draft(site)["draft_id"], **with_platform_budget(site)}
        draft |= with_webhook(site) | on_trial(site) | contested(site) | with_view(site)
    for route in sorted(set(routes())):
        if not route.startswith("/ops/"):
            continue
        path = filled(
            route, PLACES | dict.fromkeys(("maintenance_id", "stop_id", "booking_id"), NO_ID) | draft, "x"
        )
        if "POST" not in client.generic("PATCH", path)["Allow"]:
            continue
        with transaction.atomic():
            answer = client.post(path, {"act": "?", "sure": "1"})
            transaction.set_rollback(True)
        refusal = (answer.context or {}).get("refusal")
        if refusal is not None and refusal.code == "unknown_act":
            yield from (f"{route[1:]} {each['act']}" for each in refusal.alternatives)
        else:
            yield route[1:]


def _rest_acts() -> Iterator[str]:
    """REST's unsafe methods that ask for an operator, there or in what they call."""
    for route, callback in views():
        view = getattr(callback, "cls", None)
        for method in UNSAFE:
            handler = getattr(view, method, None)
            if view is not None and handler is not None and _asks_for_operator(view, handler):
                yield f"{method} {route[1:]}"


def _asks_for_operator(view: type, handler: Callable[..., Any]) -> bool:
    if issubclass(view, Endpoint):
        declared = inspect.getsource(inspect.getclosurevars(handler).nonlocals["handler"])
        return view.for_operators or "require_operator()" in declared or "is_for_operator()" in declared
    source = inspect.getsource(handler)
    helpers = [
        inspect.getsource(each)
        for name, each in inspect.getmembers(view, inspect.isfunction)
        if f"self.{name}(" in source
    ]
    return any("require_operator()" in each for each in (source, *helpers))


def _commands() -> Iterator[str]:
    for name, app in get_commands().items():
        if app in OWN_COMMANDS and name not in READING_COMMANDS:
            yield f"manage.py {name}"
