"""Corrected lines for a line that can't be read: those that the rules of the project would admit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.models import Gpu
from allocation.rules.ask import AskDocument, Parsed, Repair
from allocation.services.bookings.checks.admission import Asker, admitted
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.hosts import where_check
from allocation.services.bookings.remedy_lines import with_lines
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, dates_refused, series_check
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import Refused

MOST_TRIED = 6
"""Lines of one problem that are tried: each costs about as much as a booking's own check."""
_OF_ALL_LINES = ("terms_missing", "training_missing", "stopped")
"""Refusals that no other line would avoid."""


@dataclass(frozen=True, slots=True)
class LineRules:
    """What a corrected line is tried by: the rules of a project for who asks, and of `tier` unless it
    names another."""

    actor: Actor
    project: Project
    tier: str
    now: datetime
    zone: ZoneInfo

    def admitted(self, repairs: Iterable[Repair], read: Callable[[str], Parsed]) -> tuple[Repair, ...]:
        """Returns the lines that are admitted or still lack something. In place of the first that is
        refused is the nearest line that would be admitted."""
        kept: dict[str, Repair] = {}
        is_first = True
        for number, each in enumerate(repairs):
            found = read(each.text)
            is_tried = number < MOST_TRIED and not found.problems and not found.missing
            if not is_tried or not self._refuses(found):
                kept.setdefault(each.text, each)
            elif is_first:
                is_first, nearest = False, self._nearest(found, read)
                kept |= {nearest.text: nearest} if nearest else {}
        return tuple(kept.values())

    def _refuses(self, parsed: Parsed) -> bool:
        try:
            ask, asker = _ask_of(parsed), self._asker(parsed)
            admitted(self.project, parsed.tier or self.tier, ask, self.now, asker)
            if repeat := _repeat_of(parsed):
                terms = self._request(parsed, ask)
                return dates_refused(self.actor, self.project, terms, repeat, self.now) is not None
        except AskError:
            return True
        except Refused as refusal:
            return refusal.code not in _OF_ALL_LINES
        return False

    def _nearest(self, parsed: Parsed, read: Callable[[str], Parsed]) -> Repair | None:
        """Returns the first line that the rules offer instead. That of an array would be of one run."""
        if parsed.array is not None:
            return None
        try:
            ask = _ask_of(parsed)
            self._check(parsed, ask)
        except AskError:
            return None
        except Refused as refusal:
            shown = with_lines(refusal, ask, self.zone, parsed.repeat, parsed.tier or "")
            lines = (each["request"] for each in shown.alternatives if "request" in each)
            return next(
                (Repair(line, line) for line in lines if not self._moves_day(parsed, read(line))), None
            )
        return None

    def _moves_day(self, parsed: Parsed, other: Parsed) -> bool:
        """Whether the other starts on another day than was said: a button that does so would book a day
        that nobody meant."""
        said = parsed.starts or parsed.not_before
        if said is None or parsed.repeat is not None:
            return False
        found = other.starts or other.not_before
        return found is not None and found.astimezone(self.zone).date() != said.astimezone(self.zone).date()

    def _check(self, parsed: Parsed, ask: AskDocument) -> None:
        """Raises the refusal of the line, with what would work."""
        if repeat := _repeat_of(parsed):
            series_check(self.actor, self.project, self._request(parsed, ask), repeat, self.now)
            return
        admission_check(
            project=self.project,
            tier_slug=parsed.tier or self.tier,
            ask=ask,
            now=self.now,
            asker=self._asker(parsed),
        )

    def _request(self, parsed: Parsed, ask: AskDocument) -> BookingRequest:
        tier = parsed.tier or self.tier
        return BookingRequest(self.project.slug, tier, ask, zone=self.zone.key)

    def _asker(self, parsed: Parsed) -> Asker:
        is_many = parsed.repeat is not None or parsed.array is not None
        return Asker(self.actor.user_id, is_many=is_many, zone=self.zone.key)


def _repeat_of(parsed: Parsed) -> Repeat | None:
    rule = parsed.repeat
    return Repeat(rule, keeps_end=parsed.ends is not None) if rule else None


def _ask_of(parsed: Parsed) -> AskDocument:
    return parsed.document(first=True, many=True)


def is_there(parsed: Parsed) -> bool:
    """Whether the site has the GPUs of a request where it wants them, used or not."""
    try:
        ask = _ask_of(parsed)
        where_check(ask)
    except (AskError, Refused):
        return False
    whole = (part for part in ask.parts if part.profile is None and part.share is None)
    return all(part.count <= Gpu.objects.filter(gpu_class__in=part.classes).count() for part in whole)
