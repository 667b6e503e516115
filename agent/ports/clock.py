"""The two clocks of a node."""

import dataclasses
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """`wall` gives Unix seconds, for what people agreed on; `steady` never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
