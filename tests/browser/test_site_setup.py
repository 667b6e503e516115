"""An operator sets an empty site up by hand, in a real browser, from a node that has reported.

Then the tenant's admin books: the operator does nothing for it but create the tenant.
"""

import re
import time

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, Request, expect

from allocation.models import Booking, Gpu, Node
from billing.models import Price
from tenants.models import Membership, Quota
from tests.browser.chromium import chromium
from tests.builders import UNITS_PER_GPU, an_operator
from tests.roles import as_system
from tests.services.reported import a_gpu, an_inventory, enrolled

pytestmark = [pytest.mark.browser, pytest.mark.turn]
MOST_ACTS, MOST_SECONDS = 6, 180


def test_six_steps_lead_from_nothing_to_a_site_that_can_be_booked(live_portal: str) -> None:
    ones = [("1g.10gb", start, 1, 1, 7) for start in range(7)]
    h100 = a_gpu(0, "NVIDIA H100 80GB HBM3", *ones, ("7g.80gb", 0, 8, 7, 1))
    enrolled(an_inventory(h100, a_gpu(1, "NVIDIA X100")))
    client = Client()
    client.force_login(an_operator())
    name = settings.SESSION_COOKIE_NAME
    cookie = {"name": name, "value": client.cookies[name].value, "url": live_portal}
    # Nothing here speaks to the database while the browser is open: it would be in its loop.
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
        context.add_cookies([cookie])  # type: ignore[list-item]  # as Playwright reads it
        password = walked(context.new_page(), live_portal)
        began = time.monotonic()
        acts = first_booking(browser.new_context().new_page(), live_portal, password)
        assert acts <= MOST_ACTS
        assert time.monotonic() - began <= MOST_SECONDS
    with as_system():
        node = Node.objects.get()
        assert (node.state, node.gpus.count()) == (Node.State.READY, 2)
        assert dict(Gpu.objects.values_list("index", "gpu_class_id")) == {0: "h100", 1: "x100"}
        assert f"{Price.objects.get(gpu_class='x100', tier='spot').per_gpu_hour:.2f}" == "2.50"
        assert f"{Price.objects.get(gpu_class='h100', tier='spot').per_gpu_hour:.2f}" == "1.68"
        assert Quota.objects.get(gpu_class="h100").guaranteed_units == UNITS_PER_GPU
        assert {each.user.username for each in Membership.objects.all()} == {"tanja"}
        assert Booking.objects.get().project.slug == "folding"


def first_booking(page: Page, address: str, password: str) -> int:
    """The admin makes a project with a budget and books in it; returns the number of sent forms."""
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            sent.append(request.url)

    page.on("request", note)
    page.goto(f"{address}/sign-in")
    page.fill("[name=username]", "tanja")
    page.fill("[name=password]", password)
    page.click("main button")
    expect(page.get_by_role("heading", name="Set up Helix Institute")).to_be_visible()
    page.get_by_role("link", name="Create a project").click()
    page.fill("#project-name", "Folding")
    page.fill("#project-slug", "folding")
    page.get_by_role("button", name="Create project").click()
    page.goto(f"{address}/t/helix/")
    page.get_by_role("link", name="Set a budget").click()
    page.select_option("#new-owner", "folding")
    page.fill("#new-amount", "100")
    page.get_by_role("button", name="Set the budget").click()
    page.goto(f"{address}/t/helix/book?q=1+h100+1h")
    page.get_by_role("button", name=re.compile("^Book ")).click()
    page.wait_for_url("**/bookings/**")
    return len(sent)


def walked(page: Page, address: str) -> str:
    """All steps; returns the password that was shown for the tenant's admin."""
    page.goto(address)
    catalogue_made(page)
    password = tenant_made(page)
    node_approved(page, address)
    return password


def catalogue_made(page: Page) -> None:
    """Models, tiers and prices."""
    expect(page.get_by_role("heading", level=1)).to_have_text("Set up this site")
    x100 = page.get_by_role("article", name="NVIDIA X100")
    x100.get_by_label("Short name of the model").fill("X 100")
    x100.get_by_label("Class", exact=True).fill("x100")
    x100.get_by_label("Name of the class").fill("X100 80 GB")
    x100.get_by_role("button", name="Add this model").click()
    expect(x100.get_by_text("A short name has up to 40 small letters")).to_be_visible()
    expect(x100.get_by_label("Short name of the model")).to_have_value("X 100")
    x100.get_by_label("Short name of the model").fill("x100")
    x100.get_by_role("button", name="Add this model").click()
    page.get_by_role("button", name="Add this model NVIDIA H100").click()
    page.get_by_role("button", name="Create these three tiers").click()
    prices = page.get_by_label("X100 80 GB, ")
    for number, price in enumerate(("9", "7", "2.50")):
        prices.nth(number).fill(price)
    page.get_by_role("button", name="Publish these prices").click()


def tenant_made(page: Page) -> str:
    """The tenant and its quota; returns its admin's password."""
    form = page.locator("#tenant")
    form.get_by_label("Name of the organisation").fill("Helix Institute")
    form.get_by_label("Short name").fill("helix")
    form.get_by_label("Admin's sign-in name").fill("tanja")
    form.get_by_role("button", name="Create organisation").click()
    expect(form.get_by_label("Admin's name")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("Admin's name").fill("Tanja Roth")
    form.get_by_role("button", name="Create organisation").click()
    password = page.locator("[data-password]").inner_text()
    page.get_by_label("Guaranteed H100 80 GB").fill("1")
    page.get_by_role("button", name="Save quotas").click()
    return password


def node_approved(page: Page, address: str) -> None:
    """The steps that are left."""
    # What is left is on the operator's home, until a booking has run.
    page.goto(f"{address}/ops/fleet")
    expect(page.locator(".setup .next")).to_contain_text("Waiting for approval: gpu-a1-01.")
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("button", name="Approve gpu-a1-01").click()
    expect(page.locator(".step.done")).to_have_count(6)
    for where in ("setup", "catalogue"):
        page.goto(f"{address}/ops/{where}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
