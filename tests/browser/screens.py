"""`make screens`: every page, light and dark, wide and narrow, as pictures in var/screens.

Fails when a page scrolls sideways, logs an error, asks another origin, or when a text colour is
too weak on a background that it is meant for.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

from tests.browser.chromium import NoChromium, chromium, sign_in
from tests.browser.pausing import pause_make
from tests.browser.site import ROOT, Site, SiteDidNotStart, site

WIDTHS = {1440: 900, 768: 1024, 390: 844}
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
CONTRAST_LEAST = 4.5
TEXTS = ("ink", "ink-2", "ink-3", "accent", "ok", "info", "wait", "risk", "lend")
WORDS = re.compile("preempt|pod\\b", re.IGNORECASE)
GROUNDS = ("surface", "canvas", "sunken")

PAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "researcher": (
        ("home", "/t/helix/"),
        ("timeline", "/t/helix/timeline"),
        ("timeline-3d", "/t/helix/timeline?span=3d"),
        ("timeline-list", "/t/helix/timeline?view=list"),
        ("timeline-month", "/t/helix/timeline?view=month"),
        ("timeline-gpu", "/t/helix/timeline?view=gpu&gpu=gpu-a1-01/0"),
        ("book", "/t/helix/book?q=2+h100+6h"),
        ("book-unclear", "/t/helix/book?q=2+h100+6h+blub"),
        ("timeline-2w", "/t/helix/timeline?span=2w"),
        ("search", "/t/helix/search?q=fold"),
        ("bookings", "/t/helix/bookings"),
        ("waiting-list", "/t/helix/offers"),
        ("booking-running", "bookings:state=running"),
        ("booking-metric", "booking-metric:state=running"),
        ("booking-waiting", "bookings:state=waiting"),
        ("booking-over", "bookings:state=over"),
        ("project", "/t/helix/p/protein-folding"),
        ("fleet", "/t/helix/fleet"),
        ("node", "/t/helix/fleet/gpu-a1-01"),
        ("prices", "/t/helix/prices"),
        ("tiers", "/t/helix/tiers"),
        ("settings", "/t/helix/settings"),
        ("calendars", "/t/helix/settings/calendars"),
        ("book-share", "/t/helix/book?q=0.25+h100+1h"),
        ("book-series", "/t/helix/book?q=1+l40s+every+mon,wed+9-17+4+times"),
        ("book-month", "/t/helix/book?q=1+l40s+every+month+on+the+last+weekday+9-17+1+times"),
        ("book-kind", "/t/helix/book?q=1+h100+or+a100+4h+kind:training"),
        ("book-later", "/t/helix/book?q=6+h100+8h"),
        ("book-pin", "/t/helix/book?q=1+h100+2h+on+gpu-a1-01/0"),
        ("series", "series:"),
        ("decisions", "/t/helix/decisions"),
        ("decision", "decision:/t/helix"),
        ("approvals-own", "/t/helix/approvals"),
        ("overrides-ask", "/t/helix/overrides?kind=quota&gpu_class=h100&amount=2"),
        ("node-shared", "/t/helix/fleet/gpu-c1-01"),
        ("device", "/device"),
        ("keys", "/keys"),
        ("second-factor", "/second-factor/setup"),
        ("notifications", "/t/helix/notifications"),
        ("notification-settings", "/t/helix/notifications/settings"),
        ("saved-views", "/t/helix/views"),
        ("missing", "/t/helix/bookings/BK-999999"),
    ),
    "tenant_admin": (
        ("insights", "/t/helix/insights"),
        ("insights-cards", "/t/helix/insights?part=cards"),
        ("insights-compare", "/t/helix/insights/compare"),
        ("heatmap", "/t/helix/heatmap"),
        ("capacity", "/t/helix/capacity"),
        ("capacity-sprints", "/t/helix/capacity/sprints/protein-folding"),
        ("capacity-backlog", "/t/helix/capacity/backlog/protein-folding"),
        ("capacity-forecast", "/t/helix/capacity/forecast/protein-folding"),
        ("capacity-mix", "/t/helix/capacity/mix?class=h100"),
        ("overview", "/t/helix/overview"),
        ("workloads", "/t/helix/workloads"),
        ("workload", "/t/helix/workloads/language-models/docking"),
        ("budgets", "/t/helix/budgets"),
        ("budget", "budget:"),
        ("budget-variance", "budget-variance:"),
        ("campaign-costs", "campaign-costs:"),
        ("statements", "/t/helix/statements"),
        ("reports", "/t/helix/reports"),
        ("quotas", "/t/helix/quotas"),
        ("limit-cuts", "/t/helix/limit-cuts"),
        ("dated-guarantees", "/t/helix/dated-guarantees"),
        ("tier-guarantees", "/t/helix/tier-guarantees"),
        ("labs", "/t/helix/labs"),
        ("people", "/t/helix/people"),
        ("people-search", "/t/helix/people?q=mara&edit=mara"),
        ("organisation", "/t/helix/organisation"),
        ("organisation-tokens", "/t/helix/organisation/tokens"),
        ("log", "/t/helix/log"),
        ("approvals", "/t/helix/approvals"),
        ("approval", "approval:"),
        ("requirements", "/t/helix/requirements"),
        ("tier-limits", "/t/helix/tiers/limits"),
        ("approval-rules", "/t/helix/approvals/rules"),
        ("stand-ins", "/t/helix/approvals/stand-ins"),
        ("zones", "/t/helix/zones"),
        ("spare-cores", "/t/helix/p/protein-folding/spare-cores"),
        ("appeals", "/t/helix/appeals"),
        ("webhooks", "/t/helix/settings/webhooks"),
        ("chat", "/t/helix/settings/chat"),
        ("webhook", "webhook:"),
        ("saved-view", "saved-view:"),
        ("service-accounts", "/t/helix/settings/service-accounts"),
        ("service-account", "service-account:"),
        ("sign-on", "/t/helix/settings/sign-on"),
        ("directory", "/t/helix/settings/directory"),
        ("jira", "/t/helix/settings/jira"),
        ("policy-hook", "/t/helix/settings/policy-hook"),
        ("jira-one", "jira:"),
    ),
    "operator": (
        ("ops-fleet", "/ops/fleet"),
        ("ops-fleet-table", "/ops/fleet?view=table"),
        ("ops-insights", "/ops/insights?by=tenant"),
        ("ops-insights-compare", "/ops/insights/compare"),
        ("ops-capacity", "/ops/capacity"),
        ("ops-capacity-trials", "/ops/capacity/trials"),
        ("ops-mix", "/ops/mix?class=h100"),
        ("ops-clusters", "/ops/clusters"),
        ("ops-engines", "/ops/engines"),
        ("ops-zones", "/ops/zones"),
        ("ops-zone", "/ops/zones/basel"),
        ("ops-node-storage", "/ops/nodes/gpu-a1-01/storage"),
        ("ops-machines", "/ops/machines"),
        ("ops-overview", "/ops/overview"),
        ("ops-node", "/ops/fleet/gpu-a1-01"),
        ("ops-node-maintenance", "/ops/fleet/gpu-c1-01"),
        ("ops-maintenance", "/ops/maintenance"),
        ("ops-maintenance-change", "maintenance:"),
        ("ops-compaction", "/ops/compaction"),
        ("ops-install", "/ops/install"),
        ("ops-tiers", "/ops/tiers"),
        ("ops-policy", "/ops/policy"),
        ("ops-policy-version", "/ops/policy/versions/1"),
        ("ops-policy-scenario", "/ops/policy/versions/1/scenario"),
        ("ops-prices", "/ops/prices"),
        ("ops-price-draft", "draft:"),
        ("ops-timeline", "/ops/timeline"),
        ("ops-bookings", "/ops/bookings"),
        ("ops-saved-views", "/ops/views"),
        ("ops-inbox", "/ops/inbox"),
        ("ops-booking", "ops-booking:"),
        ("ops-search", "/ops/search?q=gpu"),
        ("ops-budgets", "/ops/budgets"),
        ("ops-corrections", "/ops/corrections"),
        ("ops-disputes", "/ops/disputes"),
        ("ops-appeals", "/ops/appeals"),
        ("ops-overrides", "/ops/overrides"),
        ("ops-quotas", "/ops/quotas"),
        ("ops-limit-cuts", "/ops/limit-cuts"),
        ("ops-dated-guarantees", "/ops/dated-guarantees"),
        ("ops-tier-guarantees", "/ops/tier-guarantees"),
        ("ops-speeds", "/ops/speeds"),
        ("ops-tenants", "/ops/tenants"),
        ("ops-accounts", "/ops/accounts"),
        ("ops-decisions", "/ops/decisions"),
        ("ops-decision", "decision:"),
        ("ops-access", "/ops/access"),
        ("ops-roles", "/ops/roles"),
        ("ops-announcements", "/ops/announcements"),
        ("ops-webhooks", "/ops/webhooks"),
        ("ops-log", "/ops/log"),
        ("ops-catalogue", "/ops/catalogue"),
        ("ops-setup", "/ops/setup"),
    ),
}

# A notice stands for two minutes: it is looked at before all else. {} is the booking's label.
NOTICE: dict[str, tuple[tuple[str, str], ...]] = {
    "researcher": (
        ("pause-notice", "/t/helix/bookings/{}"),
        ("pause-home", "/t/helix/"),
        ("pause-timeline", "/t/helix/timeline?span=6h&class=h100"),
    ),
}

RATIOS = """
([texts, grounds]) => {
  const probe = document.createElement('i');
  document.body.append(probe);
  const rgb = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
  };
  const light = (name) => {
    const [r, g, b] = rgb(name).map((v) => v / 255).map(
      (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const soft = new Set(['ok', 'info', 'wait', 'risk', 'lend', 'accent']);
  const found = [];
  for (const text of texts) {
    for (const ground of soft.has(text) ? [...grounds, `${text}-soft`] : grounds) {
      const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
      found.push([text, ground, (a + 0.05) / (b + 0.05)]);
    }
  }
  probe.remove();
  return found;
}
"""


@dataclass(frozen=True)
class Look:
    """One way to look at all pages."""

    theme: Theme
    width: int

    def name(self, page: str) -> str:
        """The picture's file name."""
        return f"{page}-{self.theme}-{self.width}.png"


def main(folder: Path = ROOT / "var" / "screens") -> int:
    """Takes all pictures; the exit status is 1 when any page has a fault."""
    folder.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    try:
        with site() as found, chromium() as browser:
            label = pause_make(found)
            notice = {
                role: tuple((name, address.format(label)) for name, address in pages)
                for role, pages in NOTICE.items()
            }
            for pages in (notice, PAGES):
                for theme, width in product(THEMES, WIDTHS):
                    faults += looks(browser, found, Look(theme, width), pages, folder)
    except (NoChromium, SiteDidNotStart) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    sys.stdout.write(f"{len(list(folder.glob('*.png')))} pictures in {folder}\n")
    return 1 if faults else 0


def looks(
    browser: Browser,
    found: Site,
    look: Look,
    by_role: Mapping[str, Sequence[tuple[str, str]]],
    folder: Path,
) -> Iterator[str]:
    """Faults of all these pages in one theme and width."""
    viewport = ViewportSize(width=look.width, height=WIDTHS[look.width])
    for role, pages in by_role.items():
        context = browser.new_context(viewport=viewport, color_scheme=look.theme)
        faults: list[str] = []
        page = _watched(context, found, faults)
        sign_in(page, found, found.people[role])
        for name, address in pages:
            faults.clear()
            yield from _look(page, found, look, (name, address, folder, faults))
            yield from (f"{look.name(name)}: {fault}" for fault in faults)
        context.close()


def _watched(context: BrowserContext, found: Site, faults: list[str]) -> Page:
    page = context.new_page()
    own = urlsplit(found.url).netloc
    page.on("pageerror", lambda error: faults.append(f"script error: {error}"))
    page.on(
        "console",
        lambda said: faults.append(f"console: {said.text[:200]}") if said.type == "error" else None,
    )
    page.on(
        "request",
        lambda asked: (
            faults.append(f"asks {asked.url}") if urlsplit(asked.url).netloc not in ("", own) else None
        ),
    )
    return page


def _look(page: Page, found: Site, look: Look, what: tuple[str, str, Path, list[str]]) -> Iterator[str]:
    name, address, folder, faults = what
    url = address_of(page, found, address)
    if url is None:
        yield f"{look.name(name)}: the demo has no such booking"
        return
    response = page.goto(url, wait_until="networkidle")
    status = response.status if response else 0
    if status != (404 if name == "missing" else 200):
        yield f"{look.name(name)}: {status}"
    if name == "missing":
        # Chromium itself logs that the page was not found.
        faults.clear()
    sizes = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    if sizes[0] > sizes[1]:
        yield f"{look.name(name)}: scrolls sideways, {sizes[0]} in {sizes[1]} px"
    if WORDS.search(page.inner_text("body")):
        yield f"{look.name(name)}: says {WORDS.pattern}"
    for text, ground, ratio in page.evaluate(RATIOS, [TEXTS, GROUNDS]):
        if ratio < CONTRAST_LEAST:
            yield f"{look.name(name)}: {text} on {ground} has contrast {ratio:.2f}"
    page.screenshot(path=folder / look.name(name), full_page=True)


FIRST_LINKS = {
    "ops-booking": ("/ops/bookings", "#bookings-list td a"),
    "maintenance": ("/ops/maintenance", 'main a[href*="/ops/maintenance/"]'),
    "approval": ("/t/helix/approvals", "[data-approval] h2 a"),
    "saved-view": ("/t/helix/views", 'main td a[href*="/views/"]'),
    "campaign-costs": ("/t/helix/budgets", 'main a[href*="/campaigns/"]'),
}
"""Where the first link leads to an object, by the kind of an address."""


def address_of(page: Page, found: Site, address: str) -> str | None:
    """The whole address: `bookings:QUERY` is the first booking in the list for it, `booking-metric:QUERY`
    the metric of that one, `draft:` the first draft of prices, `maintenance:` the next one, `series:`,
    `budget:`, `budget-variance:`, `approval:`, `webhook:`, `service-account:` and `jira:` are the seeded
    ones.
    """
    kind, colon, query = address.partition(":")
    if not colon or kind.startswith("/"):
        return found.url + address
    if kind in ("series", "draft"):
        return (_series_address if kind == "series" else _draft_address)(page, found)
    if kind in ("budget", "budget-variance"):
        page.goto(found.tenant("budgets"))
        href = _href(page, found, 'main a[href*="/budgets/"]')
        return f"{href}/variance" if href and kind != "budget" else href
    if kind in FIRST_LINKS:
        path, link = FIRST_LINKS[kind]
        page.goto(found.url + path)
        return _href(page, found, link)
    if kind in ("webhook", "service-account", "jira", "decision"):
        listed = found.tenant("settings/jira" if kind == "jira" else f"settings/{kind}s")
        is_decision = kind == "decision"
        page.goto(f"{found.url}{query or '/ops'}/decisions" if is_decision else listed)
        return _href(page, found, 'main tbody a[href*="/decisions/"]' if is_decision else "main tbody th a")
    page.goto(f"{found.tenant('bookings')}?{query}")
    href = _href(page, found, "#bookings-list td a")
    return f"{href}/metric" if href and kind == "booking-metric" else href


def _draft_address(page: Page, found: Site) -> str | None:
    """That of the first draft of prices, which is written if there is none."""
    page.goto(f"{found.url}/ops/prices")
    if page.locator('main a[href*="/drafts/"]').count():
        return _href(page, found, 'main a[href*="/drafts/"]')
    page.get_by_role("button", name="Write a draft").click()
    page.wait_for_url("**/drafts/*")
    return page.url


def _series_address(page: Page, found: Site) -> str | None:
    page.goto(found.tenant("bookings?q=lab-course"))
    page.locator("#bookings-list td a").first.click()
    return _href(page, found, 'a[href*="/series/"]')


def _href(page: Page, found: Site, selector: str) -> str | None:
    link = page.locator(selector).first
    return found.url + (link.get_attribute("href") or "") if link.count() else None


if __name__ == "__main__":
    sys.exit(main())
