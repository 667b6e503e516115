"""One node over REST: what it does about use without a booking."""

import pytest

from allocation.models import Gpu, Node, NodeExamination
from allocation.words.fleet import fleet_text
from tests.api.builders import Api, Site, said
from tests.builders_allocation import NOW
from tests.roles import as_system

NODE = "fleet/nodes/gpu-a1-01"


@pytest.fixture
def operator(site: Site) -> Api:
    with as_system():
        Node.objects.update(agent_version="0.4.0")
    return site.operator


def put(caller: Api, **body: object) -> tuple[int, dict[str, object]]:
    answer = caller.send("PUT", NODE, body)
    return answer.status_code, said(answer)


def test_an_operator_sets_a_ladder_for_one_node_and_gives_it_back_to_the_policy(
    operator: Api,
) -> None:
    status, node = put(operator, unbooked_rules_from="node", unbooked_warn_after=120)
    own = {"unbooked_rules_from": "node", "unbooked_warn_after": 120, "unbooked_end_after": None}
    assert (status, own.items() <= node.items()) == (200, True)
    assert said(operator.get(NODE)) == node
    status, node = put(operator, unbooked_rules_from="policy")
    assert (status, node["unbooked_rules_from"], node["unbooked_warn_after"]) == (
        200,
        "policy",
        None,
    )
    history = said(operator.get(f"{NODE}/events"))["items"]
    assert [each["sentence"] for each in reversed(history)] == [
        "otto set: Processes without a booking are reported, warned after 2 min.",
        "otto set: follows the policy. Processes without a booking are reported.",
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"unbooked_rules_from": "node", "unbooked_end_after": 600},
        {"unbooked_rules_from": "node", "unbooked_warn_after": -1},
        {"unbooked_rules_from": "node", "unbooked_warn_after": 604_801},
        {"unbooked_rules_from": "policy", "unbooked_warn_after": 600},
        {"unbooked_rules_from": "nobody"},
        {"unbooked_warn_after": 600},
        {"unbooked_rules_from": "node", "state": "ready"},
    ],
)
def test_what_makes_no_ladder_is_refused(operator: Api, body: dict[str, object]) -> None:
    assert put(operator, **body)[0] in (400, 422)
    with as_system():
        assert not Node.objects.get().unbooked_override


def test_the_refusal_names_the_field_as_it_was_sent(operator: Api) -> None:
    status, problem = put(operator, unbooked_rules_from="node", unbooked_end_after=600)
    assert (status, problem["code"]) == (422, "ends_without_warning")
    assert problem["param"] == "unbooked_end_after"


@pytest.mark.parametrize("who", ["researcher", "admin", "outsider"])
def test_nobody_else_reads_or_sets_it(site: Site, operator: Api, who: str) -> None:
    caller: Api = getattr(site, who)
    assert caller.get(NODE).status_code == 403
    assert put(caller, unbooked_rules_from="policy")[0] == 403


class TestPinnedModes:
    """`PUT /fleet/gpus/{id}` for operators, seen by everybody."""

    @pytest.fixture
    def gpu(self, site: Site) -> Gpu:
        with as_system():
            return Gpu.objects.get(index=0)

    def test_an_operator_pins_a_mode_and_everybody_sees_it(self, site: Site, gpu: Gpu) -> None:
        body = {"mode_pinned": "whole", "note": "for the course"}
        answer = site.operator.send("PUT", f"fleet/gpus/{gpu.id}", body)
        assert (answer.status_code, said(answer)["mode_pinned"]) == (200, "whole")
        assert said(site.viewer.get(f"fleet/gpus/{gpu.id}"))["mode_pinned"] == "whole"
        history = said(site.operator.get(f"{NODE}/events"))["items"]
        assert history[0]["sentence"] == "otto pinned it to whole GPU: for the course."
        again = site.operator.send("PUT", f"fleet/gpus/{gpu.id}", {"mode_pinned": ""})
        assert said(again)["mode_pinned"] == ""

    def test_nobody_else_may_pin_and_the_mode_must_be_one(self, site: Site, gpu: Gpu) -> None:
        where = f"fleet/gpus/{gpu.id}"
        assert site.admin.send("PUT", where, {"mode_pinned": "whole"}).status_code == 403
        for body in ({"mode_pinned": "shared"}, {"mode_pinned": None}, {}, {"mode": "whole"}):
            assert site.operator.send("PUT", where, body).status_code in (400, 422)
        with as_system():
            assert Gpu.objects.get(id=gpu.id).mode_pinned == ""


def test_an_operator_reads_what_works_on_a_node_and_nobody_else(operator: Api, site: Site) -> None:
    assert said(operator.get(NODE))["examination"] is None
    row = {"name": "driver", "state": "fail", "seen": "none", "do": "load it"}
    with as_system():
        NodeExamination.objects.create(node=Node.objects.get(), checks=[row], seq=1, at=NOW)
    assert said(operator.get(NODE))["examination"]["checks"] == [{**row, "essential": True}]
    assert site.admin.get(NODE).status_code == 403
    assert "examination" not in said(site.admin.get("fleet/nodes"))["items"][0]


def test_engines_say_who_gives_the_gpus_of_which_nodes(operator: Api, site: Site) -> None:
    (own,) = said(site.researcher.get("engines"))["items"]
    assert (own["name"], own["granularity"], own["nodes"]) == ("device", "device", ["gpu-a1-01"])
    with as_system():
        Node.objects.update(engine="slurm", driver="Slurm 22.05.8")
        gpu = Gpu.objects.order_by("number").first()
        assert gpu is not None
        gpu.health_set(Gpu.Health.DRAINING, fleet_text("withheld", why="a test"))
        gpu.save()
    (engine,) = said(site.viewer.get("engines"))["items"]
    assert (engine["name"], engine["granularity"]) == ("slurm", "node")
    assert (engine["versions"], engine["gpus"], engine["withheld"]) == (["Slurm 22.05.8"], own["gpus"], 1)
    assert said(operator.get(NODE))["engine"] == "slurm"
    with as_system():
        Node.objects.update(engine_pool="portal")
    (pool,) = said(site.viewer.get("engines"))["items"]
    assert (pool["name"], pool["granularity"], pool["gpus"]) == ("slurm", "pool", own["gpus"])


def test_a_node_says_why_it_takes_no_work(operator: Api) -> None:
    before = said(operator.get(NODE))
    assert (before["takes_work"], before["no_new_work_reason"]) == (True, "")
    assert before["unreachable_since"] is None
    with as_system():
        Node.objects.filter(name="gpu-a1-01").update(unreachable_since=NOW)
    after = said(operator.get(NODE))
    assert (after["state"], after["takes_work"]) == ("ready", False)
    assert "It is unreachable." in after["no_new_work_reason"]
    assert after["unreachable_since"] is not None
