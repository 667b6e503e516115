"""Errors of the pure code of this app. Edges turn them into `tenants.platform.errors.Refused`."""


class AskError(ValueError):
    """An invalid ask: `code` for programs, `sentence` for people, and the field `param`."""

    def __init__(self, code: str, sentence: str, param: str) -> None:
        """Keeps code, sentence and field."""
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
        self.param = param
