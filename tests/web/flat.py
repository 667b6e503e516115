"""Pages in a form for comparison, without irrelevant whitespace."""

import re


def flat(html: str) -> str:
    """Returns the page in one line, without whitespace around tags."""
    return re.sub(r" ?([<>]) ?", r"\1", re.sub(r"\s+", " ", html))
