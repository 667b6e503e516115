"""The panel that books, and a site on which it finds prices and GPUs."""

import re
from datetime import timedelta
from decimal import Decimal

from django.test import Client
from django.utils import timezone

from allocation.models import Booking, PolicyVersion
from billing.rules import Period, month_of
from billing.services import budget_set
from tenants.models import Membership
from tests.builders import a_member, a_project, a_quota, a_tier
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_node

OPTION = re.compile(r'name="option" value="([^"]+)"')
KEY = re.compile(r'name="key" value="([0-9a-f]{32})"')


def panel_site(amount: str = "1000", period: Period | None = None) -> Membership:
    """A researcher with a budget and four free H100 with a price. Without a period the budgets are those
    of two months."""
    now = timezone.now()
    project = a_project(name="Protein folding")
    member = a_member(project)
    a_node(now=now, gpus=4)
    a_quota(member.tenant, guaranteed=4, limit=4)
    a_tier("standard", priority=200)
    a_tier("spot", priority=100, pausable=True)
    with as_system():
        PolicyVersion.objects.get_or_create(
            state=PolicyVersion.State.LIVE, defaults={"number": 1, "document": {}, "created": now}
        )
        prices = {("h100", "standard"): Decimal("4.80"), ("h100", "spot"): Decimal("1.68")}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
        months = [month_of((now + timedelta(days=more)).date()) for more in (0, 31)]
        for each in [period] if period else months:
            budget_set(actor_id=None, project=project, period=each, amount=Decimal(amount), now=now)
    return member


def panel_client(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def asked(member: Membership, **query: str) -> str:
    response = panel_client(member).get(f"/t/{member.tenant.slug}/book", query)
    assert response.status_code == 200
    return flat(response.content.decode())


def form_of(member: Membership, page: str) -> dict[str, str]:
    option, key = OPTION.search(page), KEY.search(page)
    assert option is not None
    assert key is not None
    assert member.project is not None
    return {"option": option[1], "key": key[1], "project": member.project.slug, "name": "run-1"}


def bookings_of(member: Membership) -> list[Booking]:
    with as_system():
        return list(Booking.objects.filter(tenant=member.tenant))
