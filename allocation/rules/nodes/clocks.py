"""When the clock of a node is too wrong to give it work: it starts and ends bookings by it."""

WRONG_SECONDS = 5
RIGHT_SECONDS = 2


def clock_is_wrong(*, skew: int, before: int | None, was_wrong: bool) -> bool:
    """`skew` is the node's clock less ours in seconds, `before` what it was one heartbeat earlier.

    One alone proves nothing, as a heartbeat may have waited on its way. Once wrong, a clock has to
    be clearly right again, so that a node at the limit does not come and go.
    """
    if was_wrong:
        return abs(skew) > RIGHT_SECONDS
    return abs(skew) > WRONG_SECONDS and before is not None and abs(before) > WRONG_SECONDS
