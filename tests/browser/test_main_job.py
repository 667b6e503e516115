"""The job the portal is for, in a real browser against real processes and simulated nodes."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from tests.browser.chromium import chromium, sign_in
from tests.browser.site import Site

pytestmark = pytest.mark.browser
READY_MS = 90_000
"""A simulated node takes seconds to slice and hand over; a loaded machine takes longer."""


FREE_STRETCH = """
() => {
  const now = document.querySelector('.now').getBoundingClientRect().left;
  for (const lane of document.querySelectorAll('.tl-row.gpu:not([aria-expanded]) .lane')) {
    const box = lane.getBoundingClientRect();
    const [from, to, y] = [now - 3, now + box.width / 12, box.top + box.height / 2];
    let x = from;
    while (x <= to && document.elementFromPoint(x, y) === lane) x += 2;
    if (x > to) return [from, to, y];
  }
  return null;
}
"""
"""Where a whole GPU is free for two hours from left of the now line: from, to, and height."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, running: Site) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    opened = context.new_page()
    troubles: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error":
            troubles.append(message.text)

    opened.on("console", heard)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    sign_in(opened, running, running.people["researcher"])
    yield opened
    context.close()
    assert troubles == []


def _made(page: Page) -> str:
    """The label of what was just booked in the panel."""
    made = page.locator("[data-made]")
    expect(made).to_be_visible()
    return made.get_attribute("data-made") or ""


def _bar(page: Page, label: str) -> Locator:
    # A bar that sums up the slices of a GPU may lead to the booking, too.
    return page.locator(f'a.bar:not(.sum)[href$="/bookings/{label}"]').first


def test_book_a_slice_by_typing_and_a_gpu_by_dragging_use_them_and_pay_for_the_time(
    page: Page, running: Site
) -> None:
    # Few book here: at any hour there is a whole GPU free for the next two.
    page.goto(running.tenant("timeline?class=a100-40&open=gpu-b1-01"))
    expect(page.locator("[data-live-text]")).to_have_text("Live")

    page.fill("[data-ask]", "1g.5gb 1h now")
    confirm = page.locator("[data-book]")
    expect(confirm).to_contain_text(re.compile(r"Book .+ for €"))
    confirm.click()
    typed = _made(page)

    _draw_from_now(page)
    expect(page.locator("[data-ask]")).to_have_value(re.compile(r"1 \S+ \d+m now"))
    expect(confirm).to_contain_text(re.compile(r"Book .+ for €"))
    confirm.click()
    drawn = _made(page)
    assert drawn != typed

    # Nothing is reloaded from here on: the page itself notices.
    page.evaluate("window.notReloaded = true")
    for label in (typed, drawn):
        expect(_bar(page, label)).to_have_attribute("aria-label", re.compile(", running$"), timeout=READY_MS)
    assert page.evaluate("window.notReloaded")

    for label in (typed, drawn):
        page.goto(running.tenant(f"bookings/{label}"))
        expect(page.locator("pre")).to_contain_text(f"/bookings/helix.{label}/env")
        page.get_by_role("button", name=re.compile("Release (now )?and get €")).click()
        asked = page.locator("dialog")
        expect(asked).to_contain_text("Unsaved work is lost.")
        asked.get_by_role("button", name=re.compile("Release (now )?and get €")).click()
        expect(page.locator("h1")).to_contain_text("Ended", timeout=READY_MS)
        expect(page.locator(".kv")).to_contain_text(re.compile(r"Charged\s*€\d+\.\d\d"))


def test_a_booking_can_be_undone_at_once(page: Page, running: Site) -> None:
    page.goto(running.tenant("book?q=1+h100+tomorrow+9:00+for+1h"))
    page.locator("[data-book]").click()
    expect(page.locator("h1.headline")).to_be_visible()
    page.get_by_role("button", name=re.compile("Undo and release €")).click()
    expect(page.locator("h1")).to_contain_text("Cancelled")


def test_the_grid_is_walked_and_booked_by_keyboard_alone(page: Page, running: Site) -> None:
    # The demo's bookings reach a week ahead; after that everything is free.
    day = (timezone.now() + timedelta(days=12)).strftime("%Y-%m-%dT00:00")
    page.goto(running.tenant(f"timeline?open=gpu-a1-01&from={day}"))
    lane = page.locator('.lane[data-key="gpu-a1-01/5"]')
    lane.focus()
    for key in (*["ArrowRight"] * 8, "b", "Shift+ArrowRight"):
        page.keyboard.press(key)
    expect(lane).to_have_attribute("aria-label", "free, GPU 5, gpu-a1-01, 08:00, for 16 h")
    expect(page.locator("[data-ask]")).to_have_value(re.compile(r"^1 h100 from .+ to .+"))
    page.keyboard.press("Escape")
    expect(page.locator(".bar.draft")).to_have_count(0)


def _book_focused(page: Page) -> Locator:
    """The Book button, once it has the focus and its option has been seen."""
    button = page.locator("[data-book]")
    expect(button).to_be_focused(timeout=READY_MS)
    expect(page.locator("[data-panel][data-seen]")).to_have_count(1)
    return button


def test_type_enter_enter_books_from_home(page: Page, running: Site) -> None:
    page.goto(running.tenant(""))
    expect(page.locator("#home-ask")).to_be_focused()
    day = (timezone.now() + timedelta(days=9)).strftime("%Y-%m-%d")
    page.keyboard.type(f"1 l40s 1h at 22:00 on {day}")
    page.keyboard.press("Enter")
    words = (timezone.now() + timedelta(days=9)).strftime("%a %d %b 22:00")
    expect(page.locator("[data-understood]")).to_contain_text(words)
    expect(_book_focused(page)).to_contain_text("22:00 – 23:00")
    page.keyboard.press("Enter")
    expect(page.locator("h1.headline")).to_be_visible()
    expect(page.get_by_text(re.compile("Booked as BK-"))).to_be_visible()


def test_slash_type_enter_enter_books_beside_the_timeline_and_nothing_unseen(
    page: Page, running: Site
) -> None:
    page.goto(running.tenant("timeline"))
    page.keyboard.press("/")
    expect(page.locator("[data-panel] [data-ask]")).to_be_focused()
    page.keyboard.type("1 l40s 1h in 9 days spot")
    # Three at once: the second and third were hit before there was an option to see.
    for _ in range(3):
        page.keyboard.press("Enter")
    _book_focused(page)
    expect(page.locator("[data-made]")).to_have_count(0)
    expect(page.locator("#f-tier")).to_have_value("spot")
    page.keyboard.press("Enter")
    assert _made(page).startswith("BK-")
    expect(page.locator("[data-made]")).to_be_focused()


def test_a_finished_draft_on_the_grid_is_opened_and_booked_with_two_enters(page: Page, running: Site) -> None:
    day = (timezone.now() + timedelta(days=12)).strftime("%Y-%m-%dT00:00")
    page.goto(running.tenant(f"timeline?open=gpu-c1-01&from={day}"))
    lane = page.locator('.lane[data-key="gpu-c1-01/1"]')
    lane.focus()
    for key in (*["ArrowRight"] * 5, "b", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(_book_focused(page)).to_contain_text(re.compile(r"^Book \w{3} \d+ \w{3} 05:00 – 06:"))
    page.keyboard.press("Enter")
    assert _made(page).startswith("BK-")


def test_a_changed_text_can_not_book_the_option_of_the_text_before(page: Page, running: Site) -> None:
    page.goto(running.tenant("book?q=1+l40s+1h+tomorrow"))
    _book_focused(page)
    page.locator("#ask").focus()
    page.keyboard.press("End")
    page.keyboard.type(" spt")
    expect(page.locator("[data-book]")).to_have_count(0)
    page.get_by_role("link", name="spot", exact=True).click()
    expect(page.locator("#ask")).to_have_value("1 l40s 1h tomorrow spot")
    expect(page.locator("[data-book]")).to_be_enabled()


def _draw_from_now(page: Page) -> None:
    """Draws on a GPU's row that is free for the next hours, from left of the now line."""
    start, end, y = page.wait_for_function(FREE_STRETCH).json_value()
    page.mouse.move(start, y)
    page.mouse.down()
    page.mouse.move(start + 20, y, steps=3)
    page.mouse.move(end, y, steps=3)
    page.mouse.up()


MOVABLE = """
() => {
  for (const bar of document.querySelectorAll('a.bar[data-move^="all"]')) {
    const box = bar.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + Math.min(box.height / 2, 12)];
    if (box.width > 40 && document.elementFromPoint(x, y)?.closest('.bar') === bar) {
      return [x, y, bar.getAttribute('href')];
    }
  }
  return null;
}
"""
"""A bar of the reader's that begins later and that nothing covers: a point in it, and its link."""


DRAG = """(bar, [finger, x, y, by]) => {
  const steps = [["pointerdown", x], ["pointermove", x + by], ["pointerup", x + by]];
  for (const [type, clientX] of steps)
    bar.dispatchEvent(new PointerEvent(type, { ...finger, clientX, clientY: y }));
}"""


def test_dragging_a_booking_shows_what_the_new_time_costs(page: Page, running: Site) -> None:
    page.goto(running.tenant("timeline?span=3d&open=gpu-a1-01,gpu-a2-01,gpu-b1-01,gpu-c1-01"))
    expect(page.locator("[data-live-text]")).to_have_text("Live")
    x, y, link = page.evaluate(MOVABLE)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y, steps=4)
    outline = page.locator(".bar.moved")
    expect(outline).to_be_visible()
    expect(page.locator(".bar.added:visible")).to_have_count(1)
    page.mouse.up()
    card = page.locator(".drag-card")
    expect(card).to_contain_text("at most")
    expect(card.locator(".pri")).to_be_focused()
    assert link in (card.get_attribute("action") or "")
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(outline).to_have_count(0)

    # A finger drags it, too, and its page has all details.
    finger = {"pointerType": "touch", "isPrimary": True, "bubbles": True, "button": 0}
    # In one call, so that no live message draws the bar anew between two events.
    page.locator(f'.bar[data-move][href="{link}"]').first.evaluate(DRAG, [finger, x, y, 30])
    page.get_by_role("button", name="All details").click()
    expect(page.locator("#change-starts")).not_to_have_value("")
    expect(page.get_by_role("button", name="Show price and start")).to_be_visible()

    # A click still follows the link.
    page.goto(running.tenant("timeline?span=3d&open=gpu-a1-01,gpu-a2-01,gpu-b1-01,gpu-c1-01"))
    x, y, link = page.evaluate(MOVABLE)
    page.mouse.click(x, y)
    page.wait_for_url(re.compile(rf"{re.escape(link)}$"))


def test_a_name_that_says_a_known_workload_brings_its_advice(page: Page, running: Site) -> None:
    page.goto(running.tenant("book?q=1+h100+tomorrow+9:00+for+1h&project=protein-folding"))
    confirm = page.locator("[data-book]")
    expect(confirm).to_be_visible()
    expect(page.locator("[data-panel]")).not_to_contain_text("slice costs a seventh")
    page.locator("#f-name").press_sequentially("Embed small 9")
    expect(page.locator("[data-panel]")).to_contain_text("slice costs a seventh")
    expect(page.locator("#f-name")).to_have_value("Embed small 9")
    expect(page.locator("#f-name")).to_be_focused()
    expect(confirm).to_be_enabled()
