"""The pages of limits that were cut: of an organisation, and of the site."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.features.limit_cuts.above import Booked
from allocation.features.limit_cuts.models import LimitCut
from allocation.features.limit_cuts.services import (
    above_now,
    cuts_of_site,
    cuts_visible,
    limit_cut_end,
    limit_of,
    may_end,
    operator_cut_end,
    owner_name,
)
from allocation.web.limits.cut_question import CHOICES
from tenants.access import Actor
from tenants.models import User
from tenants.rules.operator_roles import Area
from tenants.services import gpus_text
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.parts import counted

MOST_SHOWN = 30
MOST_ABOVE = 20
SAYS = {
    LimitCut.Answer.KEEP: "What ran and was booked stays; only new bookings are limited.",
    LimitCut.Answer.DRAIN: "What runs stays to its end; planned starts above the limit wait.",
    LimitCut.Answer.PAUSE: "What runs above the limit is paused; planned starts wait.",
}


OF_GUARANTEE = {
    LimitCut.Answer.KEEP: "What was inside the guarantee stays: no other organisation has it paused.",
    LimitCut.Answer.DRAIN: "What runs stays to its end; planned starts are no longer inside the guarantee.",
    LimitCut.Answer.PAUSE: "What runs above the guarantee is paused; planned starts are not inside it.",
}
OF_INNER = OF_GUARANTEE | {
    LimitCut.Answer.KEEP: "What was inside the guarantee stays: nobody in the organisation has it paused.",
}


@dataclass(frozen=True, slots=True)
class CutCard:
    """A cut, with what is still above its limit."""

    id: UUID
    title: str
    limit: str
    answer: str
    says: str
    rows: tuple[Booked, ...]
    more: int
    base: str
    cut: LimitCut
    may_end: bool


def _card(cut: LimitCut, now: datetime, may_cancel: Callable[[LimitCut], bool]) -> CutCard:
    of = limit_of(cut)
    rows = above_now(cut, now)
    return CutCard(
        cut.id,
        f"{owner_name(of)}, {cut.gpu_class.label}",
        _limit(cut),
        cut.get_answer_display(),
        _says(cut),
        tuple(rows[:MOST_ABOVE]),
        max(0, len(rows) - MOST_ABOVE),
        f"/t/{cut.tenant.slug}/",
        cut,
        may_cancel(cut),
    )


def _says(cut: LimitCut) -> str:
    answer = LimitCut.Answer(cut.answer)
    if not cut.of_guarantee:
        return SAYS[answer]
    return (OF_INNER if cut.project_id or cut.lab_id else OF_GUARANTEE)[answer]


def _limit(cut: LimitCut) -> str:
    parts = []
    if cut.of_guarantee:
        return f"{counted(gpus_text(cut.limit_units or 0), 'GPU')} guaranteed"
    if cut.limit_units is not None:
        parts.append(f"{counted(gpus_text(cut.limit_units), 'GPU')} at once")
    if cut.cap_gpu_hours is not None:
        when = "a month" if cut.cap_days is None else f"in {counted(cut.cap_days, 'day')}"
        parts.append(f"{cut.cap_gpu_hours} GPU-hours {when}")
    return " and ".join(parts)


def _context(
    cuts: Iterable[LimitCut], over: Iterable[LimitCut], now: datetime, may: Callable[[LimitCut], bool]
) -> dict[str, Any]:
    return {
        "cards": [_card(each, now, may) for each in cuts],
        "over": [(each, owner_name(limit_of(each)), _limit(each)) for each in over],
        "answers": CHOICES,
    }


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """Those that are open, the newest first, and the newest that are over."""
    rows = cuts_visible(actor).order_by("-created", "id")
    over = rows.filter(ended__isnull=False)[:MOST_SHOWN]
    return _context(rows.filter(ended=None)[:MOST_SHOWN], over, now, lambda cut: may_end(actor, cut))


def _shown_to_operators(operator: User, now: datetime) -> dict[str, Any]:
    rows = cuts_of_site().order_by("-created", "id")
    over = rows.filter(ended__isnull=False)[:MOST_SHOWN]
    found = _context(rows.filter(ended=None)[:MOST_SHOWN], over, now, lambda _: True)
    return {**found, "is_operator": True}


DONE = "The cut is cancelled. The limit stays as it is."
urlpatterns = [
    form_page(
        "limit-cuts",
        "limit-cuts",
        "limit_cuts/page.html",
        _shown,
        Act("end", limit_cut_end, DONE, key="cut", noun="limit cut"),
    ),
    operator_form_page(
        "limit-cuts",
        "ops-limit-cuts",
        "limit_cuts/page.html",
        _shown_to_operators,
        Act(
            "end",
            lambda *, actor, **sent: operator_cut_end(operator=actor, **sent),
            DONE,
            key="cut",
            noun="limit cut",
        ),
        area=Area.RULES,
        actor_of=lambda operator: operator,
    ),
]
