"""The planning horizon of the live policy, which limits what tiers allow."""

from allocation.models import PolicyVersion
from allocation.words.refusals import refusal_text
from solver import Policy
from tenants.services.input_values import seconds_words


def live_horizon() -> int:
    """Seconds ahead within which the live policy plans starts."""
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE)
    document = live.values_list("document", flat=True).first() or {}
    return int(document.get("horizon", Policy(version=0).horizon))


def horizon_hint(seconds: int | None) -> str:
    """What a tier is missing that allows starts so far ahead; empty if the policy plans them."""
    horizon = live_horizon()
    if seconds is None or seconds <= horizon:
        return ""
    return refusal_text("beyond_horizon", horizon=seconds_words(horizon))
