"""The scope of a change of a date of a series: this date, the following ones, or all."""

from datetime import datetime
from zoneinfo import ZoneInfo

from allocation.models import Booking
from allocation.services.bookings.change.changes import Patch
from allocation.services.bookings.change.series import DateAnswer, Scope, SeriesPatch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.quotes.series_changes import SeriesQuote
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.platform.errors import invalid
from tenants.web.parts import Field

SCOPES = (
    (Scope.THIS.value, "This date"),
    (Scope.FOLLOWING.value, "This and the following dates"),
    (Scope.ALL.value, "All dates that have not begun"),
)
PARTS = (
    ("all", "All dates change, or none"),
    ("fit", "Change the dates that fit"),
    ("wait", "All wait until there is room for all"),
    ("each", "Each date waits until there is room for it"),
)
OWN = (("stay", "They stay as they are"), ("overwrite", "Change them, too"))


def scope_fields(values: dict[str, str]) -> list[Field]:
    """The fields of the scope, with what was chosen."""
    choices = (
        ("scope", "Applies to", SCOPES),
        ("parts", "If a date does not fit", PARTS),
        ("own", "Dates changed on their own", OWN),
    )
    return [
        Field(name, label, values.get(name, options[0][0]), choices=options, id=f"change-{name}")
        for name, label, options in choices
    ]


def scope_of(values: dict[str, str]) -> Scope:
    """The scope that was chosen."""
    chosen = values.get("scope", "")
    return Scope(chosen) if chosen in {each.value for each in Scope} else Scope.THIS


def series_patch_of(booking: Booking, patch: Patch, values: dict[str, str]) -> SeriesPatch:
    """The change of the series that says at each date what the form says about this one.

    Raises:
        Refused: `series_other_day`.
    """
    old = target_of(booking)
    ask = patch.ask or old.ask
    at = None
    if ask.starts is not None and ask.starts != old.ask.starts and booking.series is not None:
        zone = ZoneInfo(booking.series.zone)
        local = ask.starts.astimezone(zone)
        if local.date() != _day(old.ask.starts or ask.starts, zone):
            raise invalid("series_other_day", refusal_text("series_other_day"), "starts")
        at = local.time()
    return SeriesPatch(
        scope_of(values),
        at=at,
        duration=ask.duration if ask.duration != old.ask.duration else None,
        count=ask.count if ask.count != old.ask.count else None,
        classes=ask.classes if ask.classes != old.ask.classes else None,
        pin=ask.pin if ask.pin != old.ask.pin else None,
        data=ask.data if ask.data != old.ask.data else None,
        tier=patch.tier if patch.tier != old.tier else None,
        name=patch.name if patch.name != old.name else None,
        is_partial=values.get("parts") in ("fit", "each"),
        waits=values.get("parts") in ("wait", "each"),
        overwrite=values.get("own") == "overwrite",
    )


def _day(moment: datetime, zone: ZoneInfo) -> object:
    return moment.astimezone(zone).date()


def made_words(answers: list[DateAnswer]) -> str:
    """What became of the dates: `2 dates are changed, 1 stays.`"""
    outcomes = [each.outcome for each in answers]
    return outcome_words({name: outcomes.count(name) for name in set(outcomes)})


def outcome_words(outcomes: dict[str, int]) -> str:
    """Dates by outcome: `3 dates change at once. 1 date stays as it was changed on its own.`"""
    said = []
    for name, one, many in _OUTCOMES:
        count = outcomes.get(name, 0)
        if count:
            said.append(f"1 date {one}." if count == 1 else f"{count} dates {many}.")
    return " ".join(said)


_OUTCOMES = (
    ("changed", "changes at once", "change at once"),
    ("asked", "is decided in a few seconds", "are decided in a few seconds"),
    ("own", "stays as it was changed on its own", "stay as they were changed on their own"),
    ("refused", "can't change", "can't change"),
)


def conflict_words(quote: SeriesQuote, patch: SeriesPatch) -> str:
    """What conflicts of some dates mean for all of them; empty without any."""
    count, dates = len(quote.conflicts), sum(quote.outcomes.values())
    if not quote.is_known:
        return "The plan is too large to say here for which dates there is no room."
    if not count:
        return ""
    said = f"{count} of {dates} dates {'does' if count == 1 else 'do'} not fit now."
    if patch.waits:
        return f"{said} The change waits for room."
    if patch.is_partial:
        return f"{said} {'It stays as it is.' if count == 1 else 'They stay as they are.'}"
    return f"{said} All dates stay as they are."


def price_words(quote: SeriesQuote) -> tuple[str, str]:
    """The most that the dates cost, after and before, and the difference."""
    after, before = (money_text(each, quote.currency) for each in (quote.after, quote.before))
    change = quote.after - quote.before
    sign = "+" if change > 0 else "−"
    more = f"{sign}{money_text(abs(change), quote.currency)}" if change else "no difference"
    return f"{after} (now {before})", more
