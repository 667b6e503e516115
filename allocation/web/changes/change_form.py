"""The form of a change: every part of the request with its present value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from allocation.errors import AskError
from allocation.models import Booking, Zone
from allocation.rules.ask import AskDocument, count_of, data_of, duration_of, pin_of
from allocation.rules.ask.words.document import zones_of
from allocation.rules.ask.words.numbers import length_of
from allocation.rules.ask.words.times import NoSuchTime, duration_words, wall
from allocation.rules.changes import Target
from allocation.rules.states import RUNNING, State
from allocation.services.bookings.change.changes import Patch
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.price_lock import PRICE_LOCK_TIME
from allocation.web.changes.series_scope import scope_fields
from allocation.words.refusals import coded_text, refusal_text
from tenants.models import GpuClass, Tier
from tenants.platform.coded import coded
from tenants.platform.errors import Refused, invalid
from tenants.platform.text import whole_number
from tenants.web.parts import Field

_LOCAL = "%Y-%m-%dT%H:%M"
# As the column holds, and as REST accepts.
_LONGEST_NAME = 80

# Names of refused parts as the form calls them.
_FIELDS = {
    "duration": "length",
    "request": "length",
    "classes": "classes",
    "not_before": "starts",
}


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """The fields of the form as they were typed, or as the booking has them."""

    values: Mapping[str, str]
    zone: tzinfo
    is_begun: bool
    is_fixed: bool
    is_of_series: bool = False
    can_give_back: bool = False

    @classmethod
    def of(cls, booking: Booking, zone: tzinfo) -> "ChangeForm":
        """The form of a booking as it is."""
        target = target_of(booking)
        ask = target.ask
        values = {
            "name": target.name,
            "count": str(ask.count),
            "length": duration_words(ask.duration),
            "starts": _local(ask.starts or ask.not_before, zone),
            "deadline": _local(ask.deadline, zone),
            "classes": " ".join(ask.classes),
            "tier": target.tier,
            "pin": " ".join(ask.pin),
            "zones": " ".join(ask.zones),
            "not_zones": " ".join(ask.not_zones),
            "data": " ".join(ask.data),
            "give_back": "",
            "revision": str(booking.revision),
        }
        is_begun = booking.state in (*RUNNING, State.PAUSED)
        is_of_series = booking.series_id is not None and not is_begun
        can_give_back = booking.state in RUNNING
        return cls(values, zone, is_begun, ask.starts is not None, is_of_series, can_give_back)

    def typed(self, data: Mapping[str, str]) -> "ChangeForm":
        """The form with what was sent; fields that were not sent keep their values."""
        values = {name: data.get(name, old).strip()[:200] for name, old in self.values.items()}
        names = ("start_by", "strength", *(("scope", "parts", "own") if self.is_of_series else ()))
        more = {name: data.get(name, "") for name in names}
        return replace(self, values={**values, **more})

    def dragged(self, booking: Booking, shift: int, grow: int) -> "ChangeForm":
        """The form with a start and a length that differ by seconds from the planned ones."""
        ask = target_of(booking).ask
        values = dict(self.values)
        begins = ask.starts or booking.expected_start or ask.not_before
        if shift and begins is not None:
            values["starts"] = _local(begins + timedelta(seconds=shift), self.zone)
        if grow:
            values["length"] = duration_words(max(0, ask.duration + grow))
        return replace(self, values=values)

    def scoped(self, scope: str) -> "ChangeForm":
        """The form with the dates of the series that change."""
        return replace(self, values={**self.values, "scope": scope}) if self.is_of_series else self

    def patch(self, booking: Booking) -> Patch:
        """The change that the form describes.

        Raises:
            Refused: a field can't be read; `param` names it.
        """
        old, values = target_of(booking), self.values
        if len(values["name"]) > _LONGEST_NAME:
            raise invalid("too_long", refusal_text("name_too_long", longest=_LONGEST_NAME), "name")
        try:
            ask = old.ask if self.is_begun else self._ask(old)
            ask = replace(ask, duration=_length(values["length"], old.ask.duration))
            # Several groups allow neither a pin nor one class twice.
            ask = AskDocument.from_json(ask.to_json()) if ask.groups else ask
            ask.check_window()
            ask.check_where()
        except AskError as error:
            raise invalid(error.code, coded_text(error.text), error.param) from error
        names = tuple(values["give_back"].replace(",", " ").split()) if self.is_begun else ()
        return Patch(
            ask=ask,
            tier=values["tier"],
            name=values["name"],
            accept=self._accept(),
            give_back=names,
        )

    def _ask(self, old: Target) -> AskDocument:
        values, ask = self.values, old.ask
        starts = self._time("starts", ask.starts or ask.not_before)
        deadline = None if self.is_fixed else self._time("deadline", ask.deadline)
        names = [each for each in values["pin"].replace(",", " ").split() if each != "or"]
        count = values["count"]
        return replace(
            ask,
            count=count_of(-1 if (typed := whole_number(count)) is None else typed),
            classes=tuple(values["classes"].split()) or ask.classes,
            pin=pin_of(names),
            zones=zones_of(values["zones"].replace(",", " ").split(), "zones"),
            not_zones=zones_of(values["not_zones"].replace(",", " ").split(), "not_zones"),
            data=data_of(values["data"].lower().replace(",", " ").split()),
            starts=starts if self.is_fixed else None,
            not_before=None if self.is_fixed else starts,
            deadline=deadline,
        )

    def _time(self, name: str, old: datetime | None) -> datetime | None:
        text = self.values[name]
        if text == _local(old, self.zone):
            # The field has no seconds: an unchanged one keeps them.
            return old
        if not text and not (name == "starts" and self.is_fixed):
            return None
        try:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else wall(moment.date(), moment.time(), self.zone)
            moment = moment.astimezone(UTC)
        except NoSuchTime as error:
            raise AskError("no_such_time", error.text, name) from None
        except (ValueError, OverflowError):
            raise AskError("not_a_time", coded("time_example"), name) from None
        return moment.replace(microsecond=0)

    def _accept(self) -> Accept:
        """The bounds of the start that was shown."""
        shown = self.values.get("start_by", "")
        if not (shown.isascii() and shown.isdigit() and len(shown) < 12):
            return Accept()
        by = datetime.fromtimestamp(int(shown), UTC) + PRICE_LOCK_TIME
        strength = self.values.get("strength", "")
        return Accept(start_by=by, strength=strength if strength in _STRENGTHS else "")

    def fields(self, refusal: Refused | None) -> list[Field]:
        """The fields that can be changed in this state, with the refusal at its field."""

        def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
            is_wrong = refusal is not None and _param(refusal) == name
            error = refusal.sentence if refusal is not None and is_wrong else ""
            value = self.values[name]
            return Field(name, label, value, hint=hint, error=error, id=f"change-{name}", **more)

        is_paused = self.is_begun and not self.can_give_back
        length = ("Length", "Such as 6h or 1h30m.")
        if is_paused:
            label = "Length, with the pause" if self.is_fixed else "Time left"
            length = (label, "Until it resumes, it can only become shorter.")
        first = [
            field("name", "Name", required=False, maxlength=_LONGEST_NAME),
            field("length", *length),
        ]
        if is_paused:
            return first
        if self.is_begun:
            hint = "Such as n0003/2, or unused: all without a process."
            return [*first, field("give_back", "GPUs to give back", hint, required=False)]
        start = ("Start", "") if self.is_fixed else ("Not before", "Empty: as soon as possible.")
        window = [
            field("starts", *start, type=_input_of(self.values["starts"]), required=self.is_fixed),
        ]
        if not self.is_fixed:
            hint = "Latest end. Empty: no deadline."
            window.append(
                field("deadline", "Deadline", hint, type=_input_of(self.values["deadline"]), required=False)
            )
        return [
            *first,
            field("count", "Number", inputmode="numeric"),
            *window,
            field("classes", "GPU class", choices=self._classes()),
            field("tier", "Tier", choices=tuple(Tier.objects.values_list("slug", "name"))),
            field("pin", "Only on", "Nodes or GPUs, such as n0003 or n0003/2.", required=False),
            *self._zones(field),
            field("data", "Near data", "Data sets, such as imagenet.", required=False),
            *(scope_fields(dict(self.values)) if self.is_of_series else ()),
        ]

    def _zones(self, field: Callable[..., Field]) -> list[Field]:
        """The fields of zones, where the site has some."""
        names = ", ".join(Zone.objects.filter(ended=None).values_list("slug", flat=True))
        if not names and not self.values["zones"] and not self.values["not_zones"]:
            return []
        return [
            field("zones", "Only in zones", f"Of {names}. Empty: in any.", required=False),
            field("not_zones", "Not in zones", required=False),
        ]

    def _classes(self) -> list[tuple[str, str]]:
        choices = list(GpuClass.objects.values_list("slug", "label"))
        labels, now = dict(choices), self.values["classes"]
        if now not in labels:
            choices.insert(0, (now, " or ".join(labels.get(n, n) for n in now.split())))
        return choices

    @property
    def refused_fields(self) -> frozenset[str]:
        """Names of the fields that this form shows."""
        return frozenset(field.name for field in self.fields(None))


_STRENGTHS = ("firm", "guaranteed", "expected")


def is_of_a_field(refusal: Refused, form: ChangeForm) -> bool:
    """Whether the refusal is shown at one of the form's fields."""
    return _param(refusal) in form.refused_fields


def _param(refusal: Refused) -> str:
    name = (refusal.param or "").removeprefix("ask.")
    return _FIELDS.get(name, name)


def _local(moment: datetime | None, zone: tzinfo) -> str:
    """The local time. The second of two equal ones has its offset from UTC."""
    if moment is None:
        return ""
    local = moment.astimezone(zone)
    return local.isoformat(timespec="minutes") if local.fold else local.strftime(_LOCAL)


def _input_of(text: str) -> str:
    """The type of an input for a time: the browser's own takes no offset."""
    return "text" if "+" in text or text.count("-") > 2 else "datetime-local"


def _length(text: str, old: int) -> int:
    if text == duration_words(old):
        return old
    seconds = length_of(text)
    if seconds is None:
        raise AskError("not_a_duration", coded("duration_example"), "length")
    return duration_of(seconds, "length")
