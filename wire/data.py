"""Data sets that a node has in its cache folder."""

import dataclasses
import re
from typing import Annotated

from wire.fields import ADDED, Count

DATA_SETS_MAX = 128
"""The number of data sets that one node lists at most."""
DATA_PATTERN = "[a-z0-9][a-z0-9._-]{0,63}"
DataName = Annotated[str, re.compile(DATA_PATTERN)]
"""The name of a folder: no slash, no leading dot, and lower case, as people write it in a request."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CachedData:
    """A data set of a node's cache folder. `size_mb` is None until it was measured, and where that takes
    too long. `used` is the newest time (Unix seconds) at which the file system says that one of its
    files was read or written."""

    name: DataName
    size_mb: Count | None = dataclasses.field(default=None, metadata=ADDED)
    used: int | None = dataclasses.field(default=None, metadata=ADDED)
