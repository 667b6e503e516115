"""Requests of one organisation that arrive together are written in one transaction.

A request that is refused, repeats a key, asks a hook or needs locks is answered alone, as one that
arrives alone is. So is each one of them if the transaction fails.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from rest_framework.response import Response

from tenants.access import Actor
from tenants.api.idempotency import KeyedRequest, StoredAnswer, key_write, keys_known
from tenants.platform.collected import Collection, NotTogether
from tenants.platform.errors import Refused
from tenants.platform.gather import Gathering
from tenants.platform.log_ids import log_ids
from tenants.platform.reference import reference_tx
from tenants.platform.rows import rows_together
from tenants.services.policy_hooks.questions import HookQuestion

Answered = Response | StoredAnswer


@dataclass(frozen=True, slots=True)
class Intake:
    """A request that may be written together with others of its organisation. `work` makes its
    answer in a transaction; its lines in the log have `ids`."""

    actor: Actor
    keyed: KeyedRequest | None
    work: Callable[[], Response]
    now: datetime
    is_final: bool
    ids: Mapping[str, str]

    @property
    def key(self) -> tuple[int, str] | None:
        """The idempotency key and whose it is."""
        return None if self.keyed is None else (self.actor.user_id, self.keyed.key)


def intakes_write(intakes: Sequence[Intake]) -> list[Answered | None]:
    """Writes all in one transaction, with their keys; returns the answers. A request without an
    answer has written nothing."""
    tenant_id = intakes[0].actor.tenant_id
    with reference_tx(tenant_id), rows_together() as together:
        sent = Counter(each.key for each in intakes if each.key is not None)
        known = keys_known(tenant_id, sent) | {key for key, times in sent.items() if times > 1}
        return [None if each.key in known else _answer(each, together) for each in intakes]


def _answer(intake: Intake, together: Collection) -> Response | None:
    try:
        with together.member(), log_ids(**intake.ids):
            response = intake.work()
            if intake.keyed is not None:
                key_write(
                    intake.actor, intake.keyed, response, intake.now, is_final=intake.is_final
                )
    except (Refused, HookQuestion, NotTogether):
        return None
    return response


@cache
def gathering_here() -> Gathering[Intake, Answered]:
    """Returns what gathers in this process."""
    return Gathering(intakes_write)
