"""Writes campaigns: named pieces of a project's work."""

from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from billing.models import Campaign
from tenants.access import Actor
from tenants.audit import audit_record
from tenants.models import Project
from tenants.platform.errors import Refused, denied, invalid
from tenants.platform.reference import by_version


def campaign_create(*, actor: Actor, project: Project, name: str, now: datetime) -> Campaign:
    """Creates a campaign; its slug is made from its name.

    Raises:
        Refused: `not_allowed`, `bad_name` or `campaign_exists`.
    """
    _require_lead(actor, project)
    slug = slugify(name)[:40].strip("-")
    if not slug:
        raise invalid("bad_name", "A campaign's name needs a letter or a digit.", "name")
    campaign = Campaign(tenant_id=project.tenant_id, project=project, slug=slug, name=name[:80])
    try:
        with transaction.atomic():
            campaign.save(force_insert=True)
    except IntegrityError as error:
        raise Refused(
            "campaign_exists",
            f"{project.name} already has a campaign {slug}. Choose another name.",
            param="name",
        ) from error
    _audit(actor, "campaign.create", campaign, now)
    return campaign


def campaign_open_set(*, actor: Actor, campaign: Campaign, is_open: bool, now: datetime) -> None:
    """Opens or closes the campaign for new bookings.

    Raises:
        Refused: `not_allowed`.
    """
    _require_lead(actor, campaign.project)
    if campaign.is_open != is_open:
        campaign.is_open = is_open
        campaign.save(update_fields=["is_open"])
        _audit(actor, "campaign.open" if is_open else "campaign.close", campaign, now)


def campaign_to_charge(project: Project, slug: str) -> Campaign | None:
    """The open campaign of a new booking; None for an empty slug.

    Raises:
        Refused: `not_found` or `campaign_closed`.
    """
    if not slug:
        return None
    found = _campaign_read(project.id, slug)
    if found is None:
        raise invalid("not_found", f"{project.name} has no campaign {slug}.", "campaign")
    if not found.is_open:
        raise Refused(
            "campaign_closed",
            f"The campaign {found.name} is closed. The project's lead can open it again; a booking"
            " without a campaign works now.",
            param="campaign",
            owner="lead",
        )
    return found


@by_version
def _campaign_read(project_id: UUID, slug: str) -> Campaign | None:
    return Campaign.objects.filter(project=project_id, slug=slug).first()


def _require_lead(actor: Actor, project: Project) -> None:
    if not actor.may_lead(project.id):
        raise denied("Only the project's leads and the tenant's admins may do this.")


def _audit(actor: Actor, action: str, campaign: Campaign, now: datetime) -> None:
    audit_record(
        tenant_id=campaign.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("campaign", campaign.id),
        now=now,
        detail={"project": campaign.project.slug, "campaign": campaign.slug},
    )
