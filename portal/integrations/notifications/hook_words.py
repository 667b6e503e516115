"""What admins read when their policy hook fails."""

from collections.abc import Mapping
from typing import Any


def hook_headline(said: Mapping[str, Any]) -> str:
    """The headline, from the payload of the message."""
    return f"The policy hook failed {said['failures']} times in a row"


def hook_sentences(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The last failure, and what happens to requests meanwhile."""
    effect = "admitted" if said["is_fail_open"] else "refused"
    return (
        f"{said['url']}: {said['error']}",
        f"Requests without a valid answer are {effect}. It is asked again every 30 s.",
    )
