"""A reason: a rule with the facts for which it holds, without a sentence."""

from dataclasses import dataclass, replace

from solver.reasons.catalogue import BY_CODE

Fact = int | str


@dataclass(frozen=True, slots=True)
class Reason:
    """A rule of the catalogue by id and code, its kind of check, and the facts.

    `numbers` are sorted by name. `frees_at` is the Unix second at which the reason no longer holds;
    None when unknown.
    """

    rule: str
    code: str
    check: str
    numbers: tuple[tuple[str, Fact], ...] = ()
    frees_at: int | None = None

    @property
    def facts(self) -> dict[str, Fact]:
        """The numbers by name."""
        return dict(self.numbers)


def reason(code: str, frees_at: int | None = None, /, **facts: Fact | None) -> Reason:
    """Returns a reason of the catalogue; facts that are None are left out.

    Raises:
        KeyError: the catalogue has no such code.
    """
    rule = BY_CODE[code]
    numbers = tuple(sorted((name, fact) for name, fact in facts.items() if fact is not None))
    return Reason(rule.id, code, rule.check, numbers, frees_at)


def with_facts(why: Reason, **facts: Fact) -> Reason:
    """Returns the reason with more facts."""
    return replace(why, numbers=tuple(sorted({**why.facts, **facts}.items())))


def frees(why: Reason, at: int | None) -> Reason:
    """Returns the reason with the time at which it no longer holds."""
    return replace(why, frees_at=at)
