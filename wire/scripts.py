"""Scripts that come with bookings, and how they ended. Only nodes of an engine that runs them get one."""

import dataclasses
import re
from typing import Annotated

from wire.fields import ADDED, Line, Name, Small

SCRIPT_MAX_BYTES = 16_384
"""The length of a script in UTF-8 at most."""
SCRIPT_LOG_LENGTH = 4_000
"""The characters of a script's output that a report has at most: the last ones."""
NOT_IN_TEXT = "\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
"""Characters that neither a script nor its output has: lines and tabs are text, other controls are not."""
ScriptText = Annotated[str, re.compile(f"[^{NOT_IN_TEXT}]{{1,{SCRIPT_MAX_BYTES}}}")]
LogText = Annotated[str, re.compile(f"[^{NOT_IN_TEXT}]{{0,{SCRIPT_LOG_LENGTH}}}")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredScript:
    """What runs on this node as the owner's account, whenever the booking starts or resumes here."""

    booking: Name
    tenant: Name
    text: ScriptText


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedScript:
    """The script of an allocation. `file` has its output, `log` the end of it. `exit_code` is None while it
    runs; a signal counts as 128 and its number. `ended` is the engine's own word for how it ended."""

    exit_code: Small | None
    file: Line
    log: LogText = dataclasses.field(default="", metadata=ADDED)
    ended: Line = dataclasses.field(default="", metadata=ADDED)
