"""Writes campaigns: named pieces of a project's work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from billing.models import Campaign
from billing.words import refusal_text
from tenants.access import Actor
from tenants.audit import audit_record
from tenants.models import Project
from tenants.platform.errors import Refused, denied, invalid, text_within
from tenants.platform.labels import labels_check, reference_check
from tenants.platform.reference import by_version

NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class CampaignMatch:
    """The labels and the ticket of bookings that belong to a campaign; nothing matches none."""

    labels: Mapping[str, str] = field(default_factory=dict)
    external_ref: str = ""


NO_MATCH = CampaignMatch()


def campaign_create(
    *, actor: Actor, project: Project, name: str, now: datetime, match: CampaignMatch = NO_MATCH
) -> Campaign:
    """Creates a campaign; its slug is made from its name.

    Raises:
        Refused: `not_allowed`, `too_long`, `bad_name`, `bad_label`, `bad_reference` or `campaign_exists`.
    """
    _require_lead(actor, project)
    name = text_within(name, 80, "name")
    slug = slugify(name)[:40].strip("-")
    if not slug:
        raise invalid("bad_name", refusal_text("campaign_name"), "name")
    campaign = Campaign(tenant_id=project.tenant_id, project=project, slug=slug, name=name)
    campaign.match_labels = labels_check(match.labels, "match_labels")
    campaign.match_ref = reference_check(match.external_ref, "match_ref")
    try:
        with transaction.atomic():
            campaign.save(force_insert=True)
    except IntegrityError as error:
        raise Refused(
            "campaign_exists",
            refusal_text("campaign_exists", project=project.name, slug=slug),
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


def campaign_match_set(*, actor: Actor, campaign: Campaign, match: CampaignMatch, now: datetime) -> None:
    """Sets which new bookings belong to the campaign without naming it.

    Raises:
        Refused: `not_allowed`, `bad_label` or `bad_reference`.
    """
    _require_lead(actor, campaign.project)
    campaign.match_labels = labels_check(match.labels, "match_labels")
    campaign.match_ref = reference_check(match.external_ref, "match_ref")
    campaign.save(update_fields=["match_labels", "match_ref"])
    _audit(actor, "campaign.match", campaign, now)


def campaign_to_charge(
    project: Project, slug: str, labels: Mapping[str, str] = NO_LABELS, external_ref: str = ""
) -> Campaign | None:
    """The open campaign of a new booking. Without a slug it is the first by name that has its
    ticket or labels, or None.

    Raises:
        Refused: `not_found` or `campaign_closed`.
    """
    if not slug:
        return _matching(project.id, labels, external_ref)
    found = _campaign_read(project.id, slug)
    if found is None:
        raise invalid("not_found", refusal_text("no_campaign", project=project.name, slug=slug), "campaign")
    if not found.is_open:
        raise Refused(
            "campaign_closed",
            refusal_text("campaign_closed", found=found.name),
            param="campaign",
            owner="lead",
        )
    return found


def _matching(project_id: UUID, labels: Mapping[str, str], external_ref: str) -> Campaign | None:
    if not labels and not external_ref:
        return None
    return next(
        (
            each
            for each in _campaigns_that_match(project_id)
            if each.match_ref in ("", external_ref) and each.match_labels.items() <= labels.items()
        ),
        None,
    )


@by_version
def _campaigns_that_match(project_id: UUID) -> tuple[Campaign, ...]:
    rows = Campaign.objects.filter(project=project_id, is_open=True)
    return tuple(rows.exclude(match_labels={}, match_ref=""))


@by_version
def _campaign_read(project_id: UUID, slug: str) -> Campaign | None:
    return Campaign.objects.filter(project=project_id, slug=slug).first()


def _require_lead(actor: Actor, project: Project) -> None:
    if not actor.may_lead(project.id):
        raise denied(refusal_text("leads_and_admins_only"))


def _audit(actor: Actor, action: str, campaign: Campaign, now: datetime) -> None:
    audit_record(
        tenant_id=campaign.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("campaign", campaign.id),
        now=now,
        detail={"project": campaign.project.slug, "campaign": campaign.slug},
    )
