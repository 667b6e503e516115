"""The times of an agent's steps, which its report carries until it was delivered."""

from typing import Any

import pytest

import wire
from tests.agent.builders import NOW, Rig, a_document, a_slice


def steps(report: wire.Report) -> dict[str, list[tuple[str, int, int]]]:
    return {
        each.id: [(step.name, step.began, step.took) for step in each.steps] for each in report.allocations
    }


def test_a_report_has_the_steps_until_one_with_them_was_delivered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = rig.node.port.create

    def slowly(*args: Any) -> None:  # noqa: ANN401 (passed on)
        create(*args)
        rig.wall.now += 2
        rig.steady.now += 2

    monkeypatch.setattr(rig.node.port, "create", slowly)
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    made = [("slice", NOW * 1000, 2000), ("hand_over", (NOW + 2) * 1000, 0)]
    first = rig.sent.report()
    assert steps(first) == {"a1": [("mode", NOW * 1000, 0), *made]}
    # The link has lost it: the next one has them again.
    rig.later(60)
    assert rig.sent.report().seq > first.seq
    assert steps(rig.sent.report()) == steps(first)
    rig.delivered()
    sent = len(rig.sent.messages("report"))
    rig.later(5)
    # They are no news about the node: nothing is sent because they are gone.
    assert len(rig.sent.messages("report")) == sent
    rig.later(60)
    assert steps(rig.sent.report()) == {"a1": []}


def test_a_step_lasts_from_its_first_try(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    give, tries = rig.node.handover.give, []

    def at_the_second_try(*args: Any) -> None:  # noqa: ANN401 (passed on)
        tries.append(args)
        if len(tries) == 1:
            raise OSError("no space left")
        give(*args)

    monkeypatch.setattr(rig.node.handover, "give", at_the_second_try)
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    assert rig.sent.states() == {"a1": "preparing"}
    assert steps(rig.sent.report()) == {"a1": []}
    rig.later(5)
    assert steps(rig.sent.report())["a1"][-1] == ("hand_over", NOW * 1000, 5000)
