"""Values in CSV files that are safe in spreadsheets."""

RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet reads as the beginning of a formula."""


def plain(value: str) -> str:
    """The value as a spreadsheet shows it: what would be a formula gets an apostrophe."""
    return f"'{value}" if value.lstrip(" ").startswith(RISKY) else value
