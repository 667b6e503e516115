"""What the page of the mix of own, reserved and burst GPUs shows, and its file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse

from allocation.features.capacity.mix.arithmetic import BURST, OWN, RESERVED, Mix
from allocation.features.capacity.mix.chart import mix_chart
from allocation.features.capacity.mix.load import Whose
from allocation.features.capacity.mix.questions import (
    CHEAPEST,
    PRESENT,
    TRIED,
    ClassMix,
    Question,
    mixes_of,
    question_read,
)
from allocation.models import Gpu
from allocation.rules.ask.words.times import duration_words
from billing.focus import csv_row
from billing.rules import money_text, rate_text
from tenants.models import GpuClass
from tenants.platform.errors import Refused
from tenants.platform.rest.fields import Strict, validated
from tenants.web.parts import Field

NAMES = {CHEAPEST: "The cheapest", PRESENT: "GPUs of today", TRIED: "Yours"}
ABOUT = {
    OWN: "stands at the site, paid in every hour",
    RESERVED: "rented for months, paid in every hour",
    BURST: "rented by the hour, paid while it is used",
}
COLUMNS = ("class", "from", "to", "hours", "mix", "kind", "gpus", "used", "share", "paid", "cost", "currency")
_INPUTS = {
    "from": ("First day", "date", "Days begin at midnight UTC."),
    "to": ("End", "date", "The day after the last one."),
    "own": ("Own GPUs", "text", ""),
    "reserved": ("Reserved GPUs", "text", "What exceeds own and reserved GPUs is rented by the hour."),
    "own_price": ("An own GPU-hour costs", "text", "Paid in every hour."),
    "reserved_price": ("A reserved GPU-hour costs", "text", "Paid in every hour."),
    "burst_price": ("A burst GPU-hour costs", "text", "Paid while it is used."),
}


@dataclass(frozen=True, slots=True)
class MixRow:
    """A mix in words."""

    name: str
    mix: Mix
    cost: str
    more: str

    @property
    def words(self) -> str:
        """Returns its GPUs: `4 own, up to 2 burst`."""
        parts = [
            f"{'up to ' if part.kind == BURST else ''}{part.gpus} {part.kind}"
            for part in self.mix.parts
            if part.gpus
        ]
        return ", ".join(parts) or "no GPUs"


def mix_context(sent: Mapping[str, str], query: type[Strict], whose: Whose, now: datetime) -> dict[str, Any]:
    """What the page shows for the parameters that are filled in; those that are wrong are refused in it."""
    refusal = None
    try:
        question = question_read(validated(query, sent), now)
    except Refused as found:
        question, refusal = question_read({}, now), found
    rows = mixes_of(whose, question, now)
    row = max(rows, key=lambda each: each.gpu_hours, default=None)
    shown = {"whose": whose.name, "question": question, "refusal": refusal, "now": now, "row": row}
    shown["is_at_field"] = refusal is not None and refusal.param in _INPUTS
    asked = {name: value for name, value in sent.items() if name != "class"}
    shown |= {
        "inputs": [_input(name, sent, row, question, refusal) for name in _INPUTS],
        "classes": _classes(row, asked),
        "tried": any(sent.get(name) for name in _INPUTS),
        "csv": "mix.csv?" + urlencode(sent),
    }
    return shown | (_of_class(row) if row is not None and row.hours else {})


def _classes(row: ClassMix | None, asked: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """The classes of the site's GPUs with their addresses. A mix that is tried is of one class."""
    here = row.gpu_class if row is not None else ""
    kept = {name: value for name, value in asked.items() if name in ("from", "to", "project")}
    there = GpuClass.objects.filter(slug__in=Gpu.objects.values("gpu_class")).order_by("order", "slug")
    return [(each.label, "?" + urlencode({**kept, "class": each.slug}), each.slug == here) for each in there]


def _input(
    name: str, sent: Mapping[str, str], row: ClassMix | None, question: Question, refusal: Refused | None
) -> Field:
    label, kind, hint = _INPUTS[name]
    usual: dict[str, object] = {"from": question.starts.isoformat(), "to": question.ends.isoformat()}
    if row is not None:
        best = row.mix(TRIED) or row.mix(CHEAPEST)
        if best is not None:
            usual |= {"own": best.gpus(OWN), "reserved": best.gpus(RESERVED)}
        prices = {f"{each}_price": row.prices.of(each) for each in ("own", "reserved", "burst")}
        usual |= {each: f"{price:.2f}" for each, price in prices.items() if price is not None}
    error = refusal.sentence if refusal is not None and refusal.param == name else ""
    value = sent.get(name, usual.get(name, ""))
    return Field(name, label, value, hint=hint, error=error, required=False, type=kind, id=f"mix-{name}")


def _of_class(row: ClassMix) -> dict[str, Any]:
    best = row.mix(CHEAPEST)
    drawn = row.mix(TRIED) or best or row.mix(PRESENT)
    assert drawn is not None  # noqa: S101 (the present mix is always there)
    prices = row.prices
    return {
        "mixes": [_mix_row(each, best, prices.currency) for each in row.mixes],
        "drawn": NAMES[drawn.name],
        "chart": mix_chart(row, drawn),
        "best": best,
        "evens": [(kind, prices.break_even(kind)) for kind in (OWN, RESERVED)],
        "lead": duration_words(row.lead_seconds) if row.lead_seconds else "",
        "rates": [
            (kind, about, "" if (price := prices.of(kind)) is None else rate_text(price, prices.currency))
            for kind, about in ABOUT.items()
        ],
        "last_hour": row.ends,
    }


def _mix_row(mix: Mix, best: Mix | None, currency: str) -> MixRow:
    if mix.cost is None:
        return MixRow(NAMES[mix.name], mix, "–", "–")
    more = ""
    if best is not None and best.cost is not None and mix is not best:
        is_more = mix.cost > best.cost
        more = f"{money_text(mix.cost - best.cost, currency)} more" if is_more else "as much"
    return MixRow(NAMES[mix.name], mix, money_text(mix.cost, currency), more)


def mix_csv(rows: Iterable[ClassMix]) -> HttpResponse:
    """The mixes as a file."""
    lines = [csv_row(COLUMNS)]
    for row in rows:
        times = [f"{each:%Y-%m-%dT%H:%MZ}" for each in (row.starts, row.ends)]
        period = (row.gpu_class, *times, str(row.hours))
        for each in row.mixes:
            for part in each.parts:
                cost = "" if part.cost is None else f"{part.cost:f}"
                figures = (str(part.gpus), str(part.used), str(part.share), str(part.paid), cost)
                lines.append(csv_row([*period, each.name, part.kind, *figures, row.prices.currency]))
    response = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="mix.csv"'
    return response
