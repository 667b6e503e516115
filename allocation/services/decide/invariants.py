"""Invariants of the whole database, checked in one snapshot."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connection, transaction

from billing.queries import ledger_check


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: its number, its name, and the rows that break it."""

    promise: str
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Check:
    """A query for one text per violation; `{live}` and the like stand for lists of states."""

    promise: str
    name: str
    sql: str


_STATES = {
    "live": "('planned', 'starting', 'active', 'releasing')",
    "on_node": "('starting', 'active', 'releasing')",
    "over": "('ended', 'refused', 'rejected', 'expired', 'cancelled', 'failed')",
    "placed": "('offered', 'scheduled', 'starting', 'active')",
}

_CHECKS = (
    _Check(
        "P1",
        "double booking",
        # Of the rows on a slot in the order of their starts, two that follow each other overlap if
        # any do. A join on overlapping periods compares each row with all others of its time.
        """SELECT DISTINCT before || ' and ' || id FROM (
             SELECT id, lower(period) AS since,
                    lag(id) OVER one_slot AS before, lag(upper(period)) OVER one_slot AS until
             FROM allocation_allocation, generate_series(lower(slots), upper(slots) - 1) AS slot
             WHERE state IN {live} AND mode <> 'shared'
             WINDOW one_slot AS (PARTITION BY slot ORDER BY lower(period), id)) AS rows
           WHERE until > since""",
    ),
    _Check(
        "P1",
        "a GPU shared beyond the whole",
        """SELECT a.gpu_number || ' at ' || lower(a.period) || ': ' || sum(b.share)
           FROM allocation_allocation a JOIN allocation_allocation b
             ON a.gpu_number = b.gpu_number AND b.period @> lower(a.period)
           WHERE a.state IN {live} AND b.state IN {live}
             AND a.mode = 'shared' AND b.mode = 'shared'
           GROUP BY a.id HAVING sum(b.share) > 1000""",
    ),
    _Check(
        "P1",
        "a GPU whole, sliced and shared at once",
        """SELECT a.id || ' and ' || b.id
           FROM allocation_allocation a JOIN allocation_allocation b
             ON a.gpu_number = b.gpu_number AND a.mode < b.mode AND a.period && b.period
           WHERE a.state IN {live} AND b.state IN {live}""",
    ),
    _Check(
        "P2",
        "two on the same slots",
        """SELECT a.allocation_id || ' and ' || b.allocation_id
           FROM allocation_occupancy a JOIN allocation_occupancy b
             ON a.id < b.id AND a.slots && b.slots
           WHERE a.closed IS NULL AND b.closed IS NULL
             AND (a.share IS NULL OR b.share IS NULL)""",
    ),
    _Check(
        "P2",
        "more than a whole GPU in use in shares",
        """SELECT gpu_id || ' has ' || sum(share) FROM allocation_occupancy
           WHERE closed IS NULL GROUP BY gpu_id HAVING sum(share) > 1000""",
    ),
    _Check(
        "P2",
        "on a node without an occupancy",
        """SELECT a.id::text FROM allocation_allocation a
           WHERE a.state IN {on_node} AND NOT EXISTS (
             SELECT FROM allocation_occupancy o
             WHERE o.allocation_id = a.id AND o.slots = a.slots AND o.gpu_id = a.gpu_id
               AND o.closed IS NULL)""",
    ),
    _Check(
        "P2",
        "an occupancy of nothing",
        """SELECT o.allocation_id::text
           FROM allocation_occupancy o JOIN allocation_allocation a ON a.id = o.allocation_id
           WHERE o.closed IS NULL AND a.state NOT IN {on_node}""",
    ),
    _Check(
        "P3",
        "a node ahead of its own assignment",
        """SELECT name FROM allocation_node
           WHERE published_generation > generation OR observed_generation > generation""",
    ),
    _Check(
        "P3",
        "a node that has received newer documents than this database knows: raise the epoch",
        """SELECT name FROM allocation_node WHERE ahead_epoch IS NOT NULL""",
    ),
    _Check(
        "P6",
        "an array with more elements open than it may have, or money held after its end",
        """SELECT a.id::text FROM allocation_bookingarray a
           WHERE a.parallel < (SELECT count(*) FROM allocation_booking b
                               WHERE b.array_id = a.id AND b.state NOT IN {over})
              OR (a.outcome <> '' OR NOT a.holds_all) AND EXISTS (
                SELECT FROM billing_transfer h WHERE h.reference = a.id AND h.kind = 'hold'
                  AND NOT EXISTS (SELECT FROM billing_transfer e WHERE e.hold_id = h.id))""",
    ),
    _Check(
        "P6",
        "money held for what is over",
        """SELECT b.id::text FROM allocation_booking b
           WHERE b.state IN {over} AND EXISTS (
             SELECT FROM billing_transfer h WHERE h.reference = b.id AND h.kind = 'hold'
               AND NOT EXISTS (SELECT FROM billing_transfer e WHERE e.hold_id = h.id))""",
    ),
    _Check(
        "P6",
        "a charge that is not in the ledger",
        """SELECT b.id || ' says ' || coalesce(b.charged::text, 'nothing') || ', the ledger '
             || coalesce(t.charged, 0)
           FROM allocation_booking b LEFT JOIN LATERAL (
             SELECT sum(amount) AS charged FROM billing_transfer
             WHERE reference = b.id AND kind = 'settle') t ON true
           WHERE b.charged IS DISTINCT FROM
             CASE WHEN b.state IN {over} THEN coalesce(t.charged, 0) END""",
    ),
    _Check(
        "P6",
        "a correction that is not in the ledger",
        """SELECT b.id || ' says ' || b.corrected || ', the ledger ' || coalesce(t.corrected, 0)
           FROM allocation_booking b LEFT JOIN LATERAL (
             SELECT sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END) AS corrected
             FROM billing_transfer
             WHERE reference = b.id AND kind IN ('charge', 'reverse') AND fee = '') t ON true
           WHERE b.corrected <> coalesce(t.corrected, 0)""",
    ),
    _Check(
        "P6",
        "a late share given back that is not in the ledger",
        """SELECT b.id || ' says ' || b.late_refunded || ', the ledger ' || coalesce(t.refunded, 0)
           FROM allocation_booking b LEFT JOIN LATERAL (
             SELECT sum(amount) AS refunded FROM billing_transfer
             WHERE reference = b.id AND kind = 'reverse' AND fee = 'late_share') t ON true
           WHERE b.late_refunded <> coalesce(t.refunded, 0)""",
    ),
    _Check(
        "P6",
        "a settled run that is not in the ledger",
        """SELECT b.id || ' says ' || b.settled || ', the ledger ' || coalesce(t.charged, 0)
             || ', the receipts ' || coalesce(p.charged, 0)
           FROM allocation_booking b
             LEFT JOIN LATERAL (SELECT sum(amount) AS charged FROM billing_transfer
               WHERE reference = b.id AND kind = 'settle') t ON true
             LEFT JOIN LATERAL (SELECT sum(charged) AS charged FROM allocation_pause
               WHERE booking_id = b.id) p ON true
           WHERE b.settled <> coalesce(p.charged, 0) + b.late_fees + b.setup_paid
             OR (b.state NOT IN {over} AND b.settled <> coalesce(t.charged, 0))""",
    ),
    _Check(
        "P6",
        "a hold that is not in the ledger",
        """SELECT b.id || ' says ' || b.hold_amount || ', the ledger ' || coalesce(t.held, 0)
           FROM allocation_booking b LEFT JOIN LATERAL (
             SELECT sum(h.amount) AS held FROM billing_transfer h
             WHERE h.reference = b.id AND h.kind = 'hold'
               AND NOT EXISTS (SELECT FROM billing_transfer e WHERE e.hold_id = h.id)) t ON true
           WHERE b.state NOT IN {over} AND b.hold_amount <> b.settled + coalesce(t.held, 0)""",
    ),
    _Check(
        "P6",
        "sums of charges that are not the ledger's",
        """SELECT account_id || ' on ' || day || ': ' || coalesce(kept.exact, 0) || ', the ledger '
             || coalesce(booked.exact, 0)
           FROM (SELECT account_id, day, sum(lines) AS lines, sum(exact) AS exact,
                        sum(amount) AS amount
                 FROM allocation_chargesum GROUP BY 1, 2) kept
           FULL JOIN (
             SELECT own.account_id, (t.at AT TIME ZONE 'UTC')::date AS day, count(*) AS lines,
                    sum(charge) AS exact, sum(billing_cents(charge)) AS amount
             FROM billing_transfer t
             JOIN billing_budget own ON own.account_id
               = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
             CROSS JOIN LATERAL (
               SELECT CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END AS charge) c
             WHERE t.kind IN ('settle', 'charge', 'reverse') AND t.reference IS NOT NULL
             GROUP BY 1, 2) booked USING (account_id, day)
           WHERE (kept.lines, kept.exact, kept.amount)
             IS DISTINCT FROM (booked.lines, booked.exact, booked.amount)""",
    ),
    _Check(
        "P7",
        "a budget overspent",
        """SELECT id::text FROM billing_account
           WHERE limited AND debits + pending > credits""",
    ),
    _Check(
        "P8",
        "a row of another tenant",
        """SELECT a.id::text FROM allocation_allocation a
             LEFT JOIN allocation_booking b ON b.id = a.booking_id AND b.tenant_id = a.tenant_id
               AND b.project_id = a.project_id
           WHERE b.id IS NULL""",
    ),
    _Check(
        "P12",
        "a pause without one open receipt",
        """SELECT b.id || ' is ' || b.state || ' with ' || count(p.id)
           FROM allocation_booking b LEFT JOIN allocation_pause p
             ON p.booking_id = b.id AND p.resumed_at IS NULL AND p.ended_at IS NULL
               AND (p.emptied_at IS NULL) = (b.state = 'pausing')
           WHERE b.state IN ('pausing', 'paused') GROUP BY b.id HAVING count(p.id) <> 1""",
    ),
    _Check(
        "P12",
        "an open receipt of a booking that is not paused",
        """SELECT p.id || ' of ' || b.state
           FROM allocation_pause p JOIN allocation_booking b ON b.id = p.booking_id
           WHERE p.resumed_at IS NULL AND p.ended_at IS NULL
             AND b.state NOT IN (
               'pausing', 'paused', 'queued', 'scheduled', 'starting', 'ending')""",
    ),
    _Check(
        "P12",
        "stopped before its time",
        """SELECT p.id::text FROM allocation_pause p
             JOIN allocation_allocation a ON a.booking_id = p.booking_id
               AND p.ready_at >= lower(a.period) AND p.ready_at < upper(a.period)
           WHERE p.acknowledged_at IS NULL AND upper(a.period) < p.deadline
             AND a.state <> 'superseded' AND NOT a.abandoned AND p.emptied_at IS NOT NULL""",
    ),
    _Check(
        "P12",
        "paused for nobody, or for itself",
        """SELECT p.id::text FROM allocation_pause p
             LEFT JOIN allocation_pausecause c ON c.id = p.cause_id
           WHERE c.beneficiary_id IS NULL AND p.rule NOT IN ('R114', 'R149', 'R175', 'R176')
              OR c.beneficiary_id = p.booking_id""",
    ),
    _Check(
        "P12",
        "a pause that was neither resumed nor refunded",
        """SELECT p.id::text
           FROM allocation_pause p JOIN allocation_booking b ON b.id = p.booking_id
           WHERE p.ended_at IS NOT NULL AND b.state IN {over} AND EXISTS (
             SELECT FROM billing_transfer h WHERE h.reference = b.id AND h.kind = 'hold'
               AND NOT EXISTS (SELECT FROM billing_transfer e WHERE e.hold_id = h.id))""",
    ),
    _Check(
        "P13",
        "part of a gang",
        """SELECT b.id || ' has ' || count(a.id) || ' of ' || (b.ask->>'count')
           FROM allocation_booking b LEFT JOIN allocation_allocation a
             ON a.booking_id = b.id AND a.state IN {live} AND NOT a.abandoned
           WHERE (b.state IN {placed} OR (b.state = 'paused' AND a.id IS NOT NULL))
             AND NOT b.ask ? 'groups' GROUP BY b.id
           HAVING count(a.id) <> (b.ask->>'count')::int OR count(DISTINCT a.period) <> 1""",
    ),
    _Check(
        "P13",
        "part of a mixed booking",
        """SELECT b.id || ' has ' || count(a.id) || ' of ' || (g->>'gpu_class')
           FROM allocation_booking b CROSS JOIN LATERAL jsonb_array_elements(b.ask->'groups') g
             LEFT JOIN (allocation_allocation a JOIN allocation_gpumodel m ON m.slug = a.model_id)
             ON a.booking_id = b.id AND a.state IN {live} AND NOT a.abandoned
               AND m.gpu_class_id = g->>'gpu_class'
           WHERE b.state IN {placed} GROUP BY b.id, g
           HAVING count(a.id) <> (g->>'count')::int OR count(DISTINCT a.period) <> 1""",
    ),
    _Check(
        "P13",
        "groups of a mixed booking at different times",
        """SELECT b.id::text FROM allocation_booking b JOIN allocation_allocation a
             ON a.booking_id = b.id AND a.state IN {live} AND NOT a.abandoned
           WHERE b.state IN {placed} AND b.ask ? 'groups' GROUP BY b.id
           HAVING count(DISTINCT a.period) <> 1""",
    ),
    _Check(
        "P13",
        "a member in another state than its booking",
        """SELECT DISTINCT b.id || ' ' || b.state || ' with ' || a.state
           FROM allocation_booking b JOIN allocation_allocation a ON a.booking_id = b.id
           WHERE a.state IN {live} AND NOT a.abandoned AND NOT CASE b.state
             WHEN 'scheduled' THEN a.state = 'planned'
             WHEN 'offered' THEN a.state = 'planned'
             WHEN 'starting' THEN a.state IN ('starting', 'active')
             WHEN 'active' THEN a.state = 'active'
             WHEN 'ending' THEN a.state IN {on_node}
             WHEN 'pausing' THEN a.state IN {on_node}
             WHEN 'paused' THEN a.state = 'planned'
             ELSE false END""",
    ),
    _Check(
        "P15",
        "a transition that is not in the table",
        """SELECT booking_id || ' from ' || old || ' to ' || state FROM (
             SELECT booking_id, state, lag(state) OVER (PARTITION BY booking_id ORDER BY id) AS old
             FROM allocation_bookingevent) e
           WHERE old <> state AND NOT EXISTS (
             SELECT FROM allocation_transition t WHERE t.old = e.old AND t.new = e.state)""",
    ),
    _Check(
        "P15",
        "a state that is not the last of its history",
        """SELECT b.id || ' is ' || b.state || ', its history ends at ' || e.state
           FROM allocation_booking b JOIN LATERAL (
             SELECT state FROM allocation_bookingevent
             WHERE booking_id = b.id ORDER BY id DESC LIMIT 1) e ON true
           WHERE e.state <> b.state""",
    ),
    _Check(
        "P15",
        "over without an end",
        """SELECT id::text FROM allocation_booking
           WHERE (state IN {over}) <> (ended_at IS NOT NULL)""",
    ),
)


def invariants_check() -> list[Violation]:
    """Returns every violation; empty when all invariants hold.

    For the system's role, which sees every tenant. It reads one snapshot, so others may write
    meanwhile. Must not run inside a transaction.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = [violation for check in _CHECKS for violation in _violations(check)]
        found += [
            Violation(
                "P6",
                "a balance that is not the sum of its transfers",
                f"{drift.account_id} {drift.field}: {drift.stored}, not {drift.recomputed}",
            )
            for drift in ledger_check()
        ]
        return found


def _violations(check: _Check) -> Iterator[Violation]:
    with connection.cursor() as cursor:
        cursor.execute(check.sql.format(**_STATES))
        for (detail,) in cursor.fetchall():
            yield Violation(check.promise, check.name, detail)
