"""The form of a page of quotas: all rows of all classes are sent at once, and changed ones are saved.

A field is named `guaranteed:<class>:<owner>`; `was:guaranteed:<class>:<owner>` has the values that
the page showed, so that a row which nobody edited is not written over what was set since.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from django.db import transaction
from django.http import QueryDict

from tenants.platform.errors import Refused
from tenants.services import units_read

SHARE = ("guaranteed", "borrow", "lend")
MORE = ("weight", "cap_gpu_hours", "cap_days", "cap_carries")
MOST_SENTENCES = 3
"""Of the report of what was saved; more are counted."""


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that was edited: its values by plain name, before and after."""

    gpu_class: str
    owner: str
    before: QueryDict
    values: QueryDict

    @property
    def is_share(self) -> bool:
        """Whether it has a share; else it has a weight and a cap."""
        return SHARE[0] in self.values

    @property
    def lowers(self) -> bool:
        """Whether its guarantee falls, so that another row's can rise in the same save."""
        before, after = (form.get("guaranteed", "") for form in (self.before, self.values))
        try:
            return units_read(after, param="") < units_read(before, param="")
        except Refused:
            return False


def field_name(name: str, gpu_class: str, owner: str) -> str:
    """Returns the name of a field of the page."""
    return f"{name}:{gpu_class}:{owner}"


def shown_values(values: Sequence[str]) -> str:
    """Returns the values of a row as the page keeps them in its `was` field."""
    return "|".join(values)


def changed_rows(form: QueryDict) -> list[ChangedRow]:
    """Returns the edited rows; those whose guarantee falls come first."""
    return sorted(_changed(form), key=lambda row: not row.lowers)


def _changed(form: QueryDict) -> Iterator[ChangedRow]:
    for key in form:
        first, _, row = key.partition(":")
        names = SHARE if first == SHARE[0] else MORE if first == MORE[0] else ()
        if not names:
            continue
        gpu_class, _, owner = row.partition(":")
        before = form.get(f"was:{key}", "").split("|")
        values = [form.get(f"{name}:{row}", "").strip() for name in names]
        if values != before:
            was = before if len(before) == len(names) else [""] * len(names)
            yield ChangedRow(gpu_class, owner, _plain(names, was), _plain(names, values))


def _plain(names: Sequence[str], values: Sequence[str]) -> QueryDict:
    found = QueryDict(mutable=True)
    found.update(dict(zip(names, values, strict=True)))
    return found


def rows_saved(form: QueryDict, save: Callable[[ChangedRow], str]) -> str:
    """Saves the edited rows, all or none; returns what was saved as text.

    Raises Refused of the first row that is refused, with the page's name of the field.
    """
    said = []
    with transaction.atomic():
        for row in changed_rows(form):
            try:
                said.append(save(row))
            except Refused as refusal:
                first = SHARE[0] if row.is_share else MORE[0]
                name = refusal.param if refusal.param in row.values else first
                param = field_name(str(name), row.gpu_class, row.owner)
                raise replace(refusal, param=param) from refusal
    if len(said) > MOST_SENTENCES:
        return f"{len(said)} quotas were saved."
    return " ".join(said) or "Nothing was changed."
