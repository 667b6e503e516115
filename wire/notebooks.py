"""Notebooks: programs with a web page that a node starts for the owner of a booking."""

import dataclasses
import re
from typing import Annotated, ClassVar, Literal

from wire.fields import ADDED, VERSION, Line, Name

NOTEBOOK_PROGRAMS_MAX = 16
"""The number of programs that one node offers at most."""
NOTEBOOKS_MAX = 256
"""The number of notebooks in one message at most."""
NotebookState = Literal["starting", "ready", "ended", "failed"]
Digest = Annotated[str, re.compile(r"[0-9a-f]{64}")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredNotebook:
    """A notebook of a booking on this node, while the booking is active there.

    `program` is a name of the site's list on the node, never a command. `address` names the
    notebook to the portal's proxy.
    """

    id: Name
    booking: Name
    tenant: Name
    program: Name
    address: Name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNotebook:
    """A notebook of the document. `key` is the SHA-256 of the secret with which its tunnels say
    who they are; None until the node has made it. `error` says why it failed or ended."""

    id: Name
    state: NotebookState
    key: Digest | None
    error: Line = dataclasses.field(default="", metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notebooks:
    """The programs that the node offers, and the notebooks that are in its document. Sent when it
    changes, and once a minute."""

    kind: ClassVar[str] = "notebooks"
    seq: int
    programs: tuple[Name, ...] = ()
    notebooks: tuple[ReportedNotebook, ...] = ()
    version: int = VERSION
