"""An operator has running work moved together, in a real browser."""

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, expect

from allocation.models import CompactionOrder
from tests.browser.chromium import chromium
from tests.builders import an_operator
from tests.roles import as_system
from tests.web.fleet.test_compaction_page import a_full_site

pytestmark = [pytest.mark.browser, pytest.mark.turn]


def test_one_press_orders_the_move_that_is_shown(live_portal: str) -> None:
    a_full_site()
    client = Client()
    client.force_login(an_operator())
    name = settings.SESSION_COOKIE_NAME
    cookie = {"name": name, "value": client.cookies[name].value, "url": live_portal}
    # Nothing here speaks to the database while the browser is open: it would be in its loop.
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
        context.add_cookies([cookie])  # type: ignore[list-item]  # as Playwright reads it
        pressed(context.new_page(), live_portal)
    with as_system():
        assert CompactionOrder.objects.filter(decided_at=None).count() == 1


def pressed(page: Page, address: str) -> None:
    page.goto(f"{address}/ops/compaction")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("earlier")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Move 1 booking for").click()
    expect(page.get_by_text("Waiting for the next decision")).to_be_visible()
