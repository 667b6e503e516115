"""What the pages of quotas are made of: cards of classes, and the shares that their forms send."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from django.http import QueryDict

from tenants.models import Project, Tenant
from tenants.platform.errors import Refused, invalid
from tenants.platform.nouns import unit_noun, unit_text
from tenants.queries import ClassShares, ShareRow
from tenants.services import (
    Share,
    ShareMore,
    gpus_text,
    units_read,
)
from tenants.web.quota_form import MORE, SHARE, field_name, shown_values
from tenants.words import refusal_text


@dataclass(frozen=True, slots=True)
class Units:
    """Units in use, of them borrowed from others, and above the own guarantee what is assigned to nobody."""

    used: int
    borrowed: int
    spare: int = 0


NOTHING = Units(0, 0)


@dataclass(frozen=True, slots=True)
class RefusedForm:
    """A refused form, shown again as typed."""

    form: QueryDict
    refusal: Refused


@dataclass(frozen=True, slots=True)
class ShareInput:
    """An editable cell; `title` is the column's name, `label` the full description."""

    id: str
    name: str
    title: str
    label: str
    value: str
    placeholder: str
    is_wrong: bool


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota with GPUs as text and bar widths in percent of the scale."""

    owner: Project | Tenant
    guaranteed: str
    borrow: str
    lend: str
    limit: str
    guaranteed_percent: str
    limit_percent: str
    used: str = "0"
    borrowed: str = ""
    spare: str = ""
    used_percent: str = "0"
    borrowed_percent: str = "0"
    inputs: tuple[ShareInput, ...] = ()
    dated: tuple[str, ...] = ()
    may_change: bool = False
    was_name: str = ""
    was: str = ""

    @property
    def words(self) -> str:
        """Returns the bar as text."""
        limit = f"at most {self.limit} with what is borrowed" if self.limit else "no limit of its own"
        used = f"{self.used} in use"
        used += f", {self.borrowed} of them borrowed" if self.borrowed else ""
        used += f", {self.spare} of them unassigned" if self.spare else ""
        return f"{used}; {self.guaranteed} guaranteed, {limit}"


@dataclass(frozen=True, slots=True)
class WeightCapRow:
    """The weight and cap of an owner in a form; `key` ends the names of its fields, and `was` has
    the stored values."""

    key: str
    name: str
    weight: str
    cap_gpu_hours: str
    cap_days: str
    cap_carries: bool
    was: str
    wrong: str = ""

    @property
    def id(self) -> str:
        """The end of the ids of its inputs."""
        return self.key.replace(":", "-")


@dataclass(frozen=True, slots=True)
class ClassCard:
    """The card of a class. All bars of GPUs share one scale, so that lengths compare, and so do those of
    host cores."""

    slug: str
    label: str
    total: QuotaRow | None
    rows: tuple[QuotaRow, ...]
    split: str
    free: str
    more: tuple[WeightCapRow, ...]
    more_is_open: bool
    cap: str

    @property
    def may_change(self) -> bool:
        """Returns whether the reader may change a row."""
        return any(row.may_change for row in self.rows)

    @property
    def borrows(self) -> str:
        """Returns the tenant's limit and its cap of GPU-hours as text."""
        limit = self.total.limit if self.total else ""
        words = f"at most {limit} including borrowed GPUs" if limit else "unlimited borrowing"
        return unit_text(f"{words}, {self.cap}" if self.cap else words, self.slug)


def share_read(form: QueryDict) -> Share:
    """Reads guarantee, borrowing and lending. Raises Refused at the field."""
    borrow, lend = (form.get(name, "").strip() for name in ("borrow", "lend"))
    return Share(
        guaranteed_units=units_read(form.get("guaranteed", ""), param="guaranteed"),
        borrow_limit_units=units_read(borrow, param="borrow") if borrow else None,
        lend_limit_units=units_read(lend, param="lend") if lend else None,
    )


def share_text(name: str, gpu_class: str, share: Share) -> str:
    """Returns the confirmation of what was saved: whose share, of which class."""
    borrow, lend = share.borrow_limit_units, share.lend_limit_units
    more = "without a limit" if borrow is None else f"at most {gpus_text(borrow)}"
    idle = "all that is idle" if lend is None else f"at most {gpus_text(lend)}"
    sure = gpus_text(share.guaranteed_units)
    return f"{name}, {gpu_class}: {sure} guaranteed, may borrow {more}, lends {idle}."


def class_cards(
    classes: list[ClassShares],
    owner_key: str,
    sent: RefusedForm | None,
    used: Mapping[tuple[UUID, str], Units],
    changed: Collection[Project] | None = None,
    dated: Mapping[tuple[UUID, str], tuple[str, ...]] = MappingProxyType({}),
) -> list[ClassCard]:
    """Returns the cards. The reader may change the rows of `changed` owners; None: all.

    `used` has the units in use by owner and class, `dated` sentences on guarantees between dates.
    """
    scales = {
        kind: _scale((each for each in classes if each.gpu_class.kind == kind), used)
        for kind in {each.gpu_class.kind for each in classes}
    }

    def shown(each: ClassShares, row: ShareRow, units: Units) -> QuotaRow:
        slug = each.gpu_class.slug
        return _with_dates(_row(row, scales[each.gpu_class.kind], units), slug, dated)

    def changeable(each: ClassShares, row: ShareRow) -> QuotaRow:
        slug = each.gpu_class.slug
        found = shown(each, row, used.get((row.owner.id, slug), NOTHING))
        may_change = changed is None or row.owner in changed
        return replace(_row_to_change(found, slug, owner_key, sent), may_change=may_change)

    return [
        ClassCard(
            slug=each.gpu_class.slug,
            label=each.gpu_class.label,
            total=shown(each, each.total, NOTHING) if each.total else None,
            rows=tuple(changeable(each, row) for row in each.rows),
            split=gpus_text(each.split_units),
            free=gpus_text(max(0, each.total.guaranteed_units - each.split_units)) if each.total else "",
            more=weights_caps_rows(each, sent),
            more_is_open=_is_wrong_more(each.gpu_class.slug, sent),
            cap=_cap(each.total),
        )
        for each in classes
    ]


def _with_dates(row: QuotaRow, gpu_class: str, dated: Mapping[tuple[UUID, str], tuple[str, ...]]) -> QuotaRow:
    return replace(row, dated=dated.get((row.owner.id, gpu_class), ()))


def _scale(classes: Iterable[ClassShares], used: Mapping[tuple[UUID, str], Units]) -> int:
    """Returns the most units that a bar of the page shows."""
    shown = [0]
    for each in classes:
        for row in (*each.rows, *([each.total] if each.total else [])):
            in_use = used.get((row.owner.id, each.gpu_class.slug), NOTHING).used
            shown += [row.guaranteed_units, row.limit_units or 0, in_use]
    return max(shown)


def _is_wrong_more(gpu_class: str, sent: RefusedForm | None) -> bool:
    """Returns whether a weight or cap of the class was refused."""
    name, _, row = ((sent.refusal.param if sent else None) or "").partition(":")
    return name in MORE and row.partition(":")[0] == gpu_class


def _row_to_change(row: QuotaRow, gpu_class: str, owner_key: str, sent: RefusedForm | None) -> QuotaRow:
    """Returns the row with its inputs, as typed if the form was refused."""
    owner = row.owner
    key = owner.slug if owner_key == "project" else str(owner.id)
    form, unit = sent.form if sent else QueryDict(), unit_noun(gpu_class)
    inputs = (
        ("guaranteed", "Guaranteed", f"{unit}s guaranteed to {owner.name}", row.guaranteed, ""),
        (
            "borrow",
            "May borrow",
            f"{unit}s that {owner.name} can borrow on top; empty for no limit",
            row.borrow,
            "no limit",
        ),
        (
            "lend",
            "Lends at most",
            f"Idle {unit}s of {owner.name} that others can borrow; empty for all",
            row.lend,
            "all",
        ),
    )
    first = field_name(SHARE[0], gpu_class, key)
    return replace(
        row,
        # A refused form keeps what its page showed at first.
        was_name=f"was:{first}",
        was=form.get(f"was:{first}", shown_values([value for *_, value, _ in inputs])),
        inputs=tuple(
            ShareInput(
                f"{name}-{gpu_class}-{owner.slug}",
                field_name(name, gpu_class, key),
                title,
                label,
                form.get(field_name(name, gpu_class, key), value),
                placeholder,
                is_wrong=sent is not None and sent.refusal.param == field_name(name, gpu_class, key),
            )
            for name, title, label, value, placeholder in inputs
        ),
    )


def _cap(total: ShareRow | None) -> str:
    quota = total.quota if total else None
    return cap_words(quota.cap_gpu_hours, quota.cap_days) if quota else ""


def _row(row: ShareRow, scale: int, used: Units) -> QuotaRow:
    return QuotaRow(
        owner=row.owner,
        used=gpus_text(used.used),
        borrowed=gpus_text(used.borrowed) if used.borrowed else "",
        spare=gpus_text(used.spare) if used.spare else "",
        used_percent=_percent(used.used - used.borrowed, scale),
        borrowed_percent=_percent(used.borrowed, scale),
        guaranteed=gpus_text(row.guaranteed_units),
        borrow="" if row.borrow_limit_units is None else gpus_text(row.borrow_limit_units),
        lend="" if row.lend_limit_units is None else gpus_text(row.lend_limit_units),
        limit="" if row.limit_units is None else gpus_text(row.limit_units),
        guaranteed_percent=_percent(row.guaranteed_units, scale),
        limit_percent="" if row.limit_units is None else _percent(row.limit_units, scale),
    )


def _percent(units: int, scale: int) -> str:
    return f"{100 * units / scale:.2f}" if scale else "0"


def weights_caps_read(form: QueryDict) -> ShareMore:
    """Reads the form. Raises Refused with the field."""
    weight = _whole(form, "weight")
    if weight is None:
        raise invalid("bad_share", refusal_text("share_weight"), "weight")
    return ShareMore(
        weight=weight,
        cap_gpu_hours=_whole(form, "cap_gpu_hours"),
        cap_days=_whole(form, "cap_days"),
        cap_carries=form.get("cap_carries") == "1",
    )


def weights_caps_text(name: str, gpu_class: str, more: ShareMore) -> str:
    """Returns the confirmation of what was saved."""
    cap = cap_words(more.cap_gpu_hours, more.cap_days) or "no cap of GPU-hours"
    return f"{name}, {gpu_class}: weight {more.weight}, {cap}."


def cap_words(hours: int | None, days: int | None) -> str:
    """Returns `at most 500 GPU-hours in any 7 days`; empty without a cap."""
    if hours is None:
        return ""
    period = "a calendar month (UTC)" if days is None else "a day" if days == 1 else f"any {days} days"
    return f"at most {hours:,} GPU-hours in {period}"


def weights_caps_rows(shares: ClassShares, sent: RefusedForm | None) -> tuple[WeightCapRow, ...]:
    """Returns a row for each owner with a quota, as typed if the form was refused."""
    rows = []
    for row in shares.rows:
        quota = row.quota
        if quota is None:
            continue
        owner = row.owner.slug if quota.project_id else str(row.owner.id)
        key = f"{shares.gpu_class.slug}:{owner}"
        stored = (
            str(quota.weight),
            _text(quota.cap_gpu_hours),
            _text(quota.cap_days),
            "1" if quota.cap_carries else "",
        )
        form = sent.form if sent else QueryDict()
        is_sent = f"{MORE[0]}:{key}" in form
        shown = [form.get(f"{name}:{key}", "")[:12] for name in MORE] if is_sent else stored
        name, _, wrong = ((sent.refusal.param if sent else None) or "").partition(":")
        rows.append(
            WeightCapRow(
                key,
                row.owner.name,
                shown[0],
                shown[1],
                shown[2],
                cap_carries=shown[3] == "1",
                was=form.get(f"was:{MORE[0]}:{key}", shown_values(stored)),
                wrong=name if wrong == key else "",
            )
        )
    return tuple(rows)


def _whole(form: QueryDict, name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid("bad_share", refusal_text("share_number"), name)
    return int(text)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
