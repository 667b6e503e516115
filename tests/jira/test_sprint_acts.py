"""What features do for a sprint is answered in the log of Jira and commented in its project."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import ip_network

import pytest
from django.utils import timezone
from pytest_django import Settings

from allocation import points
from allocation.features.jira.calls import COMMENT
from allocation.points import Sprint, SprintAct
from tenants.models import WebhookDelivery
from tests.jira.connected import Connected, ms, processed
from tests.jira.stub import a_jira, sprint_of
from tests.roles import as_system


@pytest.fixture
def cloud(db: None, settings: Settings) -> Iterator[Connected]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira() as jira:
        yield Connected(jira)


@pytest.mark.turn
def test_what_features_do_for_a_sprint_is_answered_and_commented_in_its_project(
    cloud: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: list[Sprint] = []

    def act(sprint: Sprint, _: datetime) -> SprintAct:
        acted.append(sprint)
        # A rule can name an issue of another project, which gets nothing.
        return SprintAct("Something was rented.", "GPU-7" if sprint.is_started else "OTHER-1")

    monkeypatch.setattr(points, "SPRINT_ACTS", [act])
    # What the site's own GPUs can't serve does not keep a feature from acting.
    cloud.map(board=3, sprint_request="500 h100 {remaining}")
    ends = timezone.now() + timedelta(hours=5)
    cloud.send(sprint_of("sprint_started", 12, ms(30), ends.isoformat()))
    cloud.send(sprint_of("sprint_closed", 12, ms(20), ends.isoformat()))
    processed()
    started, closed = acted
    assert (started.is_started, closed.is_started) == (True, False)
    assert (started.reference, started.name) == (
        f"{cloud.jira.url}/secure/GHGoToBoard.jspa?sprintId=12",
        "Sprint 12",
    )
    assert started.actor.may_book(started.project.id)
    assert [(state, text.endswith("Something was rented.")) for state, text in cloud.answers()] == [
        ("done", True),
        ("done", True),
    ]
    with as_system():
        queued = WebhookDelivery.objects.filter(type=COMMENT).values_list("content__issue", flat=True)
        assert list(queued) == ["GPU-7"]
