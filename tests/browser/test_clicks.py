"""How many clicks the jobs of admins and operators take from their home, in a real browser.

Typing and choosing from a list are done by keys and are not counted. The bounds are three clicks for an
admin's job, and two for an operator who asks why a booking waits.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import chromium, sign_in
from tests.browser.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.turn]


class Clicks:
    """A page on which each click is counted."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def link(self, name: str) -> None:
        """Follows a link of the menu or of the page."""
        self._click("link", name)

    def button(self, name: str) -> None:
        """Presses a button."""
        self._click("button", name)

    def _click(self, role: str, name: str) -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]
        self.page.wait_for_load_state()
        self.count += 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def _home(browser: Browser, running: Site, role: str) -> Clicks:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    sign_in(page, running, running.people[role])
    return Clicks(page)


def test_an_admin_invites_a_lead_in_two_clicks(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "tenant_admin")
    did.link("People")
    did.page.locator("[name=to]").fill("noor@example.org")
    did.page.get_by_label("Role").first.select_option(label="Project lead")
    did.button("Invite")
    expect(did.page.get_by_text("noor@example.org").first).to_be_visible()
    assert did.count <= 2


def test_an_admin_has_a_budget_alert_at_80_percent_in_two_clicks(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "tenant_admin")
    did.link("Budgets")
    # The alert at 80 % and its recipients are chosen already.
    expect(did.page.get_by_label("80 % spent or held")).to_be_checked()
    form = did.page.locator("form", has=did.page.get_by_role("button", name="Set the budget"))
    form.get_by_label("For", exact=True).select_option(index=2)
    form.locator("[name=starts]").fill("2031-03-01")
    form.locator("[name=last]").fill("2031-03-31")
    form.locator("[name=amount]").fill("900")
    did.button("Set the budget")
    expect(did.page.locator("h1")).to_be_visible()
    expect(did.page.locator(".field-error, .refusal")).to_have_count(0)
    assert did.count <= 3


def test_an_admin_saves_a_quota_in_two_clicks(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "tenant_admin")
    did.link("Quotas")
    field = did.page.locator("[name='borrow:l40s:cryo-em']")
    field.fill("3")
    did.button("Save quotas")
    expect(did.page.locator("[name='borrow:l40s:cryo-em']")).to_have_value("3")
    assert did.count <= 3


def test_an_admin_sees_the_bill_by_project_in_one_click(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "tenant_admin")
    did.link("Statements")
    expect(did.page.get_by_role("link", name="Project", exact=True)).to_have_attribute("aria-current", "page")
    expect(did.page.get_by_role("table").first.get_by_role("columnheader", name="Project")).to_be_visible()
    assert did.count == 1


def test_an_admin_says_who_approves_in_three_clicks(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "tenant_admin")
    did.link("Settings")
    did.link("Approval rules")
    did.page.locator("[name=name]").fill("More than 6 GPUs")
    did.page.locator("[name=min_gpus]").fill("7")
    did.button("Add the rule")
    expect(did.page.get_by_text("More than 6 GPUs").first).to_be_visible()
    assert did.count <= 3


def test_an_operator_sees_why_a_booking_waits_in_two_clicks(browser: Browser, running: Site) -> None:
    did = _home(browser, running, "operator")
    did.link("Bookings")
    row = did.page.locator("tr", has=did.page.get_by_text("waiting", exact=False)).last
    expect(row).to_be_visible()
    row.get_by_role("link").first.click()
    did.count += 1
    expect(did.page.get_by_role("heading", name="Why").first).to_be_visible()
    assert did.count <= 2
