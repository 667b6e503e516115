"""When the last run of an array ends: an estimate for its quote."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from allocation.services.quotes.quote_options import QuoteOption
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.snapshot import instant, seconds
from allocation.solver import Availability, QuoteRequest, Runs
from allocation.words.quotes import note_text


def array_ends(
    site: Availability,
    options: Iterable[QuoteOption],
    questions: Mapping[str, QuoteRequest],
    runs: Runs,
) -> Iterator[QuoteOption]:
    """Yields options of one run with the estimated end of the last of all runs, and what the
    estimate assumes. `questions` are those of the quote by tier."""
    for option in options:
        question = replace(
            questions[option.tier],
            ask=solver_ask(option.ask),
            duration=int((option.ends - option.starts).total_seconds()),
            earliest=seconds(option.starts),
            lengths={},
        )
        last = site.last_run(question, runs)
        note = note_text("array_end", count=last.at_once)
        yield replace(
            option,
            last_end=max(option.ends, instant(last.ends)),
            runs_at_once=last.at_once,
            notes=(note, *option.notes),
        )
