"""Amounts of data as text."""

from django import template

register = template.Library()
_STEP = 1024
# From so many MiB on an amount is in GiB.
_MOST_MIB = 1000


@register.filter
def data_size(mebibytes: float) -> str:
    """`58 MiB`, `11.7 GiB`, `1.5 TiB`."""
    amount, unit = float(mebibytes), "MiB"
    for larger in ("GiB", "TiB"):
        if amount < _MOST_MIB:
            break
        amount, unit = amount / _STEP, larger
    return f"{amount:,.0f} {unit}" if unit == "MiB" else f"{amount:,.1f} {unit}"
