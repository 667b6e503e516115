"""Kinds of work: read by everybody, stated by operators."""

from tests.api.builders import Site, said


def test_an_operator_states_speeds_that_everybody_reads_and_asks_by(site: Site) -> None:
    body = {"speeds": {"h100": 1000}}
    assert site.researcher.put("workloads/training", body).status_code == 403
    answer = said(site.operator.put("workloads/training", body))
    assert answer == {"workload": "training", "speeds": {"h100": 1000}}
    assert said(site.researcher.get("workloads"))["items"] == [{**answer, "projects": []}]
    line = {"project": "folding", "tier": "standard", "request": "1 h100 1h kind:training"}
    booking = said(site.researcher.post("bookings", line))
    assert booking["ask"]["workload"] == "training"
    unknown = site.researcher.post("bookings", line | {"request": "1 h100 1h kind:cooking"})
    assert (unknown.status_code, said(unknown)["code"]) == (422, "unknown_workload")


def test_speeds_that_make_no_sense_are_refused(site: Site) -> None:
    for speeds, status in (({"h100": 0}, 422), ({"b300": 5}, 422), ({"h100": "1"}, 400)):
        answer = site.operator.put("workloads/training", {"speeds": speeds})
        assert answer.status_code == status, answer.content
    assert site.operator.put("workloads/A%20B", {"speeds": {}}).status_code == 404
