"""Cores of hosts and GPUs are not offered in place of each other."""

from dataclasses import replace

from solver import Host, QuoteRequest, quote
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_snapshot, an_ask, gpus

L40S = gpus(2, "l40s", "l40s", node="n2", domains=None)
CORES = (*gpus(4, "cpu", "host-core", node="c1", domains=None),)
MORE = gpus(4, "cpu", "host-core", node="c2", domains=None)
OTHERS = gpus(4, "epyc", "host-core", node="c3", domains=None)
HOSTS = tuple(Host(node, 4_000, 16_384) for node in ("c1", "c2", "c3"))


def test_cores_and_gpus_are_not_offered_in_place_of_each_other() -> None:
    """Two of each four cores are free now, on two nodes, and four of another class."""
    busy = (*CORES[:2], *MORE[:2], *gpus(1))
    site = a_snapshot(
        fleet=(*gpus(1), *L40S, *CORES, *MORE, *OTHERS),
        held=tuple(a_held(gpu.id, ends=2 * HOUR) for gpu in busy),
        hosts=HOSTS,
    )
    four = replace(an_ask(4, "cpu", together="node", required=True), memory=4_096)
    question = QuoteRequest(four, HOUR, NOON, None, fixed=False, tenant="lab", project="folding")
    found = quote(site, POLICY, question).options
    assert {each.gpu_class for each in found} == {"cpu", "epyc"}
    assert "split" not in {each.kind for each in found}, "a booking has cores of one node"
    gpu = quote(site, POLICY, replace(question, ask=an_ask())).options
    assert {each.gpu_class for each in gpu} == {"h100", "l40s"}
