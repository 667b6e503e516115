"""Shares: what an owner of quota is guaranteed, borrows and lends of a class."""

from dataclasses import dataclass

from tenants.platform.errors import invalid
from tenants.words import refusal_text


@dataclass(frozen=True, slots=True)
class Share:
    """Units of a class: what is sure, the most above it (None: what there is), and the most of it
    that others may use while it is idle (None: all). `more` None leaves the rest as it was."""

    guaranteed_units: int
    borrow_limit_units: int | None = None
    lend_limit_units: int | None = None
    more: "ShareMore | None" = None


@dataclass(frozen=True, slots=True)
class ShareMore:
    """The weight in what is split above guarantees, and a cap of GPU-hours: in any `cap_days` days
    in a row, or by month of UTC, where `cap_carries` adds what the month before left."""

    weight: int = 1
    cap_gpu_hours: int | None = None
    cap_days: int | None = None
    cap_carries: bool = False


def share_check(share: Share) -> None:
    """Raises Refused: `bad_share` with the field."""
    if share.guaranteed_units < 0:
        raise invalid("bad_share", refusal_text("share_negative"), "guaranteed")
    if (share.borrow_limit_units or 0) < 0:
        raise invalid("bad_share", refusal_text("borrow_negative"), "borrow")
    if (share.lend_limit_units or 0) < 0:
        raise invalid("bad_share", refusal_text("lend_negative"), "lend")
    if share.more is not None:
        more_check(share.more)


def more_check(more: ShareMore) -> None:
    """Raises Refused: `bad_share` with the field."""
    if not 0 <= more.weight <= 1000:
        raise invalid("bad_share", refusal_text("bad_weight"), "weight")
    if more.cap_gpu_hours is None:
        if more.cap_days is not None or more.cap_carries:
            raise invalid("bad_share", refusal_text("cap_hours_missing"), "cap_gpu_hours")
        return
    if more.cap_gpu_hours <= 0:
        raise invalid("bad_share", refusal_text("cap_too_small"), "cap_gpu_hours")
    if more.cap_days is not None and (not 1 <= more.cap_days <= 31 or more.cap_carries):
        raise invalid(
            "bad_share",
            refusal_text("cap_days"),
            "cap_days",
        )
