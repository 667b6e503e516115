"""Parts of mails."""

from dataclasses import dataclass

from allocation.queries.bookings.calendar import Event


@dataclass(frozen=True, slots=True)
class Attached:
    """A file of a mail."""

    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a mail: a headline, sentences, the page that it is about, and its calendar entry.

    `ends` is the address that ends mails of this kind.
    """

    headline: str
    sentences: tuple[str, ...]
    href: str
    entry: Event | None = None
    link: str = "Open the booking"
    files: tuple[Attached, ...] = ()
    ends: str = ""
