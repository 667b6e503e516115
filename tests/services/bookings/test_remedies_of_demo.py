"""What works instead of a request that breaks many rules at once, by the tiers, quotas, budgets and notice of
the demo."""

from datetime import UTC, datetime, timedelta

import pytest

from allocation.services.bookings.checks.admission import Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.remedies import request_of
from devtools.demo.nodes import nodes_enrol
from devtools.demo.people import people_seed
from devtools.demo.site import catalogue_seed
from tenants.models import Project, Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import an_ask
from tests.roles import as_owner
from tests.servers.servers import Servers

DAY = timedelta(days=1)
NOW = datetime(2026, 11, 29, 13, 26, 1, tzinfo=UTC)


@pytest.mark.turn
def test_every_request_beyond_the_rules_of_the_demo_is_offered_something(real_db: Servers) -> None:
    """Too many GPUs, for too long, too far ahead, into a month without a budget, for more than the person's
    budget has left: each offer is admitted."""
    with as_owner():
        catalogue_seed(NOW - 8 * DAY)
        people_seed(NOW.date(), NOW - 8 * DAY)
        nodes_enrol(NOW - 8 * DAY)
        tenant = Tenant.objects.get(slug="helix")
        mara = User.objects.get(username="mara").pk
    with tenant_tx(tenant.id):
        project = Project.objects.get(slug="protein-folding")

    def check(tier: str, count: int, days: int, offer: dict[str, object] | None = None) -> None:
        ask = an_ask(count, hours=24 * days, starts=NOW + 40 * DAY)
        ask = request_of(offer or {}, ask)
        with tenant_tx(tenant.id):
            admission_check(project=project, tier_slug=tier, ask=ask, now=NOW, asker=Asker(mara))

    for tier, count, days in (("standard", 9, 20), ("assured", 9, 20), ("standard", 2, 20), ("spot", 9, 2)):
        with pytest.raises(Refused) as refused:
            check(tier, count, days)
        offers = [dict(each) for each in refused.value.alternatives]
        assert offers, (tier, count, days)
        for each in offers:
            check(str(each.get("tier", tier)), count, days, each)
