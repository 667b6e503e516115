"""How long silence is counted before leased work begins elsewhere."""

from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS, TTL_SECONDS, LeaseWatch


def test_a_watcher_counts_silence_from_what_it_has_seen_itself() -> None:
    one, two = "gpu-a1-01", "gpu-a1-02"
    watch: LeaseWatch[str] = LeaseWatch()
    assert watch.expired({one: 1, two: 1}, 1000.0) == {}
    assert watch.expired({one: 1, two: 2}, 1000.0 + LEASE_EXPIRY_SECONDS) == {}
    assert watch.expired({one: 1, two: 2}, 1001.0 + LEASE_EXPIRY_SECONDS) == {one: 1}
    # What comes back is counted anew, and so is what was of no interest for a while.
    assert watch.expired({two: 2}, 1002.0 + LEASE_EXPIRY_SECONDS) == {}
    assert watch.expired({one: 1, two: 2}, 1003.0 + LEASE_EXPIRY_SECONDS) == {}
    assert TTL_SECONDS < LEASE_EXPIRY_SECONDS
