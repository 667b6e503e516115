"""A real Chromium, quiet: it speaks to nobody but the site under test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.site import Person, Site

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoChromium(Exception):
    """There is no browser; the message says what to do."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser that CHROMIUM names, or the first of the usual names."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoChromium("Chromium is missing: install it, or name it with CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


def sign_in(page: Page, site: Site, person: Person) -> None:
    """Through the page that people use."""
    page.goto(f"{site.url}/sign-in")
    page.fill("[name=username]", person.username)
    page.fill("[name=password]", person.password)
    page.click("main button")
    page.wait_for_url(lambda url: "/sign-in" not in url)
