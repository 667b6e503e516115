"""Errors of the pure code of this app. Edges turn them into `tenants.platform.errors.Refused`."""

from collections.abc import Mapping
from typing import Any

from tenants.platform.coded import Coded


class AskError(ValueError):
    """An invalid ask: `code` for programs, `text` for people, and the field `param`. `instead` are
    the fields with the nearest values that the rule accepts."""

    def __init__(self, code: str, text: Coded, param: str, instead: Mapping[str, Any] | None = None) -> None:
        """Keeps code, text, field, and what would work."""
        super().__init__(f"{code}: {text.code}")
        self.code = code
        self.text = text
        self.param = param
        self.alternatives = [dict(instead)] if instead else []
