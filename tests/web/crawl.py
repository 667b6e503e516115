"""Every address of the portal, every form on its pages, and text that nobody should send."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlsplit

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
# Percent-encoded where that is the attack: a lone surrogate, half a letter, half an escape.
RAW = {
    "a NUL": "%00",
    "a NUL inside": "a%00b",
    "a lone surrogate": "%ED%A0%80",
    "half a letter": "%C3",
    "an escape cut off": "%E2%8",
    "no escape at all": "%zz",
}
TEXTS = {
    "nothing": "",
    "a very long number": "9" * 400,
    "a number below every column": "-" + "9" * 30,
    "a power of ten": "1e999",
    "no number": "NaN",
    "a digit of another script": "²",
    "digits of another script": "٣٤",
    "the last moment": "9999-12-31T23:59:59Z",
    "the last moment in a form": "9999-12-31T23:59",
    "the last day": "9999-12-31",
    "before all days": "0001-01-01",
    "the last month": "9999-12",
    "a month that is not": "2026-13",
    "a right-to-left override": "abc\u202edef",
    "nothing to see": "a\u200bb",
    "a line break": "a\r\nb: c",
    "a very long text": "x" * 20_000,
    "markup": "<script>{{7*7}}</script>",
    "a statement": "' OR 1=1; --",
    "an address that climbs": "../../etc/passwd",
    "every plane": "\U0010ffff\ufffe\u0301" * 5,
    "a wrong id": "00000000-0000-0000-0000-00000000000g",
    "a list": "[1]",
}


def escaped(texts: Mapping[str, str] = TEXTS) -> dict[str, str]:
    """Every text as it stands in an address."""
    return {**RAW, **{name: quote(text, safe="") for name, text in texts.items()}}


def routes() -> Iterator[str]:
    """Every route, as it is declared."""
    for route, _ in views():
        yield route


def views(found: Iterable[Any] | None = None, before: str = "/") -> Iterator[tuple[str, Any]]:
    """Every route with the view behind it."""
    for each in get_resolver().url_patterns if found is None else found:
        here = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from views(each.url_patterns, here)
        elif isinstance(each, URLPattern):
            yield here, each.callback


def filled(route: str, values: Mapping[str, str], default: str) -> str:
    """The route as an address, with a value for each of its names."""
    address = re.sub(r"<(?:\w+:)?(\w+)>", lambda one: values.get(one[1], default), route)
    return address.replace("^.*$", default).replace("^", "").replace("$", "")


@dataclass
class Form:
    """A form of a page: where it goes, and what it sends as it stands."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class FormReader(HTMLParser):
    """Finds the forms and the links of a page."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.forms: list[Form] = []
        self.links: set[str] = set()
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "form":
            self.forms.append(Form(given.get("action") or self.address, given.get("method", "get").upper()))
        elif tag == "a" and given.get("href", "").startswith(("/", "?")):
            self.links.add(given["href"])
        elif tag in {"input", "textarea", "button"} and self.forms and name:
            self.forms[-1].fields.setdefault(name, given.get("value", ""))
        elif tag == "select":
            self._select = name
            if self.forms and name:
                self.forms[-1].fields.setdefault(name, "")
        elif tag == "option" and self.forms and self._select and given.get("value"):
            fields = self.forms[-1].fields
            fields[self._select] = fields.get(self._select) or given["value"]


def forms_of(address: str, html: str) -> tuple[list[Form], set[str]]:
    """The forms of a page, and where it leads."""
    reader = FormReader(address)
    reader.feed(html)
    return reader.forms, reader.links


@dataclass
class Crawler:
    """One role's browser or program; `broken` is what was answered as it must not be."""

    role: str
    client: Client
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    asked: int = 0

    def ask(self, method: str, address: str, body: bytes = b"", content_type: str = "", why: str = "") -> Any:  # noqa: ANN401 (any answer)
        """The answer of any request; addresses are sent as they are."""
        path, _, query = address.partition("?")
        self.asked += 1
        answer = self.client.generic(
            method,
            path,
            body,
            content_type=content_type,
            QUERY_STRING=query,
            headers=dict(self.headers),
        )
        if answer.streaming:
            # A file that is not read to its end would stay open.
            b"".join(answer)
        wrong = answer.status_code >= 500
        if path.startswith("/api/v1/") and answer.status_code >= 400 and method != "HEAD":
            wrong = wrong or answer["Content-Type"] != "application/problem+json"
        if wrong:
            self.broken.append(
                f"{self.role} {method} {address[:120]} {why}: {answer.status_code}"
                f" {answer.headers.get('Content-Type')} {body[:100]!r}"
            )
        return answer

    def submit(self, form: Form, values: Mapping[str, str], why: str = "") -> Any:  # noqa: ANN401
        """Sends a form; values are percent-encoded already."""
        said = "&".join(f"{quote(name, safe='')}={value}" for name, value in values.items())
        path = urlsplit(form.action).path
        if form.method == "GET":
            return self.ask("GET", f"{path}?{said}", why=why)
        kind = "application/x-www-form-urlencoded"
        return self.ask("POST", path, said.encode(), kind, why=why)
