"""The booking panel and the budgets of the days that a request is for."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from billing.rules import Period
from billing.services import budget_set
from tests.roles import as_owner, as_system
from tests.web.bookings.panel import OPTION, asked, panel_site

pytestmark = pytest.mark.turn


@pytest.mark.django_db
def test_the_effect_counts_only_what_the_days_of_the_budget_pay() -> None:
    today = timezone.now().date()
    last = today + timedelta(days=4)
    member = panel_site(period=Period(today, last + timedelta(days=1)))
    member.user.time_zone = "UTC"
    with as_owner():
        member.user.save()
    project = member.project
    assert project is not None
    with as_system():
        rest = Period(last + timedelta(days=1), last + timedelta(days=9))
        budget_set(actor_id=None, project=project, period=rest, amount=Decimal(100), now=timezone.now())
    page = asked(member, q=f"2 h100 24h at 06:00 on {last}")
    assert "€230.40" in page, "the whole price"
    assert "€827.20 left after this" in page, "18 of 24 hours are in the period"
    assert "€57.60 more is for days after" in page


@pytest.mark.django_db
def test_days_without_a_budget_have_the_sentence_of_the_refusal_and_no_button() -> None:
    today = timezone.now().date()
    member = panel_site(period=Period(today, today + timedelta(days=4)))
    page = asked(member, q=f"2 h100 2h at 09:00 on {today + timedelta(days=7)}")
    assert re.search(
        r"Protein folding has no budget from \d+ \w+ \d{4} 09:00 \w+ on\. An admin can set one", page
    )
    assert OPTION.search(page) is None
    assert "Wait for it" not in page
