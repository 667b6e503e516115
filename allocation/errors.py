"""What the pure code of this app refuses with.

Edges turn it into `tenants.platform.errors.Refused`.
"""


class AskError(ValueError):
    """An ask that is wrong in itself, at `param`; `code` is for programs, `sentence` for people."""

    def __init__(self, code: str, sentence: str, param: str) -> None:
        """All three are kept as they are."""
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
        self.param = param
