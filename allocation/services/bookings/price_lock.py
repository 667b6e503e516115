"""The price lock of a quote: a signed time whose price book counts for five minutes."""

from datetime import datetime, timedelta

from django.core import signing

from allocation.words.refusals import refusal_text
from tenants.platform.errors import Refused

PRICE_LOCK_TIME = timedelta(minutes=5)
SALT = "allocation.quote"


def price_lock(now: datetime) -> str:
    """Returns the text that keeps the prices of `now` for a booking."""
    return signing.dumps(now.isoformat(), salt=SALT)


def price_lock_read(text: str, now: datetime) -> datetime:
    """Returns the time whose prices count.

    Raises:
        Refused: `quote_expired`, for a lock that is too old or was not made here.
    """
    try:
        at = datetime.fromisoformat(signing.loads(text, salt=SALT))
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise _expired() from error
    if not now - PRICE_LOCK_TIME <= at <= now + timedelta(seconds=1):
        raise _expired()
    return at


def _expired() -> Refused:
    return Refused(
        "quote_expired",
        refusal_text("quote_expired"),
        param="quote",
    )
