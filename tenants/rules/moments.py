"""Instants in sentences that say their zone."""

from datetime import datetime, tzinfo


def instant_text(moment: datetime, zone: tzinfo, now: datetime) -> str:
    """`21 Nov 14:00 CET`; `2 Jan 2027 14:00 CET` in another year than now's, in the zone."""
    local = moment.astimezone(zone)
    year = "" if local.year == now.astimezone(zone).year else f" {local.year}"
    return f"{local.day} {local:%b}{year} {local:%H:%M %Z}"
