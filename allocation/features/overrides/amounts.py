"""Amounts of overrides in the units that people use."""

import re
from decimal import Decimal

from allocation.models import Override
from allocation.words.refusals import refusal_text
from billing.price_books import currency_latest
from billing.rules import money_text
from tenants.platform.errors import Refused, invalid
from tenants.platform.nouns import unit_text
from tenants.platform.text import whole_number
from tenants.services.input_values import UNITS_PER_GPU, gpus_text, seconds_read, seconds_text, seconds_words

# What an exception allows, by its kind.
_WORDS = {
    Override.Kind.QUOTA: "{gpus} more at once ({gpu_class})",
    Override.Kind.LAB_QUOTA: "{gpus} more at once for the lab ({gpu_class})",
    Override.Kind.PERSON_QUOTA: "{gpus} more at once for one person ({gpu_class})",
    Override.Kind.GPU_HOURS: "{number} GPU-hours of {gpu_class} more",
    Override.Kind.BUDGET: "{money} more budget",
    Override.Kind.LENGTH: "{time} longer than {tier} allows",
    Override.Kind.SHORTER: "{time} shorter than {tier} demands",
    Override.Kind.NOTICE: "{time} beyond the notice that {tier} demands",
    Override.Kind.OPEN_BOOKINGS: "{number} more open booking{s}",
    Override.Kind.OPEN_GPUS: "{number} more GPU{s} of a person at once",
    Override.Kind.START_HOURS: "Starts of {tier} outside its hours",
    Override.Kind.TIER_CLASS: "{tier} on {gpu_class}",
    Override.Kind.TIER_AUDIENCE: "Use of {tier}",
}
OF_TIME = (Override.Kind.LENGTH, Override.Kind.SHORTER, Override.Kind.NOTICE)
"""Kinds whose amount is in seconds."""
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def amount_of(kind: Override.Kind, text: str) -> Decimal:
    """The stored amount of a typed number: GPUs become quota units. Raises Refused `bad_amount`."""
    if not _NUMBER.fullmatch(text.strip()):
        raise invalid("bad_amount", refusal_text("override_amount"), "amount")
    amount = Decimal(text.strip())
    if kind not in Override.OF_QUOTA:
        return amount
    # What a slice needs has no end as a decimal number of GPUs.
    return (amount * UNITS_PER_GPU).to_integral_value()


def amount_typed(kind: Override.Kind, text: str) -> Decimal:
    """The stored amount of what a person typed: a time such as `6h`, or as `amount_of`. Raises Refused
    `bad_amount`."""
    if kind not in OF_TIME or whole_number(text.strip()) is not None:
        return amount_of(kind, text)
    try:
        return Decimal(seconds_read(text, param="amount"))
    except Refused as refusal:
        raise invalid("bad_amount", refusal.sentence, "amount") from refusal


def amount_editable(row: Override) -> str:
    """The amount as text that `amount_typed` accepts."""
    return seconds_text(int(row.amount)) if row.kind in OF_TIME else amount_shown(row)


def amount_shown(row: Override) -> str:
    """The amount as a plain number: quota in GPUs."""
    if row.kind in Override.OF_QUOTA:
        return gpus_text(int(row.amount))
    return f"{row.amount.normalize():f}"


def amount_words(row: Override) -> str:
    """What it is about, as in `2 GPUs more at once (H100)`."""
    number = amount_shown(row)
    many = "" if number == "1" else "s"
    text = _WORDS[Override.Kind(row.kind)].format(
        number=number,
        s=many,
        gpus=f"{number} GPU{many}",
        money=money_text(row.amount, currency_latest()) if row.kind == Override.Kind.BUDGET else "",
        time=seconds_words(int(row.amount)),
        tier=row.tier,
        gpu_class=row.gpu_class,
    )
    return unit_text(text, row.gpu_class_id or "")
