"""No page cuts what somebody typed: a text that is too long is refused."""

from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from django.db import transaction
from django.test import Client
from pytest_django import Settings

from tenants.models import AuditEntry
from tests.api.builders import Site, a_site, said
from tests.roles import as_system
from tests.web.acts import Act
from tests.web.crawl import filled
from tests.web.operator_acts import ACTS, PLACES

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
TEXTS = ("label", "name", "note", "reason", "text", "waiver")
# Longer than the longest text that the portal keeps.
LONG = "long " * 5000
BOOK = {"q": "1 h100 1h", "option": "standard 1 h100 1h", "key": "0" * 32}


@pytest.fixture
def site(db: None, settings: Settings) -> Site:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    return a_site()


def signed_in(site: Site, person: str) -> Client:
    client = Client()
    client.force_login(site.people[person])
    return client


def fields() -> Iterator[tuple[str, str, Act]]:
    for key, act in ACTS.items():
        if key.startswith("ops/"):
            yield from ((key, name, act) for name in TEXTS if name in act.values)


def test_no_page_of_operators_cuts_a_text(site: Site) -> None:
    tried = list(fields())
    assert len(tried) > 10
    assert {(key, name): cut for key, name, act in tried if (cut := _cut(site, key, name, act))} == {}


def _cut(site: Site, key: str, field: str, act: Act) -> str:
    """What the log kept of the text, if that is a part of it."""
    with transaction.atomic():
        with as_system():
            values = PLACES | act.values | act.made(site) | {field: LONG}
        route, _, named = key.partition(" ")
        path = filled(route, {name: str(value) for name, value in values.items()}, "x")
        form = values | ({"act": named} if named else {}) | {"sure": "1"}
        with as_system():
            last = max([0, *AuditEntry.objects.values_list("id", flat=True)])
        status = signed_in(site, "operator").post(f"/{path}", form).status_code
        with as_system():
            entries = AuditEntry.objects.filter(id__gt=last).values_list("detail", flat=True)
            kept = " ".join(map(str, entries))
        transaction.set_rollback(True)
    return f"{status}" if LONG.strip() not in kept and (status < 400 or "long long" in kept) else ""


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("budgets/campaigns", {"name": "c" * 81}),
        ("book", {"name": "n" * 81, **BOOK}),
        ("book", {"work": "w" * 64, **BOOK}),
    ],
)
def test_a_name_of_a_member_is_refused_with_its_bound(site: Site, path: str, form: dict[str, str]) -> None:
    sent = {"project": site.project.slug, **form}
    answer = signed_in(site, "lead").post(f"/t/{site.tenant.slug}/{path}", sent)
    refusal = answer.context.get("refusal") or answer.context.get("campaign_refusal")
    assert refusal is not None
    assert (answer.status_code, refusal.code) == (422, "too_long")
    assert f"at most {80 if 'name' in form else 63} are allowed." in refusal.sentence


def test_the_workload_of_a_booking_is_refused_as_long_as_rest_refuses_it(site: Site) -> None:
    body = {"request": "1 h100 1h", "project": site.project.slug}
    label = said(site.researcher.post("bookings", body))["number"]
    path = f"/t/{site.tenant.slug}/bookings/{label}/workload"
    answer = signed_in(site, "researcher").post(path, {"name": "w" * 64})
    assert (answer.status_code, answer.context["refusal"].code) == (409, "too_long")
    assert site.researcher.put(f"bookings/{label}/workload", {"name": "w" * 64}).status_code == 422
    assert signed_in(site, "researcher").post(path, {"name": "w" * 63}).status_code == 302
