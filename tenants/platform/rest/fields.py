"""Strict serializer fields: no coercion, no unknown names, no ambiguous times."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from threading import local
from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tenants.platform.errors import invalid
from tenants.platform.text import first_invisible, invisible_sentence, without_invisible
from tenants.platform.words import refusal_text

EARLIEST_YEAR, LATEST_YEAR = 2000, 2100
WHOLE_NUMBER_MAX = 2**53 - 1

_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?(?P<offset>[Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
_CLOCK = r"\A([01][0-9]|2[0-3]):[0-5][0-9]\Z"
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MONEY = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_DURATION = re.compile(
    r"P(?=\d|T\d)(?:(?P<weeks>\d{1,3})W)?(?:(?P<days>\d{1,4})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,5})H)?(?:(?P<minutes>\d{1,7})M)?(?:(?P<seconds>\d{1,9})S)?)?",
    re.ASCII,
)
_MOST_SECONDS = 10**9
_MOST_SHOWN = 60
# Error codes of Django REST framework, and ours.
_CODES = {
    "required": "missing_field",
    "null": "wrong_type",
    "invalid": "wrong_type",
    "not_a_list": "wrong_type",
    "not_a_dict": "wrong_type",
    "blank": "empty",
    "empty": "empty",
    "max_length": "too_long",
    "min_length": "too_short",
    "min_value": "out_of_range",
    "max_value": "out_of_range",
    "invalid_choice": "unknown_choice",
}


class Strict(serializers.Serializer[Any]):
    """A serializer that refuses unknown names. Its refusals list the fields and choices."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The fields, with their choices in the refusal of others."""
        fields = super().get_fields()
        for field in fields.values():
            chosen = field.child if isinstance(field, serializers.ListField) else field
            if isinstance(chosen, serializers.ChoiceField) and chosen.choices:
                choices = ", ".join(str(choice) for choice in chosen.choices)
                chosen.error_messages["invalid_choice"] = refusal_text("choose_one_of", choices=choices)
        return fields

    def to_internal_value(self, data: Any) -> Any:  # noqa: ANN401 (the framework's signature)
        """The validated values. Raises ValidationError."""
        if isinstance(data, Mapping):
            unknown = sorted(set(data) - self._names)
            if unknown:
                code = "unknown_field" if self._names else "no_fields"
                name = without_invisible(unknown[0])[:_MOST_SHOWN]
                text = refusal_text(code, name=name, names=", ".join(sorted(self._names)))
                raise serializers.ValidationError({unknown[0]: [text]}, code="unknown_field")
            self._numbers_refuse(data)
        return super().to_internal_value(data)

    def _numbers_refuse(self, data: Mapping[str, Any]) -> None:
        """Refuses numbers as text, and numbers in other scripts or with underscores, which the framework's
        own fields would take. Raises ValidationError."""
        for name, field in self.fields.items():
            one = field.child if isinstance(field, serializers.ListField) else field
            sent = data.get(name)
            values = sent if isinstance(sent, list) else [sent]
            if any(_is_misread(one, value) for value in values):
                raise serializers.ValidationError({name: [one.error_messages["invalid"]]}, code="invalid")

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for name, field in self.fields.items() if not field.read_only)


def _is_misread(field: serializers.Field[Any, Any, Any, Any], value: object) -> bool:
    """Whether the framework's field would read the value as something that nobody wrote."""
    if isinstance(field, serializers.CharField):
        return isinstance(value, int | Decimal)
    if not isinstance(value, str):
        return False
    if isinstance(field, serializers.UUIDField):
        return not value.isascii()
    is_number = isinstance(field, serializers.IntegerField | serializers.FloatField)
    return is_number and not _PLAIN_NUMBER.fullmatch(value)


class Whole(serializers.IntegerField):
    """A whole JSON number: no text, no fraction, no boolean."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (the framework's options)
        super().__init__(**{"max_value": WHOLE_NUMBER_MAX, "min_value": 0, **options})

    def to_internal_value(self, data: Any) -> int:  # noqa: ANN401 (the framework's signature)
        """The number. Raises ValidationError."""
        if type(data) is not int:
            self.fail("invalid")
        return data


# Less than the largest float, so that each number up to it is one.
MOST_NUMBER = 10**300


class Number(serializers.FloatField):
    """A finite JSON number: no text, no boolean."""

    def to_internal_value(self, data: Any) -> float:  # noqa: ANN401 (the framework's signature)
        """The number. Raises ValidationError."""
        is_number = type(data) is int or (type(data) is Decimal and data.is_finite())
        # No `abs`: it overflows for a Decimal of a billion digits.
        if not is_number or not -MOST_NUMBER <= data <= MOST_NUMBER:
            self.fail("invalid")
        return float(data)


class Flag(serializers.BooleanField):
    """A JSON boolean."""

    def to_internal_value(self, data: Any) -> bool:  # noqa: ANN401 (the framework's signature)
        """The boolean. Raises ValidationError."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Text(serializers.CharField):
    """One line of text, in Unicode's composed form, without invisible characters."""

    def to_internal_value(self, data: Any) -> str:  # noqa: ANN401 (the framework's signature)
        """The text in form NFC, trimmed. Raises ValidationError."""
        if not isinstance(data, str):
            self.fail("invalid")
        text = unicodedata.normalize("NFC", super().to_internal_value(data))
        hidden = first_invisible(text)
        if hidden:
            raise serializers.ValidationError(invisible_sentence(hidden), code="bad_text")
        return text


class Money(serializers.DecimalField):
    """An exact amount, as a decimal string (or a JSON number, which is read exactly)."""

    def __init__(
        self,
        *,
        max_digits: int = 18,
        decimal_places: int = 6,
        **options: Any,  # noqa: ANN401 (the framework's options)
    ) -> None:
        super().__init__(max_digits=max_digits, decimal_places=decimal_places, **{"min_value": 0, **options})

    def to_internal_value(self, data: Any) -> Decimal:  # noqa: ANN401 (the framework's signature)
        """The amount. Raises ValidationError."""
        if isinstance(data, Decimal | int) and not isinstance(data, bool):
            data = format(Decimal(data), "f")
        if not isinstance(data, str) or not _MONEY.fullmatch(data):
            raise serializers.ValidationError(
                refusal_text("bad_amount_text"),
                code="bad_amount",
            )
        return super().to_internal_value(data)

    def to_representation(self, value: Any) -> Any:  # noqa: ANN401 (the framework's signature)
        """The amount as text; a negative zero, which sums can have, is zero."""
        text = super().to_representation(value)
        return text if Decimal(text) else text.removeprefix("-")


class Instant(serializers.DateTimeField):
    """A moment in RFC 3339, with its offset from UTC."""

    def to_internal_value(self, value: Any) -> datetime:  # noqa: ANN401 (the framework's signature)
        """The time in UTC, in whole seconds. Raises ValidationError."""
        found = _INSTANT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise _refused_time(refusal_text("instant_form"), "bad_time")
        if found["offset"] is None:
            raise _refused_time(refusal_text("instant_offset"), "naive_time")
        try:
            moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            raise _refused_time(refusal_text("no_such_instant"), "bad_time") from None
        if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            raise _refused_time(refusal_text("instant_range"), "out_of_range")
        return moment.replace(microsecond=0)


class Day(serializers.DateField):
    """A day, as in 2026-11-21."""

    def to_internal_value(self, value: Any) -> date:  # noqa: ANN401 (the framework's signature)
        """The day. Raises ValidationError."""
        try:
            day = date.fromisoformat(value if _DAY.fullmatch(value) else "")
        except (ValueError, TypeError):
            raise _refused_time(refusal_text("day_form"), "bad_time") from None
        if not EARLIEST_YEAR <= day.year <= LATEST_YEAR:
            raise _refused_time(refusal_text("day_range"), "out_of_range")
        return day


class Clock(serializers.RegexField):
    """A time of day, as in 08:00."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (the framework's options)
        super().__init__(_CLOCK, **options)

    def run_validation(self, data: Any = serializers.empty) -> Any:  # noqa: ANN401 (the framework's signature)
        """The time of day. Raises ValidationError."""
        text = super().run_validation(data)
        return time.fromisoformat(text) if isinstance(text, str) else text


@extend_schema_field({"oneOf": [{"type": "string", "format": "duration"}, {"type": "integer", "minimum": 1}]})
class Duration(serializers.Field[timedelta, str | int, str, Any]):
    """A duration in whole seconds, or in ISO 8601 up to weeks, such as PT6H or P1DT12H."""

    def to_internal_value(self, data: Any) -> timedelta:  # noqa: ANN401 (the framework's signature)
        """The duration, more than zero. Raises ValidationError."""
        length = timedelta(seconds=_seconds(data))
        if length <= timedelta():
            raise _refused_time(refusal_text("duration_zero"), "out_of_range")
        return length

    def to_representation(self, value: timedelta) -> str:
        """The duration in ISO 8601, such as PT6H."""
        return iso_duration(int(value.total_seconds()))


def _seconds(data: object) -> float:
    """The seconds of an integer or an ISO 8601 duration. Raises ValidationError."""
    if type(data) is int and abs(data) <= _MOST_SECONDS:
        return data
    found = _DURATION.fullmatch(data) if isinstance(data, str) else None
    if found is None:
        raise _refused_time(refusal_text("duration_form"), "bad_duration")
    parts = {unit: int(n) for unit, n in found.groupdict().items() if n}
    return timedelta(**parts).total_seconds()


def iso_duration(seconds: int) -> str:
    """`PT6H30M` for 23400 seconds; hours are never converted to days."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (left, "S")) if n]
    return "PT" + ("".join(parts) or "0S")


_forms = local()


def _form_of(serializer: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """The serializer of this thread: its fields are copied once, which takes longer than to
    validate with them."""
    kept: dict[type[serializers.Serializer[Any]], serializers.Serializer[Any]]
    kept = vars(_forms).setdefault("by_type", {})
    if serializer not in kept:
        kept[serializer] = serializer()
    return kept[serializer]


def validated(serializer: type[serializers.Serializer[Any]], data: Mapping[str, Any]) -> Any:  # noqa: ANN401 (one object or values of many shapes)
    """The validated values of `data`.

    Raises:
        Refused: for the first invalid field, with its path as `param`.
    """
    form = _form_of(serializer)
    form.initial_data = data
    # Serializers of dataclasses keep the values of the request before, too.
    for kept in ("_validated_data", "validated_data"):
        vars(form).pop(kept, None)
    if form.is_valid():
        return form.validated_data
    path, code, sentence = _first(form.errors)
    raise invalid(_CODES.get(code, code), sentence, path)


def single_values(parameters: QueryDict) -> dict[str, str]:
    """The query parameters, each of which may be given once.

    Raises:
        Refused: `repeated_param`, `bad_text`.
    """
    for name, values in parameters.lists():
        hidden = first_invisible(name) or first_invisible("".join(map(str, values)))
        if hidden:
            raise invalid("bad_text", invisible_sentence(hidden), without_invisible(name))
        if len(values) > 1:
            raise invalid("repeated_param", refusal_text("repeated_param"), name)
    return {name: str(value) for name, value in parameters.items()}


def _first(errors: Any, path: str = "") -> tuple[str, str, str]:  # noqa: ANN401 (nested as the body is)
    if isinstance(errors, dict):
        name, inner = next((name, inner) for name, inner in errors.items() if inner)
        own = path if name == "non_field_errors" else f"{path}.{name}".lstrip(".")
        return _first(inner, own)
    if isinstance(errors, list):
        return _first(next(error for error in errors if error), path)
    return path, str(getattr(errors, "code", "invalid")), str(errors)


def _refused_time(sentence: str, code: str) -> serializers.ValidationError:
    return serializers.ValidationError(sentence, code=code)
