"""What a token set up and what ends with it: webhooks, chat channels, invitations, policy hooks.

Each is used only as long as its token and all tokens before that one are valid, which the database
says (`portal_token_lives`). Here the rows follow, so that pages and REST show that it has ended.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from tenants.access import Actor
from tenants.audit import audit_record
from tenants.models import (
    ChatChannel,
    Invitation,
    PolicyHook,
    TokenLives,
    Webhook,
    WebhookDelivery,
)

REASON = "The token that set it has ended."


def products_end(actor: Actor, token_ids: Sequence[UUID], now: datetime) -> None:
    """Ends what these tokens of the actor's tenant have set up."""
    _end(Q(tenant_id=actor.tenant_id, made_with__in=token_ids), actor.user_id, now)


def products_sweep(now: datetime) -> None:
    """Ends what tokens have set up that expired, or whose holder has left."""
    _end(Q(made_with__isnull=False) & ~Q(TokenLives("made_with", now)), None, now)


@transaction.atomic
def _end(ended: Q, actor_id: int | None, now: datetime) -> None:
    for webhook in Webhook.objects.select_for_update().filter(ended, disabled_at=None):
        webhook.disabled_at, webhook.disabled_reason = now, REASON
        webhook.save(update_fields=["disabled_at", "disabled_reason"])
        webhook.deliveries.filter(state=WebhookDelivery.State.PENDING).update(
            state=WebhookDelivery.State.DROPPED, settled=now
        )
        _record(webhook, "webhook.disabled", "webhook", actor_id, now)
    for channel in ChatChannel.objects.filter(ended):
        _record(channel, "chat_channel.deleted", "chat_channel", actor_id, now)
        channel.delete()
    for invitation in Invitation.objects.filter(ended, state=Invitation.State.OPEN):
        invitation.state, invitation.decided = Invitation.State.REVOKED, now
        invitation.save(update_fields=["state", "decided"])
        _record(invitation, "invitation.revoked", "invitation", actor_id, now)
    for hook in PolicyHook.objects.filter(ended, is_on=True):
        hook.is_on = False
        hook.save(update_fields=["is_on"])
        _record(hook, "policy_hook.set", "policy_hook", actor_id, now)


def _record(
    row: Webhook | ChatChannel | Invitation | PolicyHook,
    action: str,
    kind: str,
    actor_id: int | None,
    now: datetime,
) -> None:
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=actor_id,
        action=action,
        target=(kind, row.id),
        now=now,
        detail={"reason": REASON},
    )
