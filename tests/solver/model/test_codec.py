"""Canonical documents: what is not exactly one is refused."""

import json

import pytest

from solver import Policy, Snapshot, decode, encode
from tests.solver.builders import POLICY, a_planned_start, a_request, a_snapshot, whole

SITE = a_snapshot(a_request(planned=a_planned_start(60, 1, whole("n1-0"))))


def test_the_bytes_are_plain_sorted_json_without_spaces() -> None:
    assert encode(POLICY) == (
        b'{"age_step":21600,"alternatives":3,"cool_down":1800,"epoch":3600,"exact_neighbou'
        b'rhoods":2,"exact_pieces":24,"freeze_horizon":60,"future_requests":50,"grid":300,'
        b'"half_life":604800,"horizon":2419200,"host_core_cost":1400,"host_cores_off":2000'
        b'0,"long_run_weight":5,"mode_changes":1,"mode_patience":300,"moved_bookings":16,"'
        b'neighbourhoods":32,"node_sets":3,"notice_margin":30,"order":["tier","part","tena'
        b'nt","project","person","age"],"patience":259200,"share_owners":1,"share_step":50'
        b'00,"version":1,"victim_rules":["taken_back","own_part","higher_tier","fairer_sha'
        b're"]}'
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"now": "1"}, "Snapshot.now"),
        ({"now": True}, "Snapshot.now"),
        ({"now": 1.0}, "Snapshot.now"),
        ({"gpus": {}}, "Snapshot.gpus"),
        ({"more": 1}, "fields of Snapshot"),
        ({"models": [{"slug": "x"}]}, r"Snapshot.models\[\]"),
    ],
)
def test_a_document_of_another_shape_is_refused_with_the_place(change: dict[str, object], words: str) -> None:
    data = json.dumps(json.loads(encode(SITE)) | change).encode()
    with pytest.raises(ValueError, match=words):
        decode(Snapshot, data)


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        decode(Policy, b"{")


def test_a_word_outside_its_choices_is_refused() -> None:
    data = encode(SITE).replace(b'"together":"any"', b'"together":"planet"')
    with pytest.raises(ValueError, match="planet"):
        decode(Snapshot, data)
