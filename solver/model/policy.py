"""The policy of a cycle: every constant that operators may change, as frozen values."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from solver.model.inputs import Tier
from solver.model.omitted import OMITTED_WHEN_EMPTY

ORDER_KEYS = ("tier", "part", "tenant", "project", "person", "age")
"""Keys of the queue's order between its bands and the time of submission."""

ANY_TIER = "*"
"""Stands for all tiers without an entry of their own."""

VICTIM_RULES = ("taken_back", "own_part", "higher_tier", "fairer_share")
"""Codes of the rules by which a booking may be paused for another."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Constants of the score that chooses a place: least cost for later demand.

    The use of a GPU by the next `future_requests` weighs `long_run_weight` times its immediate use.
    Each host core per GPU that a node has more or less than the demand needs costs
    `host_core_cost` units, for at most `host_cores_off` thousandths of a core.
    """

    long_run_weight: int = 5
    future_requests: int = 50
    host_core_cost: int = 1_400
    host_cores_off: int = 20_000


@dataclass(frozen=True, slots=True)
class PolicyPart:
    """The parameters that a policy may have otherwise for some classes, or for some tenants.

    Without `classes` it is for all classes, without `tenants` for all tenants. Parameters of the
    whole cycle, such as the grid, or that compare requests of different classes, such as the order
    of the queue, have one value for everybody.
    """

    classes: tuple[str, ...]
    tenants: tuple[str, ...]
    share_step: int
    age_step: int
    cool_down: int
    mode_changes: int
    mode_patience: int
    patience: int
    victim_rules: tuple[str, ...]
    scoring: Scoring

    def is_for(self, gpu_class: str | None, tenant: str) -> bool:
        """True for a class and a tenant for which it is in force; no tenant is in no list."""
        is_class = not self.classes or gpu_class in self.classes
        return is_class and (not self.tenants or tenant in self.tenants)


@dataclass(frozen=True, slots=True)
class Policy:
    """All parameters of a cycle, in seconds except `share_step`: millionths of a class.

    `half_life`: use of that age counts half in the fair share. Shares are compared in steps of
    `share_step` and waiting in steps of `age_step`, so that small differences do not decide. A
    resumed booking is not paused again within `cool_down`. Notice goes out `notice_margin` early,
    so that the time between two cycles can't make it late. A GPU is shared by one owner at a time,
    or by anybody if `share_owners` is more than 1. At most `neighbourhoods` attempts in a cycle
    move reservations so that others fit, and at most `exact_neighbourhoods` use a proof search.
    With `mode_changes` 0 GPUs whose mode changes by a reset keep their mode; else a change is
    planned only if a booking starts more than `mode_patience` seconds earlier by it. For one
    newcomer at most `moved_bookings` reservations on `node_sets` sets of nodes are moved, and a
    proof search has at most `exact_pieces` pieces. A refusal names at most `alternatives` others.
    Bookings are paused by the `victim_rules` only, each of `VICTIM_RULES`. Who has waited longer
    than `patience` goes before all who borrow. Past use is read at the last full `epoch`, so that
    no share, and no order, changes in between with time alone. The other constants are those of
    `Scoring`. Behind the first `plan_depth` of the queue in connected classes (0: no bound) a
    booking that borrows waits without a planned start. `order` has all of `ORDER_KEYS`, the one
    that decides first at the beginning. `soft_bounds` of the places that are kept for requests for
    approval: seconds before their start, GPUs of a project, and percent of a class above a
    guarantee; empty: the usual ones. `headroom`: by class, the GPUs that are kept free at
    peaks; work of the tiers in `headroom_for` may use them if it is to start at once and takes no
    longer than so many seconds. `class_weights`: by class, how much a GPU of it counts in the recent share
    of an owner, in percent; 100 without an entry. `borrow_windows`: by tier, the longest window in
    seconds for which its bookings may borrow although nobody can pause them. The row of `ANY_TIER` is for all
    tiers without one; without it they borrow nothing then. `parts` are in force for some classes or
    tenants only; of two for the same, the first.
    """

    version: int
    grid: int = 300
    freeze_horizon: int = 60
    horizon: int = 28 * 86_400
    half_life: int = 7 * 86_400
    share_step: int = 5_000
    age_step: int = 6 * 3_600
    cool_down: int = 1_800
    notice_margin: int = 30
    share_owners: int = 1
    neighbourhoods: int = 32
    exact_neighbourhoods: int = 2
    mode_changes: int = 1
    mode_patience: int = 300
    long_run_weight: int = 5
    future_requests: int = 50
    host_core_cost: int = 1_400
    host_cores_off: int = 20_000
    moved_bookings: int = 16
    node_sets: int = 3
    exact_pieces: int = 24
    alternatives: int = 3
    victim_rules: tuple[str, ...] = VICTIM_RULES
    order: tuple[str, ...] = ORDER_KEYS
    patience: int = 3 * 86_400
    epoch: int = 3_600
    plan_depth: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    soft_bounds: tuple[int, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    borrow_windows: tuple[tuple[str, int], ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    parts: tuple[PolicyPart, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    headroom: tuple[tuple[str, int], ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    headroom_for: tuple[tuple[str, int], ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    class_weights: tuple[tuple[str, int], ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)

    def of(self, gpu_class: str | None, tenant: str = "") -> "Policy | PolicyPart":
        """What is in force for a class and a tenant."""
        return next((part for part in self.parts if part.is_for(gpu_class, tenant)), self)

    @property
    def variants(self) -> "tuple[Policy | PolicyPart, ...]":
        """The policy and all of its parts."""
        return (self, *self.parts)

    def with_borrow_windows(self, tiers: Iterable[Tier]) -> tuple[Tier, ...]:
        """The tiers of a snapshot, with the windows for which they may borrow."""
        windows = dict(self.borrow_windows)
        return tuple(
            tier
            if tier.pausable or not windows
            else replace(tier, borrow=windows.get(tier.slug, windows.get(ANY_TIER, 0)))
            for tier in tiers
        )

    @property
    def scoring(self) -> Scoring:
        """The constants of the placement score."""
        return Scoring(self.long_run_weight, self.future_requests, self.host_core_cost, self.host_cores_off)
