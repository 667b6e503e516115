"""Amounts of overrides in the units that people use."""

import re
from decimal import Decimal

from allocation.models import Override
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.platform.errors import invalid
from tenants.services.input_values import UNITS_PER_GPU, gpus_text, seconds_text

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def amount_of(kind: Override.Kind, text: str) -> Decimal:
    """The stored amount of a typed number: GPUs become quota units. Raises Refused `bad_amount`."""
    if not _NUMBER.fullmatch(text.strip()):
        raise invalid("bad_amount", refusal_text("override_amount"), "amount")
    amount = Decimal(text.strip())
    if kind != Override.Kind.QUOTA:
        return amount
    # What a slice needs has no end as a decimal number of GPUs.
    return (amount * UNITS_PER_GPU).to_integral_value()


def amount_shown(row: Override) -> str:
    """The amount as a plain number: quota in GPUs."""
    if row.kind == Override.Kind.QUOTA:
        return gpus_text(int(row.amount))
    return f"{row.amount.normalize():f}"


def amount_words(row: Override) -> str:
    """What it is about, as in `2 GPUs more at once (H100)`."""
    number = amount_shown(row)
    if row.kind == Override.Kind.QUOTA:
        return f"{number} GPU{'' if number == '1' else 's'} more at once ({row.gpu_class})"
    if row.kind == Override.Kind.GPU_HOURS:
        return f"{number} GPU-hours of {row.gpu_class} more"
    if row.kind == Override.Kind.BUDGET:
        return f"{money_text(row.amount, 'EUR')} more budget"
    if row.kind == Override.Kind.LENGTH:
        return f"{seconds_text(int(row.amount))} longer than {row.tier} allows"
    if row.kind == Override.Kind.NOTICE:
        return f"{seconds_text(int(row.amount))} beyond the notice that {row.tier} demands"
    is_gpus = row.kind == Override.Kind.OPEN_GPUS
    what = "GPU of a person at once" if is_gpus else "open booking"
    return f"{number} more {what if number == '1' else _many(what)}"


def _many(what: str) -> str:
    first, *rest = what.split(" of ")
    return " of ".join([f"{first}s", *rest])
