"""The navigation of the shell, and the areas of settings: which pages there are, and who may open them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenants.access import Actor
from tenants.models import Project
from tenants.rules.operator_roles import Rights
from tenants.web.locked_forms import area_of_page

ADMIN, LEAD = "admin", "lead"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of an organisation, or of operators.

    `suffix` is its address below that; `icon` the name in the sprite without its `i-`. `words` find it in
    the search, next to its label. `who` may open it: everybody, leads or admins.
    """

    label: str
    suffix: str
    icon: str
    words: str = ""
    who: str = ""
    about: str = ""

    @property
    def found_by(self) -> str:
        """The text in which a search looks for its words."""
        return f"{self.label} {self.words}".lower()

    def is_open_to(self, actor: Actor) -> bool:
        """Whether the reader may open it."""
        return not self.who or actor.is_tenant_admin or (self.who == LEAD and actor.leads_any)


@dataclass(frozen=True, slots=True)
class NavItem:
    """A link of the shell."""

    label: str
    url: str
    icon: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class NavGroup:
    """Links under one heading; the first group has none. `folds`: closed unless the current page is in it."""

    label: str
    items: tuple[NavItem, ...]
    folds: bool = False

    @property
    def is_open(self) -> bool:
        """Whether its links are shown without a click."""
        return not self.folds or any(each.is_current for each in self.items)


# Addresses are literal: reverse() would need the views of every app.
TENANT_NAV: tuple[tuple[str, tuple[Page, ...]], ...] = (
    (
        "",
        (
            Page("Home", "", "home", "start next bookings"),
            Page("Timeline", "timeline", "cal", "grid calendar free gpus"),
            Page("Bookings", "bookings", "list", "reservations jobs"),
            Page("Approvals", "approvals", "check", "requests decide"),
        ),
    ),
    (
        "Organisation",
        (
            Page("Insights", "insights", "gauge", "figures use charts"),
            Page("Workloads", "workloads", "chip", "kinds of work profiles"),
            Page("Budgets", "budgets", "coin", "money cost spend alerts limits"),
            Page("Statements", "statements", "list", "bills invoices charges"),
            Page("Quotas", "quotas", "gauge", "limits guarantee share"),
            Page("Rented GPUs", "capacity", "plus", "cloud burst machines sprints"),
            Page("People", "people", "people", "members roles leads admins invite projects"),
            Page("Log", "log", "log", "audit changes"),
            Page("Settings", "organisation", "gear", "organisation sign-on webhooks tokens"),
        ),
    ),
    (
        "Platform",
        (
            Page("Fleet", "fleet", "chip", "nodes gpus machines hardware"),
            Page("Tiers", "tiers", "tiers", "priority pause spot standard"),
            Page("Prices", "prices", "tag", "cost rate"),
        ),
    ),
)
OPERATOR_NAV: tuple[tuple[str, tuple[Page, ...]], ...] = (
    (
        "",
        (
            Page("Overview", "overview", "home"),
            Page("Fleet", "fleet", "chip", "nodes gpus machines"),
            Page("Bookings", "bookings", "list", "queue waits jobs"),
            Page("Timeline", "timeline", "cal"),
            Page("Decisions", "decisions", "flask", "replay cycle"),
            Page("Insights", "insights", "gauge", "figures charts"),
        ),
    ),
    (
        "Fleet",
        (
            Page("Maintenance", "maintenance", "wrench", "outage freeze drain"),
            Page("Moves", "compaction", "swap", "compaction relocation"),
            Page("Stops", "stops", "block", "freeze"),
            Page("Contested pauses", "appeals", "pause", "appeals objections"),
            Page("Capacity", "capacity", "gauge", "demand report purchases"),
            Page("Machines", "machines", "plus", "cloud burst providers rented orphans"),
            Page("Zones", "zones", "home", "sites racks electricity price carbon co2 storage"),
            Page("Engines", "engines", "chip", "slurm kubernetes enrol hosts identity"),
            Page("Other clusters", "clusters", "chip", "slurm sacct import observe accounts"),
        ),
    ),
    (
        "Rules",
        (
            Page("Policy", "policy", "shield", "solver weights order lab"),
            Page("Tiers", "tiers", "tiers", "priority pause"),
            Page("Quotas", "quotas", "gauge", "guarantees organisations"),
            Page("Exceptions", "overrides", "plus", "overrides requests for more"),
            Page("Catalogue", "catalogue", "list", "gpu classes models"),
            Page("Speeds", "speeds", "clock", "relative speed classes"),
            Page("Requirements", "requirements", "check", "terms training"),
        ),
    ),
    (
        "Money",
        (
            Page("Prices", "prices", "tag", "price book drafts"),
            Page("Budgets", "budgets", "coin", "platform alerts"),
            Page("Corrections", "corrections", "undo", "refund charge"),
            Page("Disputes", "disputes", "chat"),
        ),
    ),
    (
        "People",
        (
            Page("Organisations", "tenants", "people", "tenants customers"),
            Page("Accounts", "accounts", "user", "passwords operators"),
            Page("Access", "access", "shield", "read as organisation"),
            Page("Roles", "roles", "shield", "operators rights second person"),
            Page("Announcements", "announcements", "bell"),
        ),
    ),
    (
        "System",
        (
            Page("Portal", "portal", "gear", "health status"),
            Page("Webhooks", "webhooks", "link"),
            Page("Failed messages", "failed-messages", "warn"),
            Page("Log", "log", "log", "audit"),
        ),
    ),
)
# Operator pages that belong under another page of the navigation.
UNDER = {"/ops/install": "/ops/fleet", "/ops/setup": "/ops/fleet"}

ORGANISATION: tuple[tuple[str, tuple[Page, ...]], ...] = (
    (
        "People and access",
        (
            Page("People", "people", "people", about="Everybody with their roles; invitations; projects."),
            Page(
                "Sign-on",
                "settings/sign-on",
                "user",
                "sso oidc provider",
                ADMIN,
                "People sign in at your organisation’s provider, with roles by group.",
            ),
            Page(
                "Directory",
                "settings/directory",
                "list",
                "scim provisioning",
                ADMIN,
                "Your directory creates, changes and disables accounts by SCIM.",
            ),
        ),
    ),
    (
        "Programs",
        (
            Page(
                "Tokens",
                "organisation/tokens",
                "link",
                "api tokens of everybody revoke",
                ADMIN,
                "API tokens of everybody: who has which, when each ends, and to revoke one.",
            ),
            Page(
                "Service accounts",
                "settings/service-accounts",
                "chip",
                "programs ci robots",
                LEAD,
                "Accounts of programs that belong to a project and not to a person.",
            ),
            Page(
                "Webhooks",
                "settings/webhooks",
                "swap",
                "events http callbacks",
                LEAD,
                "Programs that are called when bookings, budgets or nodes change.",
            ),
            Page(
                "Chat",
                "settings/chat",
                "chat",
                "slack teams mattermost",
                "",
                "Notifications in Slack, Teams, Mattermost and others, for you or a project.",
            ),
            Page("Jira", "settings/jira", "check", "issues tickets", ADMIN, "Issues ask for bookings."),
            Page(
                "Policy hook",
                "settings/policy-hook",
                "shield",
                "admission webhook",
                ADMIN,
                "An address of yours that admits, changes or denies requests.",
            ),
        ),
    ),
    (
        "Limits and rules",
        (
            Page(
                "Labs and limits",
                "labs",
                "gauge",
                "labs persons windows quotas",
                about="Labs above projects, limits of persons, and limits at some times.",
            ),
            Page(
                "Approval rules",
                "approvals/rules",
                "check",
                "who approves",
                about="Which new bookings wait for an approval, and who decides.",
            ),
            Page(
                "Tier limits",
                "tiers/limits",
                "tiers",
                "who may use a tier hours length",
                about="Who may use a tier, for how long, and at which hours.",
            ),
            Page(
                "Training",
                "requirements",
                "log",
                "terms requirements",
                about="What people accept or learn before they use a class or tier.",
            ),
        ),
    ),
)
PERSONAL = (
    Page("Settings and tokens", "settings", "gear", "api token mail time zone"),
    Page("Notifications", "notifications/settings", "bell", "events mail quiet hours"),
    Page("Calendars", "settings/calendars", "cal", "ics subscribe feed"),
    Page("Saved views", "views", "filter", "filters lists saved"),
)
CHAT = "settings/chat"
AREAS = ("settings", "organisation")


def navigation(
    path: str, actor: Actor | None, projects: tuple[Project, ...], rights: Rights
) -> tuple[NavGroup, ...]:
    """The groups of the side bar."""
    groups: list[NavGroup] = []
    if actor is not None:
        base = f"/t/{actor.tenant_slug}/"
        at = base + "organisation" if _is_only_in_settings(path, base) else path
        groups = [
            NavGroup(label, tuple(_item(at, base, each) for each in pages)) for label, pages in TENANT_NAV
        ]
        groups[1:1] = _projects_nav(path, base, projects)
    at, lead = UNDER.get(path, path), "Operator" if groups else ""
    for label, pages in OPERATOR_NAV:
        items = tuple(_item(at, "/ops/", each) for each in pages if _is_open(each, rights))
        if items:
            name = f"{lead}: {label.lower()}" if lead and label else label or lead
            groups.append(NavGroup(name, items, folds=bool(label)))
    return tuple(groups)


def pages_open(pages: Iterable[Page], rights: Rights) -> Iterator[Page]:
    """Those of operators' pages that these rights open."""
    return (each for each in pages if _is_open(each, rights))


def _is_open(page: Page, rights: Rights) -> bool:
    """Whether the rights read the area that the operators' page declares."""
    area = area_of_page(f"/ops/{page.suffix.partition('?')[0]}")
    return area is not None and rights.may(area)


def operator_pages(rights: Rights) -> Iterator[Page]:
    """The operators' pages that these rights open."""
    return pages_open((each for _, pages in OPERATOR_NAV for each in pages), rights)


def area_of(path: str, actor: Actor | None) -> NavGroup | None:
    """The strip of the area of settings to which the page belongs; None outside of them."""
    if actor is None:
        return None
    base = f"/t/{actor.tenant_slug}/"
    own = personal_pages(actor)
    if any(_is_at(path, base, each) for each in own):
        return NavGroup("Your settings", _strip(path, base, own))
    pages = [Page("Overview", "organisation", "gear"), *organisation_pages(actor)]
    if not any(_is_at(path, base, each) for each in pages):
        return None
    return NavGroup("Settings of the organisation", _strip(path, base, pages))


def organisation_pages(actor: Actor) -> list[Page]:
    """The pages of the organisation's settings that the reader may open."""
    return [each for _, pages in ORGANISATION for each in pages if each.is_open_to(actor)]


def personal_pages(actor: Actor) -> list[Page]:
    """The pages of a person's own settings. Who leads nothing has their chat channels here."""
    if actor.is_tenant_admin or actor.leads_any:
        return list(PERSONAL)
    return [*PERSONAL, *(each for each in organisation_pages(actor) if each.suffix == CHAT)]


def pages_of(actor: Actor) -> Iterator[Page]:
    """Every page of the organisation that has an address of its own and that the reader may open."""
    seen: set[str] = set()
    groups = [*(pages for _, pages in TENANT_NAV), PERSONAL, *(pages for _, pages in ORGANISATION)]
    for page in (each for pages in groups for each in pages):
        if page.suffix not in seen and page.is_open_to(actor):
            seen.add(page.suffix)
            yield page


def pages_found(pages: Iterable[Page], text: str) -> list[Page]:
    """Those of the pages that have all words of the text in their name or search words."""
    words = text.lower().split()
    return [page for page in pages if words and all(word in page.found_by for word in words)]


def _is_only_in_settings(path: str, base: str) -> bool:
    """Whether the side bar has no link of its own to the settings page."""
    linked = {each.suffix for _, pages in TENANT_NAV for each in pages}
    pages = (each for _, group in ORGANISATION for each in group)
    return any(_is_at(path, base, page) and page.suffix not in linked for page in pages)


def _strip(path: str, base: str, pages: Sequence[Page]) -> tuple[NavItem, ...]:
    return tuple(
        NavItem(each.label, base + each.suffix, each.icon, _is_at(path, base, each)) for each in pages
    )


def _is_at(path: str, base: str, page: Page) -> bool:
    """Whether the address is of the page, or of a row of it. Areas themselves have no rows."""
    url = base + page.suffix
    return path == url or (page.suffix not in AREAS and path.startswith(url + "/"))


def _projects_nav(path: str, base: str, projects: tuple[Project, ...]) -> list[NavGroup]:
    shown = [project for project in projects if project.is_open]
    if not shown:
        return []
    links = tuple(_item(path, base, Page(each.name, f"p/{each.slug}", "gauge")) for each in shown)
    return [NavGroup("Projects", links)]


def _item(path: str, base: str, page: Page) -> NavItem:
    url = base + page.suffix
    is_current = path == url or (bool(page.suffix) and path.startswith(url + "/"))
    return NavItem(page.label, url, page.icon, is_current)
