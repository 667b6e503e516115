"""Weights and caps beside the shares of the quota pages."""

from dataclasses import dataclass, replace

from django.http import QueryDict

from tenants.platform.errors import invalid
from tenants.queries import ClassShares
from tenants.services import ShareMore


@dataclass(frozen=True, slots=True)
class WeightCapRow:
    """One owner's weight and cap as a form shows them. `key` names the owner to the form."""

    key: str
    name: str
    weight: str
    cap_gpu_hours: str
    cap_days: str
    cap_carries: bool


def weights_caps_read(form: QueryDict) -> ShareMore:
    """What the form says. Raises Refused, with the field."""
    weight = _whole(form, "weight")
    if weight is None:
        raise invalid("bad_share", "Enter a weight from 0 to 1000.", "weight")
    return ShareMore(
        weight=weight,
        cap_gpu_hours=_whole(form, "cap_gpu_hours"),
        cap_days=_whole(form, "cap_days"),
        cap_carries=form.get("cap_carries") == "1",
    )


def weights_caps_text(name: str, more: ShareMore) -> str:
    """The sentence that says what was saved."""
    cap = cap_words(more.cap_gpu_hours, more.cap_days) or "no cap of GPU-hours"
    return f"{name}: weight {more.weight}, {cap}."


def cap_words(hours: int | None, days: int | None) -> str:
    """`at most 500 GPU-hours in any 7 days`; empty without a cap."""
    if hours is None:
        return ""
    period = (
        "a calendar month (UTC)" if days is None else "a day" if days == 1 else f"any {days} days"
    )
    return f"at most {hours:,} GPU-hours in {period}"


def weights_caps_rows(shares: ClassShares, typed: QueryDict | None) -> tuple[WeightCapRow, ...]:
    """A row for every owner that has a share; as typed where it was refused."""
    rows = []
    for row in shares.rows:
        quota = row.quota
        if quota is None:
            continue
        key = row.owner.slug if quota.project_id else str(row.owner.id)
        shown = WeightCapRow(
            key,
            row.owner.name,
            str(quota.weight),
            _text(quota.cap_gpu_hours),
            _text(quota.cap_days),
            quota.cap_carries,
        )
        if typed is not None and key in (typed.get("project"), typed.get("tenant")):
            shown = replace(
                shown,
                weight=typed.get("weight", "")[:12],
                cap_gpu_hours=typed.get("cap_gpu_hours", "")[:12],
                cap_days=typed.get("cap_days", "")[:12],
                cap_carries=typed.get("cap_carries") == "1",
            )
        rows.append(shown)
    return tuple(rows)


def _whole(form: QueryDict, name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid("bad_share", "Enter a whole number, or leave it empty.", name)
    return int(text)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
