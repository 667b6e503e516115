"""The timeline of a full fleet in a real browser: no bars overlap, and it scrolls."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page, ViewportSize

from tenants.models import Membership
from tests.browser.chromium import chromium
from tests.browser.dense import a_dense_fleet

pytestmark = [pytest.mark.browser, pytest.mark.turn]

WIDTHS = {1440: 900, 1280: 720, 768: 1024, 390: 844}
SPANS = ("6h", "24h", "3d", "2w")

FAULTS = """
() => {
  const faults = [];
  const boxes = (selector, root = document) => [...root.querySelectorAll(selector)]
    .filter((each) => each.getClientRects().length)
    .map((each) => ({
      name: each.getAttribute('aria-label') || each.textContent.trim(),
      at: each.getBoundingClientRect(),
    }));
  const overlaps = (what, all, slack = 0.75) => {
    all.sort((a, b) => a.at.left - b.at.left);
    for (let i = 0; i < all.length; i += 1) {
      for (let j = i + 1; j < all.length && all[j].at.left < all[i].at.right - slack; j += 1) {
        const [a, b] = [all[i].at, all[j].at];
        if (a.top < b.bottom - slack && b.top < a.bottom - slack) {
          const by = (Math.min(a.right, b.right) - b.left).toFixed(1);
          faults.push(`${what} by ${by} px: ${all[i].name} | ${all[j].name}`);
        }
      }
    }
  };
  const axis = document.querySelector('.tl-axis .hours');
  overlaps('labels', boxes('em, .clk, .nowflag', axis));
  // A bar has a least width: a pixel of it may lie over the next one.
  overlaps('bars', boxes('.tl-row .bar:not(.maint):not(.dead)'), 2);
  overlaps('filters', boxes('.tl-bar > *, .tl-filters > *'));
  for (const label of boxes('.tl-bar > *')) {
    if (label.at.right > innerWidth + 0.75) faults.push(`cut: ${label.name}`);
  }
  const page = document.documentElement;
  const top = document.querySelector('.tl-bar').getBoundingClientRect().top + scrollY;
  if (top > innerHeight / 2) faults.push(`begins at ${top} px`);
  if (page.scrollWidth > page.clientWidth) faults.push(`page ${page.scrollWidth} px wide`);
  if (page.scrollHeight > 2.2 * innerHeight) faults.push(`page ${page.scrollHeight} px high`);
  return { faults, bars: document.querySelectorAll('.bar').length };
}
"""

LIST_FAULTS = """
() => {
  const list = document.querySelector('.tl-list');
  const edge = list.getBoundingClientRect().right;
  const faults = [...list.querySelectorAll('a')]
    .filter((each) => each.getBoundingClientRect().right > edge + 0.75)
    .map((each) => `cut: ${each.textContent}`);
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) faults.push(`page ${page.scrollWidth} px wide`);
  if (list.scrollWidth > list.clientWidth) faults.push(`list ${list.scrollWidth} px wide`);
  return faults;
}
"""

SCROLL = """
async () => {
  const grid = document.querySelector('.tl-scroll');
  for (let before = -1; grid.scrollTop !== before;) {
    before = grid.scrollTop;
    grid.scrollTop += 90;
    await new Promise((done) => requestAnimationFrame(done));
  }
  return grid.scrollTop;
}
"""


@contextmanager
def opened(address: str, reader: Membership) -> Iterator[Page]:
    client = Client()
    client.force_login(reader.user)
    name = settings.SESSION_COOKIE_NAME
    with chromium() as browser:
        context = browser.new_context()
        cookie: Any = {"name": name, "value": client.cookies[name].value, "url": address}
        context.add_cookies([cookie])
        yield context.new_page()


@pytest.mark.long
def test_no_label_and_no_bar_lies_over_another_at_any_width_and_range(live_portal: str) -> None:
    reader = a_dense_fleet(timezone.now().replace(second=0, microsecond=0))
    page_address = f"{live_portal}/t/{reader.tenant.slug}/timeline"
    everything = ",".join(f"gpu-a{number % 2}-{number:02}" for number in range(14))
    faults: list[str] = []
    drawn: dict[str, int] = {}
    with opened(live_portal, reader) as page:
        for span in SPANS:
            page.goto(f"{page_address}?span={span}&open={everything}")
            for width, height in WIDTHS.items():
                page.set_viewport_size(ViewportSize(width=width, height=height))
                found = page.evaluate(FAULTS)
                drawn[span] = found["bars"]
                faults += [f"{span} at {width}: {fault}" for fault in found["faults"]]
        for width, height in WIDTHS.items():
            page.set_viewport_size(ViewportSize(width=width, height=height))
            page.goto(f"{page_address}?view=list")
            faults += [f"list at {width}: {fault}" for fault in page.evaluate(LIST_FAULTS)]
        page.set_viewport_size(ViewportSize(width=1440, height=900))
        page.goto(f"{page_address}?span=2w&open={everything}")
        far = page.evaluate(SCROLL)
    assert faults == [], len(faults)
    # What is drawn is thinned out, not left out: the closer view has fewer in its time.
    assert drawn["2w"] > drawn["6h"] > 100
    assert far > 2000
