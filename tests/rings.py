"""Properties in two rings: on some examples with every run, on many in the long one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

FEW, MANY = 30, 300
# Without shrinking: it takes minutes, and a made-up site is no smaller for a smaller number.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
_LONG = pytest.mark.long


def holds_for(
    *drawn: SearchStrategy[Any], few: int = FEW, many: int = MANY
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Make a test of a property: with `few` examples, and with `many` where `-m long` asks."""

    def made(holds: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=_LONG)])
        def test(examples: int) -> None:
            slow = [HealthCheck.too_slow]
            quietly = settings(
                max_examples=examples, deadline=None, suppress_health_check=slow, phases=PHASES
            )
            quietly(given(*drawn)(holds))()

        test.__name__, test.__doc__ = holds.__name__, holds.__doc__
        return test

    return made
