"""When it is asked for: the parts about time put together, wherever in the line each is said."""

from allocation.rules.ask.when.days import days_rule
from allocation.rules.ask.when.deadlines import set_deadline, until_as_deadline
from allocation.rules.ask.when.moment import clock_in_part, is_consistent
from allocation.rules.ask.when.starts import earliest_rule, immediate_rule, start_rule
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.when.windows import overnight_rule, until_rule, whole_rule, window_rule
from allocation.rules.ask.words.reading import Reading


def _is_sound(reading: Reading, when: When) -> bool:
    """Whether the days and times that stand alone can be meant together."""
    plain = when.plain
    if plain is None or not is_consistent(reading, plain):
        return plain is None and "plain" not in when.seen
    if plain.clock and plain.part:
        clock_in_part(reading, plain)
    return not plain.is_wrong


def when_resolve(reading: Reading, when: When) -> None:
    """Make the window of all that was said about time; trouble is noted where there is none."""
    if not _is_sound(reading, when):
        return
    for rule in _WINDOWS:
        if rule(reading, when):
            break
    if when.deadline is not None:
        set_deadline(reading, when)
    elif when.until is not None and "starts" not in reading.values:
        until_as_deadline(reading, when)


_WINDOWS = (
    immediate_rule,
    whole_rule,
    overnight_rule,
    window_rule,
    start_rule,
    earliest_rule,
    days_rule,
    until_rule,
)
