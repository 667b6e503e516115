"""Errors of the pure code of this app. Edges turn them into `tenants.platform.errors.Refused`."""

from tenants.platform.coded import Coded


class AskError(ValueError):
    """An invalid ask: `code` for programs, `text` for people, and the field `param`."""

    def __init__(self, code: str, text: Coded, param: str) -> None:
        """Keeps code, text and field."""
        super().__init__(f"{code}: {text.code}")
        self.code = code
        self.text = text
        self.param = param
