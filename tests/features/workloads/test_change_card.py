"""What to change, on the page of figures: advice on the workloads that cost most."""

import re

import pytest
from django.test import Client

from tests.api.builders import Site
from tests.features.workloads.builders import Ran, ran
from tests.features.workloads.series import KINDS
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


def page(site: Site, person: str, query: str = "") -> str:
    client = Client()
    client.force_login(site.people[person])
    return flat(client.get(f"/t/{site.tenant.slug}/insights?part=cards{query}").content.decode())


def test_the_dearest_workloads_stand_first_with_their_advice(site: Site) -> None:
    """Not those without advice, whatever they cost."""
    owner = int(site.people["researcher"].pk)
    for number in range(2):
        for name, paid, kind, ago in (
            ("small", "2", "input", 24),
            ("large", "9", "input", 48),
            ("fine", "9.5", "compute", 72),
        ):
            rows = (KINDS[kind],)
            ran(site.project, owner, Ran(f"{name}-{number}", rows=rows, paid=paid, ago=ago + 3 * number))
    found = page(site, "lead")
    card = found[found.index("what-to-change") :]
    assert card.index("large") < card.index("small")
    assert "€18.00 in 2 runs" in card
    assert "Waits for input" in card
    assert "fine" not in card[: card.index("small")]
    assert "what-to-change" in page(site, "lead", f"&project={site.project.slug}")
    first = re.search(r'id="insight-cards"> ?<section class="card" id="([a-z-]+)"', found)
    assert first is not None
    assert first[1] == "what-to-change", "a link of the page of figures leads to it"


def test_without_advice_there_is_no_card(site: Site) -> None:
    ran(site.project, int(site.people["researcher"].pk), Ran("first-1", rows=(KINDS["input"],)))
    assert "what-to-change" not in page(site, "lead")


def test_the_page_of_figures_fetches_the_cards_later_for_the_same_question(site: Site) -> None:
    client = Client()
    client.force_login(site.people["lead"])
    ran(site.project, int(site.people["researcher"].pk), Ran("first-1", rows=(KINDS["input"],)))
    found = flat(client.get(f"/t/{site.tenant.slug}/insights?project={site.project.slug}").content.decode())
    address = f"/t/{site.tenant.slug}/insights?project={site.project.slug}&amp;part=cards"
    assert f'data-live-url="{address}"' in found
    assert f'href="{address}">What to change, demand and capacity</a>' in found
    assert 'id="insight-cards"' in page(site, "lead", f"&project={site.project.slug}")
