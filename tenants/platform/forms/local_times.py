"""Local times that people type: one that a clock change repeats is the first of the two, one that it
skips is refused."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime

from django import forms
from django.utils import timezone

from tenants.platform.errors import Refused
from tenants.platform.words import local_time_text

_SKIPPED = "skipped"


class LocalTimeField(forms.DateTimeField):
    """A time in the reader's zone, or with an offset of its own."""

    def to_python(self, value: str | datetime | date | None) -> datetime | None:
        """Returns the instant."""
        try:
            return super().to_python(value)
        except forms.ValidationError as error:
            # Django's own field refuses both.
            if error.code != "ambiguous_timezone":
                raise
            zone = timezone.get_current_timezone()
            local: datetime = (error.params or {})["datetime"]
            found = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
            if found.astimezone(zone).replace(tzinfo=None) != local:
                text = local_time_text("skipped", f"{local:%H:%M}", str(zone))
                raise forms.ValidationError(text, code=_SKIPPED) from None
            return found


def local_time_read(text: str, otherwise: Refused) -> datetime:
    """Returns the instant of a typed time. Raises `otherwise`, which says for a skipped time why."""
    try:
        found: datetime = LocalTimeField().clean(text)
    except OverflowError:
        raise otherwise from None
    except forms.ValidationError as error:
        why = error.messages[0] if error.code == _SKIPPED else otherwise.sentence
        raise replace(otherwise, sentence=why) from None
    return found


def repeated_times(moments: Iterable[datetime | None]) -> str:
    """Returns which of the local times come twice in their night, and which of the two is meant."""
    zone = timezone.get_current_timezone()
    locals_ = [each.astimezone(zone) for each in moments if each is not None]
    twice = [each for each in locals_ if each.replace(fold=0).utcoffset() != each.replace(fold=1).utcoffset()]
    texts = (
        local_time_text("second" if each.fold else "first", f"{each:%H:%M}", f"{each:%Z}") for each in twice
    )
    return " ".join(dict.fromkeys(texts))
