"""Sentences about a booking for operators, who are in none of its organisations."""

from collections.abc import Iterable

from allocation.models import Booking


def operator_words(text: str, booking: Booking) -> str:
    """Returns a sentence that addresses the booking's organisation as one that names it."""
    tenant, project = booking.tenant.name, booking.project.name
    named = (
        ("Your organisation", tenant),
        ("your organisation", tenant),
        ("Your project", project),
        ("your project", project),
        ("Your lab", "Its lab"),
        ("your lab", "its lab"),
        ("ahead of yours", "ahead of it"),
    )
    for address, name in named:
        text = text.replace(address, name)
    return text


def operator_lines(lines: Iterable[str], booking: Booking) -> list[str]:
    """Returns the same of each line."""
    return [operator_words(line, booking) for line in lines]
