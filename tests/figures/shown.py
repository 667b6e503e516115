"""Reads figures of pages: elements that name theirs with `data-figure`."""

import re
from decimal import Decimal
from html.parser import HTMLParser

VOID = {"input", "br", "img", "hr", "meta", "link", "use", "path", "wbr", "source"}
Key = tuple[str, str, str]
"""The figure, whose it is (`data-of`), and the organisation of the row (`data-tenant`)."""


class FigureReader(HTMLParser):
    """Collects the text of each element with `data-figure`, or its `data-value`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Key, str] = {}
        self._open: list[tuple[str, Key | None]] = []
        self._tenants: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens an element."""
        given = {name: value or "" for name, value in attrs}
        if "data-tenant" in given:
            self._tenants.append((len(self._open), given["data-tenant"]))
        key = None
        if "data-figure" in given:
            tenant = self._tenants[-1][1] if self._tenants else ""
            key = given["data-figure"], given.get("data-of", ""), tenant
            self.found[key] = given.get("data-value", "")
            if "data-value" in given:
                key = None
        if tag not in VOID:
            self._open.append((tag, key))

    def handle_endtag(self, tag: str) -> None:
        """Closes an element, and those in it that HTML closes by itself."""
        while self._open and tag in [each for each, _ in self._open]:
            closed, _ = self._open.pop()
            if self._tenants and self._tenants[-1][0] == len(self._open):
                self._tenants.pop()
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        """Adds text to all open figures."""
        for _, key in self._open:
            if key is not None:
                self.found[key] += data


def figures_of(html: str) -> dict[Key, str]:
    """The figures of a page."""
    reader = FigureReader()
    reader.feed(html)
    return {key: re.sub(r"\s+", " ", text).strip() for key, text in reader.found.items()}


def number_of(text: str) -> Decimal:
    """The number in a figure: `€1,204.50`, `−€0.02`, `12`, `0.5 GPU-hours`; `–` is nothing."""
    if text in ("–", "", "none yet"):
        return Decimal(0)
    found = re.search(r"(−|-)?[^\d−-]*([\d,]+(?:\.\d+)?)", text)
    assert found is not None, text
    number = Decimal(found[2].replace(",", ""))
    return -number if found[1] else number
