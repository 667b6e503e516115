"""Views whose work grows with the site, such as quotes and exports.

The server computes them apart from ordinary requests: a few at once, fairly by person, in processes
of their own (`portal.web.serving`). A view only says that it is one of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from django.views import View as DjangoView

View = TypeVar("View", bound=Callable[..., object])
Kind = Literal[
    "calendar", "decision", "export", "fleet", "preview", "quote", "search", "statement", "timeline"
]
READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Costly:
    """Which requests of a view are costly: those of its methods.

    With `preference` only those whose header `Prefer` has it, and with `needs_query` only those
    with a query. What writes is none of them: it is never refused for quotes.
    """

    kind: Kind
    methods: tuple[str, ...] = READS
    preference: str = ""
    needs_query: bool = False

    def meets(self, method: str, headers: Mapping[bytes, bytes], query: bytes) -> bool:
        """Returns whether such a request is costly. Names of headers are in lower case."""
        if method not in self.methods or (self.needs_query and not query):
            return False
        return self.preference.encode() in headers.get(b"prefer", b"").lower()


def costly(
    kind: Kind, *methods: str, preference: str = "", needs_query: bool = False
) -> Callable[[View], View]:
    """Declares requests of a page or of a REST view as costly; without methods, those that read."""

    def declare(view: View) -> View:
        if isinstance(view, type) and not issubclass(view, DjangoView):
            raise TypeError(f"{view.__name__} is no view: nobody asks it what its requests cost.")
        setattr(view, "costly", Costly(kind, methods or READS, preference, needs_query))  # noqa: B010
        return view

    return declare


def costly_of(view: object) -> Costly | None:
    """Returns what a route's callback declares, or the class that it was made of."""
    found = getattr(view, "costly", None) or getattr(getattr(view, "cls", None), "costly", None)
    return found if isinstance(found, Costly) else None
