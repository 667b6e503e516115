"""The understood request as one sentence that names the day."""

from collections.abc import Mapping

from allocation.rules.ask import AskDocument, Parsed
from allocation.rules.ask.words.times import duration_words
from allocation.web.bookings.summary import shape_words

# The sentence already contains these fields.
_SAID_TEXT = "count classes profile share gigabytes slice any day duration anytime start"
_SAID = frozenset(_SAID_TEXT.split())
_TIMES = frozenset({"starts", "not_before", "deadline"})


def understood_words(ask: AskDocument, parsed: Parsed, labels: Mapping[str, str]) -> str:
    """`2 × H100 80 GB for 6 h, starts exactly Fri 27 Nov 22:00`."""
    names = " or ".join(labels.get(slug, slug) for slug in ask.classes)
    shape = shape_words(ask.count, names, ask.profile, ask.share)
    words = [f"{shape} for {duration_words(ask.duration)}"]
    words += [part.meaning for part in parsed.parts if part.field not in _SAID]
    if not _TIMES.intersection(part.field for part in parsed.parts):
        words.append("as soon as possible")
    return ", ".join(words)
