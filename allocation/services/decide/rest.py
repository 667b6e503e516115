"""The rest of the solver: until when its last decision stays the decision."""

from allocation.models import PolicyVersion
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.kept import Taken
from allocation.solver.model.instants import next_instant

MOST_SECONDS = 60
"""What moves with each second changes a plan by so much later at most."""


class Rest:
    """Begins when a plan changed nothing. Turns solve nothing until the next instant at which time
    alone may change the plan, unless the snapshot or the policy changes.
    """

    def __init__(self) -> None:
        """Begins awake."""
        self._until: int | None = None
        self._policy: int | None = None

    def lasts(self, taken: Taken, live: PolicyVersion) -> bool:
        """Returns whether the plan for this snapshot would still change nothing; else ends."""
        is_same = not taken.is_changed and live.pk == self._policy
        if self._until is None or not is_same or taken.snapshot.now >= self._until:
            self.end()
        return self._until is not None

    def begin(self, taken: Taken, live: PolicyVersion) -> None:
        """Notes that the plan for this snapshot changes nothing."""
        latest = taken.snapshot.now + MOST_SECONDS
        self._until = next_instant(taken.snapshot, policy_of(live), latest)
        self._policy = live.pk

    def end(self) -> None:
        """Makes the next turn solve."""
        self._until = None
