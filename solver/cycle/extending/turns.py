"""Extensions at their places in the queue.

Those ahead have their starts by then, expected starts behind make way, and all other reservations
keep their second. Nobody is paused for a later end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from solver.cycle.extending.extensions import (
    held_by,
    overlaps,
    place_taken,
    quota_blocks,
    rest_of,
    why_never,
    why_not_live,
)
from solver.cycle.outcome import Outcome
from solver.model.demand import Fit
from solver.model.inputs import Extension, Held, Snapshot
from solver.model.plan import Extend


@dataclass(slots=True)
class ExtensionTurns:
    """The extensions of a cycle by the id of their request, and the answers so far."""

    outcome: Outcome
    by_request: Mapping[str, Extension]
    rows: Mapping[str, list[Held]]
    answers: list[Extend] = field(default_factory=list)

    @classmethod
    def of(cls, outcome: Outcome, snapshot: Snapshot) -> "ExtensionTurns":
        """The extensions of a snapshot that have a place in the queue."""
        asked = [each for each in snapshot.extensions if each.request is not None]
        by_request = {each.request.booking: each for each in asked if each.request is not None}
        return cls(outcome, by_request, held_by(snapshot, asked))

    def with_answers(self, others: tuple[Extend, ...]) -> tuple[Extend, ...]:
        """The answers so far and those of other extensions, by booking."""
        return tuple(sorted((*others, *self.answers), key=lambda each: each.booking))

    def stretches(self, extension: Extension) -> tuple[Fit, ...]:
        """The stretches that it adds, not reserved."""
        rows = tuple(self.rows[extension.booking])
        return rest_of(self.outcome.state, rows, extension.until)

    def is_free(self, extension: Extension) -> bool:
        """Whether nothing has to make way for it."""
        state, wanted = self.outcome.state, self.stretches(extension)
        is_free = all(state.all.is_free(found) for found in wanted)
        return is_free and quota_blocks(state, wanted) is None

    def decide(self, extension: Extension) -> tuple[Fit, ...]:
        """Reserve the stretches and return them; none, with nothing changed: it is refused."""
        state, rows = self.outcome.state, tuple(self.rows[extension.booking])
        wanted = self.stretches(extension)
        blocked = (
            why_not_live(state, rows, extension.until)
            or why_never(state, rows, wanted)
            or quota_blocks(state, wanted)
        )
        if blocked is None and not self._lay(wanted):
            blocked = place_taken(state, wanted)
        if blocked is None:
            state.running.keep([extension.booking])
            self.answers.append(Extend(extension.booking, extension.until, ()))
            return wanted
        if not extension.waiting or blocked.code == "not_live":
            self.answers.append(Extend(extension.booking, extension.until, (blocked,)))
        return ()

    def _lay(self, wanted: tuple[Fit, ...]) -> bool:
        """Reserve them; reservations in the way get other places at their own second."""
        state, rebinding = self.outcome.state, self.outcome.rebinding
        if self._reserve(wanted):
            return True
        rebinding.written("")
        near = self._near(wanted)
        for found in near.values():
            state.free(found)
        again = self._elsewhere(near) if self._reserve(wanted) else {}
        if again is None:
            for found in wanted:
                state.free(found)
        if not again:
            for found in near.values():
                state.reserve(found)
            return False
        for name in sorted({found.demand.gpu_class for found in again.values()}):
            of_class = {who: fit for who, fit in again.items() if fit.demand.gpu_class == name}
            rebinding.movable.move(name, of_class)
        return True

    def _reserve(self, wanted: tuple[Fit, ...]) -> bool:
        """Reserve them if all of them are free."""
        state = self.outcome.state
        if not all(state.all.is_free(found) for found in wanted):
            return False
        for found in wanted:
            state.reserve(found)
        return True

    def _near(self, wanted: tuple[Fit, ...]) -> dict[str, Fit]:
        """The movable reservations in the way."""
        movable, found = self.outcome.rebinding.movable, dict[str, Fit]()
        for stretch in wanted:
            found |= movable.near(stretch.demand.gpu_class, stretch.window)
        return {who: fit for who, fit in sorted(found.items()) if overlaps(fit, wanted)}

    def _elsewhere(self, near: Mapping[str, Fit]) -> dict[str, Fit] | None:
        """Other places for freed reservations, reserved; None, with nothing reserved: there are
        none."""
        state, again = self.outcome.state, dict[str, Fit]()
        for who, found in near.items():
            other = state.at(found.demand, found.starts)
            if other is None:
                for each in again.values():
                    state.free(each)
                return None
            state.reserve(other)
            again[who] = other
        return again
