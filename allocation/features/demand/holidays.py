"""Public holidays of the site's country."""

from datetime import date, timedelta

import holidays


def holidays_between(first: date, last: date, country: str) -> frozenset[date]:
    """The public holidays from `first` to `last`; `country` as `DE` or `DE-BY`, empty: none."""
    if not country:
        return frozenset()
    name, _, part = country.partition("-")
    found = holidays.country_holidays(name, subdiv=part or None, years=range(first.year, last.year + 1))
    days = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return frozenset(day for day in days if day in found)
