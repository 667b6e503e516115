"""An open page whose messages are lost on the way, or do not come at all."""

import json
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.browser.chromium import chromium, sign_in
from tests.browser.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.turn]
# Two beats, and a page's own second between two looks.
HEALED_MS = 25_000


@pytest.fixture
def page(running: Site) -> Iterator[Page]:
    with chromium() as browser:
        yield _signed_in(browser, running)


def _signed_in(browser: Browser, running: Site) -> Page:
    page = browser.new_context().new_page()
    sign_in(page, running, running.people["researcher"])
    return page


def _post(site: Site, path: str, **sent: str) -> str:
    """The booking's number after the call."""
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{site.url}/api/v1/{path}",
        data=json.dumps(sent).encode(),
        headers={
            "Authorization": f"Bearer {site.tokens['researcher']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 (loopback)
        return str(json.load(answer)["number"])


def _booked(site: Site) -> str:
    return _post(site, "bookings", project="language-models", tier="standard", request="1 h100 1h tomorrow")


def test_a_page_that_lost_every_message_finds_out_by_the_next_beat(page: Page, running: Site) -> None:
    lost: list[str] = []

    def only_beats(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def passed(message: str | bytes) -> None:
            kind = json.loads(message)["kind"]
            if kind == "live.beat":
                socket.send(message)
            else:
                lost.append(kind)

        server.on_message(passed)

    page.route_web_socket("**/ws/t/**", only_beats)
    label = _booked(running)
    page.goto(running.tenant(f"bookings/{label}"))
    expect(page.locator("[data-live-text]")).to_have_text("Live", timeout=HEALED_MS)
    _post(running, f"bookings/{label}/cancel")
    expect(page.get_by_text("Cancelled").first).to_be_visible(timeout=HEALED_MS)
    assert "booking.changed" in lost


def test_a_page_that_hears_nothing_says_since_when_and_looks_by_itself(page: Page, running: Site) -> None:
    label = _booked(running)
    page.route_web_socket("**/ws/t/**", lambda socket: None)
    page.clock.install()
    page.goto(running.tenant(f"bookings/{label}"))
    expect(page.locator("[data-live-text]")).to_have_text("Live")
    _post(running, f"bookings/{label}/cancel")
    page.clock.fast_forward(40_000)
    expect(page.locator("[data-live-text]")).to_contain_text("Live updates lost at")
    page.clock.fast_forward(5_000)
    expect(page.get_by_text("Cancelled").first).to_be_visible()
    # The line is open again, but an open line alone is no news.
    expect(page.locator("[data-live-text]")).to_contain_text("Live updates lost at")


def test_a_page_fetches_only_what_it_does_not_show_yet(page: Page, running: Site) -> None:
    sockets: list[WebSocketRoute] = []

    def joined(socket: WebSocketRoute) -> None:
        sockets.append(socket)

    page.route_web_socket("**/ws/t/**", joined)
    label = _booked(running)
    page.clock.install()
    page.goto(running.tenant(f"bookings/{label}"))
    expect(page.locator("[data-live-text]")).to_have_text("Live")
    version = page.locator("#booking").get_attribute("data-live-version")
    event = page.locator("[data-event]").first.get_attribute("data-event")
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))

    def send(number: int, **facts: int) -> None:
        message = {"kind": "booking.changed", "booking": label, "number": number}
        message |= {"version": int(version or 0), "event": int(event or 0)} | facts
        sockets[-1].send(json.dumps(message))
        page.evaluate("() => new Promise((done) => { queueMicrotask(done); })")
        page.clock.fast_forward(3_000)

    send(1)
    send(2, version=0)
    assert fetched == []
    for number, facts in enumerate(({"version": 99}, {"event": 10**9}, {"event": 0}), 3):
        with page.expect_request("**part=body**"):
            send(number, **facts)
