"""Log lines: one event is one line, whatever a name, a header or a traceback contains."""

import logging


class LineFormatter(logging.Formatter):
    """Escapes line ends and other control characters, so that nobody can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
