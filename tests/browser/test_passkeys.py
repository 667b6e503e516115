"""A person adds a passkey and signs in with it, in a real browser with a virtual authenticator."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings

from tests.browser.chromium import chromium, sign_in
from tests.browser.site import Person, Site
from tests.builders import PASSWORD, a_member, a_project

pytestmark = [pytest.mark.browser, pytest.mark.turn]
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def test_a_passkey_is_added_signs_in_and_is_removed(live_portal: str, settings: Settings) -> None:
    # The running portal knows this one only.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
    person = Person(a_member(a_project()).user.username, PASSWORD)
    running = Site(live_portal, {}, {})
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 844})
        page = context.new_page()
        devices = context.new_cdp_session(page)
        devices.send("WebAuthn.enable")
        devices.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        sign_in(page, running, person)
        _add(page, running, person)
        context.clear_cookies()
        page.goto(f"{running.url}/sign-in?next=/account")
        page.get_by_role("link", name="Passkey").click()
        page.get_by_role("button", name="Use a passkey").click()
        page.wait_for_url("**/account")
        page.goto(f"{running.url}/second-factor/setup")
        page.get_by_role("button", name="Remove").click()
        expect(page.get_by_text("Passkey Laptop removed")).to_be_visible()
        plain = browser.new_context(java_script_enabled=False).new_page()
        plain.goto(f"{running.url}/second-factor/passkey")
        expect(plain.get_by_text("Passkeys need JavaScript")).to_be_visible()
        expect(plain.get_by_role("button", name="Use a passkey")).to_be_hidden()


def _add(page: Page, running: Site, person: Person) -> None:
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(f"{running.url}/second-factor/setup")
    card = page.locator("section", has=page.get_by_role("heading", name="Passkeys"))
    card.get_by_label("Your password").fill(person.password)
    card.get_by_role("button", name="Add a passkey").click()
    page.get_by_label("Name of the new passkey").fill("Laptop")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Create the passkey").click()
    expect(page.get_by_text("Passkey Laptop added")).to_be_visible()
    assert faults == []
