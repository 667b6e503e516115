"""axe-core on every page, light on a desk and dark on a phone: nothing serious.

Each run looks at a page in one of them, in turn; `-m long` looks in both."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.chromium import chromium, sign_in
from tests.browser.screens import PAGES, address_of
from tests.browser.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.turn]

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RUN = """
async (only) => {
  // The rule is experimental, so off by default: names that do not contain the words on screen.
  const rules = { 'label-content-name-mismatch': { enabled: true } };
  const runOnly = only.length ? { type: 'rule', values: only } : undefined;
  const found = await axe.run(document, { rules, runOnly, resultTypes: ['violations'] });
  return found.violations.filter((each) => ['serious', 'critical'].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.target.join(' ')}`));
}
"""
ON_LOOKS = (
    *("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"),
    *("label-content-name-mismatch", "aria-hidden-focus", "nested-interactive"),
)
"""Rules whose answer depends on theme and width; the others answer by the markup alone."""
ZONE = "Europe/Berlin"
"""The time zone of all people of the seeded site."""
Look: TypeAlias = tuple[str, int, int, tuple[str, ...]]
LOOKS: tuple[Look, ...] = (("light", 1440, 900, ()), ("dark", 390, 844, ON_LOOKS))
MORE = {
    "nobody": (
        ("sign-in", "/sign-in"),
        ("password", "/password"),
        ("password-gone", "/password/no-such"),
        ("invitation-gone", "/invitation/no-such"),
        ("passkey", "/second-factor/passkey"),
        ("sso", "/sso"),
        ("sso-unknown", "/sso/no"),
        ("report-end", "/reports/end/no-such"),
        ("mails-end", "/notifications/end/no-such"),
    ),
    "researcher": (
        ("disputes", "/t/helix/statements/2026-11/disputes"),
        ("account", "/account"),
        ("search-empty", "/t/helix/search"),
        ("bookings-none", "/t/helix/bookings?q=nothing-has-this-name"),
    ),
    "operator": (
        ("ops-gpu", "/ops/fleet/gpu-a1-01/0"),
        ("ops-portal", "/ops/portal"),
        ("ops-stops", "/ops/stops"),
        ("ops-failed-messages", "/ops/failed-messages"),
        ("ops-requirements", "/ops/requirements"),
    ),
}
"""Pages of which no picture is taken."""
SAME_MARKUP = {"timeline-3d", "timeline-2w", "book-month", "book-later"}
"""Pictures of pages whose markup differs from another one's only in its dates."""
SEEDED = {
    "bookings": "booking",
    "ops-booking": "booking",
    "series": "series",
    "decision": "decision",
    "budget": "budget",
    "budget-variance": "budget-variance",
    "campaign-costs": "campaign-costs",
    "booking-metric": "booking-metric",
    "draft": "price-draft",
    "maintenance": "maintenance-change",
    "approval": "approval",
    "webhook": "webhook",
    "saved-view": "saved-view",
    "service-account": "service-account",
    "jira": "jira-one",
}
"""By prefix of an address: the page of the first such object of the seeded site."""
WITH_QUESTIONS = {
    *("booking-release", "booking-cancel", "booking-change", "series-cancel", "hand-over"),
    *("array", "array-cancel", "ops-engine"),
}
"""Pages that `_asked`, `_array` and `_engine` look at."""
NO_PAGES = {
    # What only POST reaches, files, and what other programs ask.
    *("booking-saved", "booking-more-time", "booking-extend", "booking-earlier", "booking-undo"),
    *("progress", "booking-workload", "project-diversion", "booking-gpus"),
    # A card of a booking's page, and the way to another origin.
    *("notebook", "notebook-start", "notebook-end", "notebook-open"),
    *(
        "booking-change-withdraw",
        "booking-change-wait",
        "booking-sooner",
        "booking-wait",
        "booking-still-needed",
        "notification-bell",
        "ops-bell",
        "ops-failed-message-retry",
        "ops-failed-message-dismiss",
    ),
    *("booking-check-in", "ops-maintenance-end", "ops-gpu-return", "ops-fence", "ops-drain"),
    *(
        "ops-ready",
        "ops-rotate-key",
        "ops-revoke",
        "bookings-csv",
        "sign-out",
        "personal-data",
        "first-steps",
    ),
    "budget-days",
    # Tables of the same parts as the budget's page.
    *("budget-day", "platform-budget", "platform-budget-day", "platform-budget-days"),
    # The pages of a tenant's webhook and view.
    *("ops-webhook", "ops-saved-view"),
    # The seeded site has no contested pause: `tests/features/appeals` looks at these pages.
    *("appeal-raise", "appeal", "ops-appeal"),
    # The seeded site has no other cluster: `tests/features/clusters` looks at its page.
    "ops-cluster",
    # A trial: `tests/features/policy_lab` looks at its page.
    *("ops-policy-trial", "ops-policy-trial-csv", "ops-policy-trial-json"),
    *("log-csv", "ops-log-csv"),
    *("calendar", "healthz", "readyz", "statusz", "metrics", "start", "ops-arrival"),
    *(
        "ops-stop-end",
        "decision-replay",
        "ops-decision-replay",
        "announcement-dismiss",
        "announcement-tenant-dismiss",
        "ops-clock",
        "ops-gpu-mode",
        "ops-unbooked",
        "campaign-new",
        "statement-file",
        # It refreshes itself, and the seeded site has no month so large.
        "export",
        "export-file",
        "export-new",
        "statement-sums",
        "insights-csv",
        "ops-insights-csv",
        "capacity-mix-csv",
        "ops-mix-csv",
    ),
    # Where a provider sends the browser back to.
    "sign-on-callback",
    # A form of one field, which only a sign-in that waits for its code reaches.
    "second-factor",
    # For a directory's program.
    *("scim-users", "scim-user", "scim-groups", "scim-group", "scim-config"),
}

SAME_VIEW = 3
NO_PLACES = {
    "sign-out",
    "personal-data",
    "statement-file",
    "export-file",
    "log-csv",
    "ops-log-csv",
    "insights-csv",
    "ops-insights-csv",
    "capacity-mix-csv",
    "ops-mix-csv",
    "ops-policy-trial-csv",
    "ops-policy-trial-json",
}
"""Links that end the session or make a file."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("role", ["nobody", *PAGES])
@pytest.mark.parametrize(
    "looks",
    [pytest.param(1, id="a look in turn"), pytest.param(2, id="both", marks=pytest.mark.long)],
)
def test_axe_finds_nothing_serious_on_any_page_in_either_theme(
    browser: Browser, running: Site, role: str, looks: int
) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    if role != "nobody":
        sign_in(page, running, running.people[role])
    faults: list[str] = []
    linked: dict[str, str] = {}
    for turn, (name, address) in enumerate(_pages(role)):
        url = address_of(page, running, address)
        assert url is not None, name
        page.goto(url)
        if address[0] != "/":
            view = resolve(urlsplit(page.url).path).view_name
            assert view.removeprefix("ops-") == SEEDED[address.partition(":")[0]]
        if role != "nobody" and page.locator("body").get_attribute("data-zone") != ZONE:
            faults.append(f"{name} does not have the reader's time zone")
        linked |= dict.fromkeys(_links(page), name)
        seen = LOOKS if looks > 1 else ((*LOOKS[turn % 2][:3], ()),)
        faults += [f"{name} {fault}" for fault in _looked(page, seen)]
    faults += _dead(context, running, linked)
    if role == "researcher":
        faults += [f"dialog {fault}" for fault in _asked(page, running)]
        faults += [f"found {fault}" for fault in _found(page, running)]
        faults += [f"array {fault}" for fault in _array(page, running)]
    if role == "operator":
        faults += [f"engine {fault}" for fault in _engine(page, running)]
    context.close()
    assert faults == []


def test_every_page_is_looked_at() -> None:
    addresses = [address for role in ("nobody", *PAGES) for _, address in _pages(role)]
    plain = {resolve(urlsplit(each).path).view_name for each in addresses if each[0] == "/"}
    seeded = {*SEEDED.values(), "ops-decision", "ops-maintenance-change", "ops-booking"}
    assert _named() - NO_PAGES - plain - seeded - WITH_QUESTIONS == set()


def _pages(role: str) -> tuple[tuple[str, str], ...]:
    """Names and addresses of the pages that are looked at as `role`, each markup once."""
    pages = (*PAGES.get(role, ()), *MORE.get(role, ()))
    return tuple(each for each in pages if each[0] not in SAME_MARKUP)


def _links(page: Page) -> list[str]:
    """The addresses of this site that the page links to."""
    found = page.eval_on_selector_all("a[href]", "each => each.map((a) => a.getAttribute('href'))")
    path = urlsplit(page.url).path
    return [path + href if href[0] == "?" else href for href in found if href[0] in "/?"]


def _dead(context: BrowserContext, running: Site, linked: Mapping[str, str]) -> Iterator[str]:
    """Links that lead nowhere, of at most SAME_VIEW to each view. `linked` names a page that has
    the address."""
    asked: Counter[str] = Counter()
    for href, name in linked.items():
        view = resolve(urlsplit(href).path).view_name
        asked[view] += 1
        if asked[view] <= SAME_VIEW and view not in NO_PLACES:
            answer = context.request.get(running.url + href)
            if not answer.ok:
                yield f"{name} links to {href}: {answer.status}"


def _looked(page: Page, looks: Sequence[Look] = LOOKS) -> Iterator[str]:
    page.evaluate(AXE)
    for theme, width, height, only in looks:
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # light or dark
        page.set_viewport_size({"width": width, "height": height})
        yield from (f"{theme} at {width}: {fault}" for fault in page.evaluate(RUN, only))
    page.set_viewport_size({"width": LOOKS[0][1], "height": LOOKS[0][2]})


def _asked(page: Page, running: Site) -> Iterator[str]:
    """The question before a release, over the page, and as a page of its own."""
    url = address_of(page, running, "bookings:state=running&mine=1")
    page.goto(url or "")
    page.get_by_role("button", name="Release now").click()
    page.locator("dialog").wait_for()
    yield from _looked(page)
    for act in ("release", "cancel", "change", "hand-over"):
        page.goto(f"{url}/{act}")
        yield from _looked(page)
    page.goto(f"{address_of(page, running, 'series:')}/cancel")
    yield from _looked(page)


def _array(page: Page, running: Site) -> Iterator[str]:
    """The page of an array, and the question before all of it is cancelled."""
    wanted = {"project": "protein-folding", "request": "1 l40s 10m", "array": 4, "parallel": 2}
    made = httpx.post(
        f"{running.url}/api/v1/bookings",
        json=wanted,
        headers={"Authorization": f"Bearer {running.tokens['researcher']}"},
    )
    number = made.json()["number"].partition("[")[0]
    for path in (f"arrays/{number}", f"arrays/{number}/cancel"):
        page.goto(running.tenant(path))
        yield from _looked(page)


def _engine(page: Page, running: Site) -> Iterator[str]:
    """The token of a new engine, and the page of that engine before its first report."""
    page.goto(f"{running.url}/ops/engines")
    page.fill("[name=engine]", "slurm-lab")
    page.fill("[name=rack]", "a1")
    page.get_by_role("button", name="Create command").click()
    page.locator(".cmdline").wait_for()
    yield from _looked(page)
    page.goto(f"{running.url}/ops/engines/slurm-lab")
    yield from _looked(page)


def _found(page: Page, running: Site) -> Iterator[str]:
    """What is found while one types, with one of it chosen by the arrow keys."""
    page.goto(running.tenant(""))
    page.fill("[data-find]", "fold")
    page.locator(".found .hit").nth(1).wait_for()
    page.keyboard.press("ArrowDown")
    yield from _looked(page)
    page.goto(running.tenant("bookings"))
    page.keyboard.press("Control+k")
    page.locator("dialog.palette .hit").nth(1).wait_for()
    page.keyboard.press("ArrowDown")
    yield from _looked(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("dialog.keys kbd").first.wait_for()
    yield from _looked(page)


def _named(patterns: Any = None) -> set[str]:  # noqa: ANN401 (resolvers have no common type)
    """The names of all addresses outside the REST API."""
    found: set[str] = set()
    for each in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(each, URLResolver):
            found |= _named(each.url_patterns)
        elif isinstance(each, URLPattern) and each.name and not each.name.startswith("api-"):
            found.add(each.name)
    return found
