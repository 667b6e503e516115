"""What the solver is asked while a test or a made-up world runs, to make goldens of it.

The solver's functions are replaced wherever they are known, so it does not matter where they live.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest

import solver
from solver import Availability, Plan, Policy, Quote, QuoteRequest, Snapshot
from solver.cycle.compaction import Proposal, propose
from tests.golden.documents import Kind

MOST = 400
"""Property tests ask thousands of times: only the first questions of a test are kept."""


@dataclass(frozen=True)
class Asked:
    """One question to the solver."""

    kind: Kind
    snapshot: Snapshot
    policy: Policy
    question: QuoteRequest | None = None


@dataclass(eq=False)
class Recorder:
    """Keeps what is asked; as a plugin of pytest by the name of the test that asks."""

    now: list[Asked] = field(default_factory=list)
    tests: dict[str, list[Asked]] = field(default_factory=dict)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin a test."""
        self.now = self.tests[item.name] = []

    def note(self, asked: Asked) -> None:
        """Keep one question."""
        if len(self.now) < MOST:
            self.now.append(asked)

    def install(self) -> None:
        """Record from now on, for as long as this process lives."""
        _replace(solver.solve, self._solve)
        _replace(propose, self._propose)
        really_load, really_quote = Availability.__init__, Availability.quote
        sites: dict[int, tuple[Snapshot, Policy]] = {}

        @wraps(really_load)
        def load(site: Availability, snapshot: Snapshot, policy: Policy) -> None:
            sites[id(site)] = snapshot, policy
            really_load(site, snapshot, policy)

        @wraps(really_quote)
        def quote(site: Availability, question: QuoteRequest, *, only_as_asked: bool = False) -> Quote:
            if not only_as_asked:
                self.note(Asked("quote", *sites[id(site)], question))
            return really_quote(site, question, only_as_asked=only_as_asked)

        setattr(Availability, "__init__", load)  # noqa: B010  mypy knows no other way
        setattr(Availability, "quote", quote)  # noqa: B010

    def _solve(self, really: Callable[..., Plan]) -> Callable[..., Plan]:
        @wraps(really)
        def solve(snapshot: Snapshot, policy: Policy) -> Plan:
            self.note(Asked("plan", snapshot, policy))
            return really(snapshot, policy)

        return solve

    def _propose(self, really: Callable[..., tuple[Proposal, ...]]) -> Callable[..., tuple[Proposal, ...]]:
        @wraps(really)
        def propose(snapshot: Snapshot, plan: Plan, policy: Policy) -> tuple[Proposal, ...]:
            self.note(Asked("proposals", snapshot, policy))
            return really(snapshot, plan, policy)

        return propose


def _replace(known: Any, made: Callable[[Any], Any]) -> None:  # noqa: ANN401  any function
    """Put another function in the place of a known one, in every module that has it."""
    another = made(known)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("allocation", "solver", "tests") and name != "tests.golden.documents":
            for attribute, value in list(vars(module).items()):
                if value is known:
                    setattr(module, attribute, another)
