"""Log formats: one line per event, whatever a name, a header or a traceback contains."""

import json
import logging
from datetime import UTC, datetime

from tenants.platform.log_ids import log_ids_now, text_of


class LineFormatter(logging.Formatter):
    """Escapes line ends and other control characters, so that input cannot forge a line.

    The ids of the request, user and so on are at the end of the line: `request=… user=…`.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record) + text_of(log_ids_now())
        return "".join(_escaped(character) for character in text)


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, tz=UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_ids_now(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
