"""Options for an ask before anybody books: when, where, at what rate, and what else would work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from allocation.solver.borrowing import at_risk_from
from allocation.solver.explain import Line, freed_by, possible_wants, reason, why_not_at
from allocation.solver.options import Kind, in_fleet, next_free, variants
from allocation.solver.ordering import has_promise, in_order, promise_order
from allocation.solver.placement import Want, want_of
from allocation.solver.plan import Claim, Reason
from allocation.solver.preemption import Preemption
from allocation.solver.promises import promises_lay
from allocation.solver.types import Ask, Policy, Snapshot
from allocation.solver.working import Found, Working

_MOST_OPTIONS = 6


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody would like to know. `earliest` is the start of a fixed window.

    `latest` is the last second at which a flexible booking may end. `rates` are money per
    GPU-hour by class in any integer unit; classes without one count as free of charge.
    """

    ask: Ask
    duration: int
    earliest: int
    latest: int | None
    fixed: bool
    tenant: str
    project: str
    rates: Mapping[str, int] = field(default_factory=dict)
    tier: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to get it. `weight` is rate × units × seconds: for comparing, not for paying.

    `places_hint` are node names; the place itself is found again when it is booked. `borrowed` is
    how much of `units` lies above the guarantees, at risk from `at_risk_from` on (None: unknown).
    """

    gpu_class: str
    profile: str | None
    count: int
    share: int | None
    starts: int
    ends: int
    places_hint: tuple[str, ...]
    kind: Kind
    units: int
    weight: int
    borrowed: int = 0
    at_risk_from: int | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """The options, best first. `blocked` says what is in the way when it can't be had as asked."""

    options: tuple[Option, ...]
    blocked: Reason | None


class Availability:
    """A site as it will be if nobody books anything more; asked as often as one likes."""

    def __init__(self, snapshot: Snapshot, policy: Policy, claims: Iterable[Claim] = ()) -> None:
        """Lay what is live and what is promised. ValueError: contradicting snapshot.

        `claims` are the last plan's: what is borrowed is at risk from them.
        """
        self._claims = tuple(claims)
        snapshot = in_order(snapshot)
        self._working = Working(snapshot, policy)
        promised = sorted(filter(has_promise, snapshot.requests), key=promise_order)
        promises_lay(self._working, Preemption(self._working, snapshot), promised)

    def quote(self, question: Question) -> Quote:
        """Options and, when it can't be had as asked, the one thing that blocks it most."""
        working = self._working
        owners = (question.tenant, question.project)
        asked = tuple(
            want_of(
                question.ask,
                gpu_class,
                question.duration,
                owners,
                question.tier,
                question.owner,
            )
            for gpu_class in dict.fromkeys(question.ask.classes)
        )
        wants, never = possible_wants(working, asked)
        options, blocked = self._as_asked(question, wants, never)
        for variant in variants(working, in_fleet(working, asked)):
            able, _ = possible_wants(working, (variant.want,))
            # Later than something that costs no more, nobody would see it.
            weight = self._weight(question, variant.want)
            last = min((each.starts for each in options if each.weight <= weight), default=None)
            other = self._find(question, able, last)
            options += [self._option(question, other, variant.kind)] if other else []
        return Quote(_worth_showing(options), blocked)

    def _as_asked(
        self, question: Question, wants: tuple[Want, ...], never: tuple[Reason, ...]
    ) -> tuple[list[Option], Reason | None]:
        """The ask itself, else what blocks it and the next window that would do."""
        exact = self._find(question, wants)
        if exact is not None:
            return [self._option(question, exact, "as_asked")], None
        # Without a deadline that search was this one.
        is_all = not question.fixed and question.latest is None
        later = None if is_all else next_free(self._working, wants, self._first(question))
        (blocked,) = freed_by((self._why(question, wants, never),), later)
        return [self._option(question, later, "later")] if later else [], blocked

    def _find(
        self, question: Question, wants: tuple[Want, ...], last: int | None = None
    ) -> Found | None:
        """The first start, if it can wait not after `last`."""
        working, first = self._working, self._first(question)
        if not question.fixed:
            most = self._last(question)
            return working.earliest(wants, first, most if last is None else min(most, last))
        if question.earliest < working.now or first > self._horizon():
            return None
        return working.first_at(wants, first)

    def _why(
        self, question: Question, wants: tuple[Want, ...], never: tuple[Reason, ...]
    ) -> Reason:
        working = self._working
        if not wants:
            return never[0] if never else reason("unknown_class", "No GPU class was named.")
        if question.fixed and question.earliest < working.now:
            return reason("window_past", "The window has begun already.")
        if self._first(question) > self._horizon():
            sentence = "That is further ahead than bookings are planned."
            return reason("advance_window", sentence, horizon_seconds=working.policy.horizon)
        if not question.fixed and question.latest is not None:
            return reason("deadline_unreachable", "It cannot be finished before its deadline.")
        return self._blocker(question, wants[0])

    def _blocker(self, question: Question, want: Want) -> Reason:
        """What is in the way at the start asked for; what others reserved is busy for a quote."""
        blockers = why_not_at(self._working, want, self._first(question), Line())
        if blockers and blockers[0].code != "line":
            return blockers[0]
        return reason("window_busy", "The GPUs are booked by others for some of that time.")

    def _option(self, question: Question, found: Found, kind: Kind) -> Option:
        want = found.want
        pool = self._working.pools[want.gpu_class]
        nodes = sorted({pool.gpus[pool.column[place.gpu]].node for place in found.places})
        use = self._working.use(want)
        units, window = use.units, found.window
        borrowed = self._working.quota.borrowed(use, window)
        return Option(
            gpu_class=want.gpu_class,
            profile=want.profile,
            count=want.count,
            share=want.share,
            starts=found.starts,
            ends=found.ends,
            places_hint=tuple(nodes),
            kind=kind,
            units=units,
            weight=self._weight(question, want),
            borrowed=borrowed,
            at_risk_from=at_risk_from(use, window, self._claims) if borrowed else None,
        )

    def _weight(self, question: Question, want: Want) -> int:
        units = self._working.use(want).units
        return question.rates.get(want.gpu_class, 0) * units * want.duration

    def _first(self, question: Question) -> int:
        if question.fixed:
            return max(question.earliest, self._working.now)
        return self._working.first_start(question.earliest)

    def _last(self, question: Question) -> int:
        if question.latest is None:
            return self._horizon()
        return min(self._horizon(), question.latest - question.duration)

    def _horizon(self) -> int:
        return self._working.now + self._working.policy.horizon


def quote(snapshot: Snapshot, policy: Policy, question: Question) -> Quote:
    """One question on a snapshot; keep an `Availability` to ask many."""
    return Availability(snapshot, policy).quote(question)


def _worth_showing(options: list[Option]) -> tuple[Option, ...]:
    """What was asked for first, then the earliest and cheapest; nothing worse in every respect."""
    first, others = options[:1], options[1:]
    kept = [
        option
        for option in others
        if not any(
            better.starts < option.starts and better.weight <= option.weight
            for better in options
            if better is not option
        )
    ]
    kept.sort(key=lambda o: (o.starts, o.weight, o.kind, o.gpu_class, o.profile or ""))
    return tuple((first + kept)[:_MOST_OPTIONS])
