"""Requests as one line of text, for a project."""

from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import AskDocument, Parsed, parse_ask
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Catalogue
from allocation.words.refusals import coded_text, refusal_text
from tenants.platform.errors import Refused, invalid


def request_read(
    text: str,
    *,
    project: str,
    zone: str,
    now: datetime,
    first: bool = False,
    many: bool = False,
) -> tuple[AskDocument, str | None]:
    """Returns the structured request of the text, and the tier that it names.

    With `first` a repeating request is allowed, and the result is its first date.
    With `many` an array is allowed, and the result is one run of it.

    Raises:
        Refused: The text can't be read; `param` is `request`.
    """
    reader = QuoteReader()
    found = reader(text, project=project, zone=zone, now=now, first=first, many=many)
    if reader.is_cheapest:
        raise invalid("cheapest_of_what", refusal_text("cheapest_of_what"), "request")
    return found


@dataclass(slots=True)
class QuoteReader:
    """Reads a text as `request_read` does, and notes whether it asks for the cheapest: a quote
    answers that, and nothing else."""

    is_cheapest: bool = False

    def __call__(
        self,
        text: str,
        *,
        project: str,
        zone: str,
        now: datetime,
        first: bool = False,
        many: bool = False,
    ) -> tuple[AskDocument, str | None]:
        """Returns the structured request of the text, and the tier that it names."""
        catalogue = ask_catalogue([(project, project)])
        parsed = parse_ask(text, catalogue=catalogue, now=now, zone=ZoneInfo(zone))
        if parsed.unknown:
            raise _not_understood(text, parsed, lines_that_work(parsed, catalogue, now, zone))
        self.is_cheapest = parsed.cheapest
        try:
            if parsed.is_late:
                return parsed.late_document(first=first, many=many), parsed.tier
            return parsed.document(first=first, many=many), parsed.tier
        except AskError as error:
            refused = invalid(error.code, coded_text(error.text), error.param)
            alternatives = lines_that_work(parsed, catalogue, now, zone) or error.alternatives
            raise replace(refused, alternatives=alternatives) from error


def lines_that_work(parsed: Parsed, catalogue: Catalogue, now: datetime, zone: str) -> list[dict[str, str]]:
    """The corrected lines that are whole requests. Others, which leave a problem, are for people who
    read on as they type."""
    again = (
        (each, parse_ask(each.text, catalogue=catalogue, now=now, zone=ZoneInfo(zone)))
        for each in parsed.repairs
    )
    return [{"request": each.text} for each, found in again if not found.problems and not found.missing]


def _not_understood(text: str, parsed: Parsed, lines: list[dict[str, str]]) -> Refused:
    """A refusal with the spans that were not understood and corrected requests."""
    unknown = [each for each in parsed.problems if each.code == NOT_UNDERSTOOD]
    words = ", ".join(f"“{text[each.start : each.end]}”" for each in unknown)
    return Refused(
        NOT_UNDERSTOOD,
        refusal_text("not_understood", words=words, sentence=coded_text(unknown[0].text)),
        "invalid",
        param="request",
        numbers={"spans": [list(span) for span in parsed.unknown]},
        alternatives=lines,
    )
