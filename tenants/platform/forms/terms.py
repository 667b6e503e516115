"""Forms of pages, from the declarations of terms."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from tenants.platform.rest.fields import EARLIEST_YEAR, LATEST_YEAR
from tenants.platform.terms import Said
from tenants.platform.words import refusal_text

Choices = Iterable[tuple[object, object]]


class TermsForm(forms.Form):
    """The form of one command. `choices`: what a field offers; the service decides what it takes.

    Days are those of the reader's zone, in which pages are rendered.
    """

    def __init__(
        self,
        terms: type[Any],
        choices: Mapping[str, Choices] | None = None,
        sent: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sent)
        self.declared = {each.name: each for each in fields(terms) if _said(each).label}
        self.choices = choices or {}
        self._terms = terms
        for name, each in self.declared.items():
            self.fields[name] = _input(each)

    def terms(self) -> Any:  # noqa: ANN401 (an instance of the terms)
        """The terms of a valid form."""
        values = {name: self._value(name, value) for name, value in self.cleaned_data.items()}
        return self._terms(**values)

    def asks_day(self, name: str) -> bool:
        """Whether an input is for a day."""
        return _said(self.declared[name]).asks != "text"

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401 (a form's values)
        asks = _said(self.declared[name]).asks
        if not isinstance(value, date):
            return value
        day = value + timedelta(days=1) if asks == "last_day" else value
        return datetime.combine(day, time(), timezone.get_current_timezone())


def _said(declared: "Field[Any]") -> Said:
    found: Said = declared.metadata.get("said", Said())
    return found


def _input(declared: "Field[Any]") -> forms.Field:
    said = _said(declared)
    messages = {"required": refusal_text("value_missing"), "invalid": refusal_text("day_form")}
    shown: dict[str, Any] = {
        "required": declared.default is MISSING,
        "label": said.label,
        "help_text": said.hint,
        "error_messages": messages,
    }
    if said.asks != "text":
        return forms.DateField(**shown, input_formats=["%Y-%m-%d"], validators=[_in_range])
    return forms.CharField(**shown, max_length=declared.metadata["serializer_kwargs"].get("max_length"))


def _in_range(day: date) -> None:
    """Raises ValidationError for a year that nobody means; at its end the calendar has no next day."""
    if not EARLIEST_YEAR <= day.year <= LATEST_YEAR:
        raise forms.ValidationError(refusal_text("day_range"))
