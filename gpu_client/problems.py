"""Errors of the API, and the exit status of the command for each."""

from collections.abc import Mapping
from typing import Any

DONE, USAGE, REFUSED, WAITING, NOT_ALLOWED, SERVER = 0, 2, 3, 4, 5, 6


class Problem(Exception):
    """The API refused: its problem document (RFC 9457)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        super().__init__(str(document.get("detail", "The portal refused this.")))

    @property
    def code(self) -> str:
        """Returns the stable code, such as `budget_exceeded`."""
        return str(self.document.get("code", ""))

    @property
    def exit_status(self) -> int:
        """Returns 2 for bad input, 3 for policy or money, 5 for rights, 6 for the server."""
        status = int(self.document.get("status", 500))
        if status in (401, 403):
            return NOT_ALLOWED
        if status == 409 or (status == 422 and self.document.get("rule")):
            return REFUSED
        return SERVER if status >= 500 or status in (408, 429) else USAGE


class PortalUnreachable(Exception):
    """The portal does not answer, or what answers is not the portal."""
