"""Lists that people filter and sort: their addresses, and which parameters of these are filters. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

LONGEST_QUERY = 1_000


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list: its `suffix` stands below the address of an organisation, or of operators. The
    `parameters` filter or sort it; those that only turn its pages are not among them."""

    label: str
    suffix: str
    parameters: tuple[str, ...]


LISTS = {
    "bookings": ListPage(
        "Bookings", "bookings", ("state", "project", "mine", "label", "external_ref", "q", "sort")
    ),
    "fleet": ListPage("Fleet", "fleet", ("zone", "view")),
    "log": ListPage("Log", "log", ("who", "kind", "about", "since", "until")),
    "timeline": ListPage("Timeline", "timeline", ("span", "class", "view", "free", "open", "gpu")),
}
"""Lists of an organisation, by their names."""
OPERATOR_LISTS = {
    "bookings": ListPage(
        "Bookings of all organisations", "bookings", ("state", "tenant", "tier", "class", "node", "q", "sort")
    ),
    "fleet": ListPage("Fleet", "fleet", ("zone", "view")),
    "log": ListPage("Log of the platform", "log", ("who", "kind", "about", "since", "until")),
    "decisions": ListPage("Decisions", "decisions", ("did", "tenant", "since", "until")),
    "timeline": ListPage(
        "Timeline of all organisations",
        "timeline",
        ("tenant", "tier", "span", "class", "view", "free", "open", "gpu"),
    ),
}
"""Lists of operators, by their names."""


def query_of(page: ListPage, values: Iterable[tuple[str, str]]) -> str:
    """The filters among the values as the query of an address: always in the same order, without what
    is empty."""
    given = {name: value.strip() for name, value in values}
    return urlencode([(name, given[name]) for name in page.parameters if given.get(name)])


def query_read(page: ListPage, text: str) -> tuple[str, list[str]]:
    """Reads the query of an address; returns it as `query_of`, and names that are no filters of the list."""
    pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
    unknown = sorted({name for name, _ in pairs} - set(page.parameters))
    return query_of(page, pairs), unknown
