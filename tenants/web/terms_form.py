"""Forms of pages, from the declarations of terms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from dataclasses import Field as Declared
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from types import MappingProxyType, UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from django import forms
from django.utils import timezone

from tenants.platform.errors import Refused
from tenants.platform.labels import labels_read, labels_text
from tenants.platform.rest.fields import EARLIEST_YEAR, LATEST_YEAR
from tenants.platform.terms import Said
from tenants.platform.words import refusal_text
from tenants.services.input_values import (
    clock_read,
    names_read,
    number_read,
    seconds_read,
    whole_read,
)
from tenants.web.parts import Field

Choices = Iterable[tuple[object, object]]
_READ: dict[object, tuple[Callable[..., object], dict[str, str]]] = {
    int: (whole_read, {"inputmode": "numeric"}),
    Decimal: (number_read, {"inputmode": "decimal"}),
    time: (clock_read, {"type": "time"}),
    Sequence: (names_read, {}),
    Mapping: (labels_read, {}),
    "length": (seconds_read, {}),
}
"""What reads a line of a type, and how its input looks."""


class TermsForm(forms.Form):
    """The form of one command. `choices`: what a field offers; the service decides what it takes.

    Days are those of the reader's zone, in which pages are rendered.
    """

    def __init__(
        self,
        terms: type[Any],
        choices: Mapping[str, Choices] | None = None,
        sent: Mapping[str, Any] | None = None,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sent, initial=dict(initial or {}))
        self.choices = choices or {}
        self._terms = terms
        self._asked: dict[str, tuple[str, Said]] = {}
        self._types = types = get_type_hints(terms)
        for each in fields(terms):
            said = _said(each)
            if said.label:
                name, offers = said.name or each.name, each.name in self.choices
                self._asked[name] = each.name, said
                self.fields[name] = _input(each, types[each.name], said, has_choices=offers)

    def terms(self) -> Any:  # noqa: ANN401 (an instance of the terms)
        """The terms of a valid form; what is left empty is as by default."""
        cleaned = {name: value for name, value in self.cleaned_data.items() if value is not None}
        return self._terms(**{self._asked[name][0]: self._value(name, cleaned[name]) for name in cleaned})

    def inputs(self, refusal: Refused | None) -> dict[str, Field]:
        """The inputs by their names, with the form's errors or that of the refusal."""
        return {bound.name: self._shown(bound, refusal) for bound in self}

    def _shown(self, bound: forms.BoundField, refusal: Refused | None) -> Field:
        fault = str(bound.errors[0]) if bound.errors else ""
        name, said = self._asked[bound.name]
        if self.is_bound and refusal is not None and refusal.param in (bound.name, name):
            fault = refusal.sentence
        return Field(
            bound.name,
            str(bound.label),
            bound.value() or "",
            hint=str(bound.help_text),
            error=fault,
            required=False,
            id=f"new-{bound.name}",
            placeholder=said.example,
            choices=tuple(self.choices.get(name, ())),
            **vars(bound.field).get("shown", {}),
        )

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401 (a form's values)
        field, said = self._asked[name]
        if not isinstance(value, date) or isinstance(value, datetime) or self._types[field] is date:
            return value
        day = value + timedelta(days=1) if said.asks == "last_day" else value
        return datetime.combine(day, time(), timezone.get_current_timezone())


def paragraphs_of(terms: type[Any] | None) -> frozenset[str]:
    """Returns the names of the inputs into which several lines can be typed."""
    asked = [(each.name, _said(each)) for each in fields(terms)] if terms is not None else []
    return frozenset(said.name or name for name, said in asked if said.asks == "paragraphs")


class _Read(forms.CharField):
    """A line that a function reads; empty is None, but what is filled in beforehand may not be emptied."""

    def __init__(
        self,
        read: Callable[[str], object],
        *,
        reads_empty: bool = False,
        limits: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,  # noqa: ANN401 (a field's)
    ) -> None:
        super().__init__(**options)
        self.read, self.limits = read, limits
        self.reads_empty = reads_empty and (self.required or self.initial is not None)
        self.required = self.required and not reads_empty

    def clean(self, value: Any) -> Any:  # noqa: ANN401 (a form's values)
        """The value. Raises ValidationError."""
        if value == "" and isinstance(self.initial, int | time) and not self.reads_empty:
            raise forms.ValidationError(self.error_messages["required"])
        text = super().clean(value)
        try:
            return self._within(self.read(text)) if text or self.reads_empty else None
        except Refused as refusal:
            raise forms.ValidationError(refusal.sentence) from refusal

    def _within(self, value: Any) -> object:  # noqa: ANN401 (a form's values)
        """A number within its limits. Raises ValidationError."""
        least, most = self.limits.get("min_value"), self.limits.get("max_value")
        if least is not None and value < least:
            raise forms.ValidationError(refusal_text("number_least", least=least))
        if most is not None and value > most:
            raise forms.ValidationError(refusal_text("number_most", most=most))
        return cast(object, value)

    def prepare_value(self, value: Any) -> Any:  # noqa: ANN401 (a form's values)
        """The value as it is typed."""
        if isinstance(value, Mapping):
            return labels_text(value)
        if isinstance(value, list | tuple):
            return ", ".join(value)
        return f"{value:%H:%M}" if isinstance(value, time) else value


class _Secret(forms.CharField):
    """A text that no page shows again."""

    def prepare_value(self, value: Any) -> str:  # noqa: ANN401 (a form's values)
        """Nothing."""
        return ""


class _Several(forms.MultipleChoiceField):
    """Those that are ticked."""

    def valid_value(self, value: str) -> bool:
        """Takes any: the service decides."""
        return True


def _said(declared: "Declared[Any]") -> Said:
    found: Said = declared.metadata.get("said", Said())
    return found


def _input(declared: "Declared[Any]", hint: object, said: Said, *, has_choices: bool) -> forms.Field:
    """The field of a form; `shown` is how its input looks."""
    has_default = declared.default is not MISSING
    members = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next(each for each in members if each is not type(None))
    options: dict[str, Any] = {
        "required": not has_default and kind is not bool,
        "initial": declared.default if has_default else None,
        "label": said.label,
        "help_text": said.hint,
        "error_messages": {
            "required": refusal_text("value_missing"),
            "invalid": refusal_text("moment_form" if said.asks == "moment" else "day_form"),
        },
    }
    found: forms.Field
    shown: dict[str, Any]
    if get_origin(kind) is Sequence and has_choices:
        found, shown = _Several(**options), {"type": "checks"}
    elif kind is date or said.asks in ("first_day", "last_day"):
        found = forms.DateField(**options, input_formats=["%Y-%m-%d"], validators=[_in_range])
        shown = {"type": "date"}
    elif said.asks == "moment":
        found = forms.DateTimeField(**options, validators=[_in_range])
        shown = {"type": "datetime-local"}
    elif kind is bool:
        found, shown = forms.BooleanField(**options), {"type": "checkbox"}
    elif said.reads is not None:
        reads_own = partial(said.reads, param=said.name or declared.name)
        found, shown = _Read(reads_own, reads_empty=True, **options), {"maxlength": _longest(declared)}
    elif said.asks == "secret":
        found, shown = _Secret(**options), {"type": "password"}
    elif (reads := "length" if said.asks == "length" else get_origin(kind) or kind) in _READ:
        read, shown = _READ[reads]
        options |= {"limits": declared.metadata["serializer_kwargs"]} if reads in (int, Decimal) else {}
        found = _Read(partial(read, param=declared.name), reads_empty=reads is Sequence, **options)
    else:
        found, shown = _line(declared, kind, said, options)
    vars(found)["shown"] = shown
    return found


def _line(
    declared: "Declared[Any]", kind: object, said: Said, options: dict[str, Any]
) -> tuple[forms.Field, dict[str, Any]]:
    """The field of a text, or of one of those declared, and how its input looks."""
    if get_origin(kind) is Literal:
        return forms.CharField(**options, validators=[partial(_one_of, get_args(kind))]), {}
    longest = _longest(declared)
    if said.asks == "paragraphs":
        # A browser sends each end of a line as two characters, which the service counts as one.
        return forms.CharField(**options), {"maxlength": longest, "type": "paragraphs"}
    shown = {"maxlength": longest} | ({"type": "url"} if said.asks == "url" else {})
    return forms.CharField(**options, max_length=longest), shown


def _longest(declared: "Declared[Any]") -> int | None:
    found: int | None = declared.metadata["serializer_kwargs"].get("max_length")
    return found


def _one_of(names: tuple[str, ...], name: str) -> None:
    """Raises ValidationError for a value that is none of those declared."""
    if name not in names:
        raise forms.ValidationError(refusal_text("choose_one_of", choices=", ".join(filter(None, names))))


def _in_range(day: date) -> None:
    """Raises ValidationError for a year that nobody means; at its end the calendar has no next day."""
    if not EARLIEST_YEAR <= day.year <= LATEST_YEAR:
        raise forms.ValidationError(refusal_text("day_range"))
