"""Pages as they are compared: what stands between lines and beside tags is nobody's business."""

import re


def flat(html: str) -> str:
    """The page in one line, without the space beside its tags."""
    return re.sub(r" ?([<>]) ?", r"\1", re.sub(r"\s+", " ", html))
