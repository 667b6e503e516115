"""Operators follow a play with more GPUs: their pages have no socket, so a part that is open polls."""

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import chromium, sign_in
from tests.browser.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.turn]


def test_a_play_is_asked_for_and_its_progress_comes_by_itself(running: Site) -> None:
    with chromium() as browser:
        page = browser.new_context().new_page()
        sign_in(page, running, running.people["operator"])
        page.goto(f"{running.url}/ops/capacity/trials")
        page.fill("input[name=gpus]", "2")
        page.click("button:has-text('Start the trial')")
        part = page.locator("#more-gpus")
        expect(part).to_contain_text("2 more")
        if part.get_attribute("data-live-every"):
            with page.expect_request(lambda sent: sent.headers.get("x-fragment") == "1"):
                pass
        expect(part).to_contain_text("with the present GPUs", timeout=120_000)
