"""The tables with a hash chain: log entries, decisions and versions of the policy."""

from datetime import datetime

from tenants.services.sealed_log.chain import ENTRIES, SEAL_BATCH, TIME, Source, chain_seal

DECISIONS = Source(
    name="decisions",
    table="allocation_decision",
    key="id",
    tenant="NULL::uuid",
    row="jsonb_build_array(id, " + TIME.format("at") + ", leader_term, policy_id, snapshot_sha256,"
    " coalesce(nullif(snapshot_archived, ''), encode(sha256(snapshot), 'hex')), plan_sha256,"
    " coalesce(nullif(plan_archived, ''), encode(sha256(plan), 'hex')), software,"
    " solve_ms)::text",
)
# The log records when a version goes out of use.
POLICIES = Source(
    name="policies",
    table="allocation_policyversion",
    key="number",
    tenant="NULL::uuid",
    row="jsonb_build_array(number, document, " + TIME.format("created") + ", created_by_id)::text",
)
SOURCES = (ENTRIES, DECISIONS, POLICIES)
# One run seals at most this many batches of a source; the next run continues.
MAX_BATCHES = 20


def audit_seal_all(now: datetime) -> int:
    """Seals the unsealed rows of all sources; returns how many."""
    sealed = 0
    for source in SOURCES:
        for _ in range(MAX_BATCHES):
            found = chain_seal(source, now=now)
            sealed += found
            if found < SEAL_BATCH:
                break
    return sealed
