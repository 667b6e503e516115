"""What a site needs: the checks of doctor, the chart, the schemas, kubectl."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import __main__ as agent
from agent.kubernetes import api, names
from agent.kubernetes.api import OF_SCHEDULER, RIGHTS, Access, KubernetesApi, Rights, Way
from agent.kubernetes.bodies import RANK
from agent.kubernetes.cluster import site_read
from tests.agent.builders import a_whole
from tests.agent.desk import seen
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ENGINE_TOKEN, ApiServer
from tests.kubernetes.site import Site
from tests.kubernetes.store import JOBS
from tests.kubernetes.test_gangs import a_gang_node
from tests.kubernetes.test_queues import OneNode
from tests.kubernetes.validation import problem_of
from wire.kubectl import COMMAND, pods_read

CHART = Path("deploy/helm/gpu-agent-kubernetes")


def examined(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, Any]:
    token = folder / "token"
    token.write_text(ENGINE_TOKEN)
    words = ["doctor", "--engine", "kubernetes", "--json", "--state", str(folder)]
    access = ["--kubernetes-api", server.url, "--kubernetes-token", str(token)]
    agent.main([*words, *access, *more], {})
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_says_what_the_cluster_lacks(
    server: ApiServer, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(server, tmp_path, capsys)
    own = ("Kubernetes", "rights in Kubernetes", "Kueue", "nodes of Kubernetes", "GPUs of Kubernetes")
    all_of = (*own, "products of GPUs", "namespaces of projects")
    assert {name: found[name]["state"] for name in all_of} == dict.fromkeys(all_of, "ok")
    assert found["GPUs of Kubernetes"]["seen"] == (
        "n1: 4 nvidia.com/gpu + 7 nvidia.com/mig-1g.10gb; n2: 4 nvidia.com/gpu"
    )

    server.denied = {("create", "kueue.x-k8s.io", "localqueues"), ("watch", "", "pods")}
    server.lacks.add(api.KUEUE)
    site.namespace("twice", tenant="biology")
    site.node("bare", label=False)
    found = examined(server, tmp_path, capsys, "--nodes", "n1,bare,n9", "--kubernetes-bookings", "queue")
    assert {name: found[name]["state"] for name in all_of if found[name]["state"] != "ok"} == {
        "rights in Kubernetes": "fail",
        "Kueue": "fail",
        "nodes of Kubernetes": "fail",
        "GPUs of Kubernetes": "fail",
        "namespaces of projects": "fail",
    }
    rights = "not granted: watch pods, create localqueues in biology-llm, create localqueues in twice"
    assert found["rights in Kubernetes"]["seen"] == rights
    assert found["namespaces of projects"]["seen"] == "several namespaces are labelled for biology"

    server.away()
    found = examined(server, tmp_path, capsys)
    assert found["Kubernetes"]["state"] == "fail"


def rendered(name: str, way: Way, **values: bool) -> list[dict[str, Any]]:
    """Returns the objects of a template whose conditions name values, as the chart has them for a way."""
    said = {"kueue": way == "queue", "volcano": way == "volcano", "volcanoNamespace": True, **values}
    kept, taken = [], [True]
    for line in (CHART / "templates" / name).read_text().splitlines():
        if line.startswith("{{- if "):
            condition = re.sub(r"\.Values\.(\w+)", lambda found: str(said[found[1]]), line[7:-2].strip())
            words = condition.replace("(", " ").replace(")", " ").split()
            flags = [word == "True" for word in words if word in ("True", "False")]
            met = any(flags) if "or" in words else all(flags)
            taken.append(met != ("not" in words))
        elif line.startswith("{{- range "):
            break
        elif line == "{{- end }}":
            taken.pop()
        elif all(taken):
            kept.append(re.sub(r"\{\{.*?\}\}", "x", line))
    return [each for each in yaml.safe_load_all("\n".join(kept)) if each is not None]


def rules(name: str, way: Way) -> set[tuple[str, str, str]]:
    """Returns the rights of a role of the chart: verb, group and resource."""
    return {
        (verb, group, resource)
        for each in rendered(name, way)
        for rule in each.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def plain(rights: Rights) -> set[tuple[str, str, str]]:
    return {(verb, each.group, each.plural) for each, verbs in rights for verb in verbs}


def test_the_chart_grants_what_the_engine_needs_and_no_more() -> None:
    for way, rights in RIGHTS.items():
        assert rules("clusterrole.yaml", way) == plain(rights.everywhere)
        assert rules("projectrole.yaml", way) == plain(rights.in_projects)
        assert rules("ownrole.yaml", way) == plain(rights.own)
        of_scheduler = OF_SCHEDULER if way == "volcano" else ()
        assert rules("volcanorole.yaml", way) == plain(of_scheduler)
    assert rendered("volcanorole.yaml", "volcano", volcanoNamespace=False) == []


def test_the_classes_and_policies_of_the_chart_are_those_that_the_engine_names() -> None:
    (holder,) = rendered("holderclass.yaml", "quota")
    assert (holder["metadata"]["name"], holder["value"]) == (names.HOLDER, RANK - 1)
    assert names.BOOKING in holder["metadata"]["labels"]
    ways: tuple[tuple[Way, int, int], ...] = (("queue", 0, 0), ("volcano", 2, 2), ("quota", 2, 0))
    for way, classes, groups in ways:
        assert len(rendered("policy.yaml", way)) == classes
        assert len(rendered("grouppolicy.yaml", way)) == groups
        assert bool(rendered("holderclass.yaml", way)) is (way == "quota")
    for template, name, notes in (
        ("policy.yaml", names.POLICY, (names.HOST, names.NAMESPACE)),
        ("grouppolicy.yaml", names.GROUP_POLICY, (names.NAMESPACE,)),
    ):
        policy, binding = rendered(template, "volcano")
        assert policy["metadata"]["name"] == binding["metadata"]["name"] == name
        (rule,) = policy["spec"]["validations"]
        assert all(f"params.metadata.annotations['{note}']" in rule["expression"] for note in notes)
        (selects,) = binding["spec"]["paramRef"]["selector"]["matchExpressions"]
        assert selects == {"key": names.BOOKING, "operator": "Exists"}
    # What is in a queue may be changed when its booking is over.
    assert "oldObject.spec.queue != object.spec.queue" in policy["spec"]["matchConditions"][1]["expression"]
    kind = policy["spec"]["paramKind"]
    assert kind == {"apiVersion": api.GANG_QUEUES.version, "kind": api.GANG_QUEUES.kind}


def test_doctor_says_what_a_cluster_without_kueue_lacks(
    server: ApiServer, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.way = "quota"
    server.lacks.add(api.KUEUE)
    missing = "the PriorityClass gpu-portal-holder, the ValidatingAdmissionPolicyBinding gpu-portal-bookings"
    found = examined(server, tmp_path, capsys)
    assert (found["Kueue"]["state"], found["Kueue"]["seen"]) == (
        "fail",
        f"bookings can't be quotas without {missing}",
    )
    api_of = KubernetesApi(Access(server.url))
    with pytest.raises(OSError, match="without Kueue the cluster needs the PriorityClass gpu-portal-holder"):
        site_read(api_of)
    site.plain()
    assert site_read(api_of).way == "quota"
    server.denied = {("create", "", "pods")}
    found = examined(server, tmp_path, capsys)
    assert (found["Kueue"]["state"], found["Kueue"]["seen"]) == (
        "ok",
        "bookings are quotas, and pods hold their devices",
    )
    assert found["rights in Kubernetes"]["seen"] == "not granted: create pods in gpu-agents"
    # Who asks for queues is not served by quotas.
    found = examined(server, tmp_path, capsys, "--kubernetes-bookings", "queue")
    assert found["Kueue"]["state"] == "fail"
    with pytest.raises(OSError, match="the cluster has no Kueue"):
        site_read(api_of, "queue")


SETTINGS = """actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
- plugins:
  - name: predicates
  - name: proportion
"""


def test_doctor_says_which_scheduler_it_found(
    server: ApiServer, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(server, tmp_path, capsys)
    assert found["Volcano"]["seen"] == "scheduling.volcano.sh/v1beta1 is not served"
    # Volcano alone does not change what bookings are: the site does, by the chart.
    server.lacks, server.way = {api.KUEUE}, "quota"
    site.plain()
    found = examined(server, tmp_path, capsys)
    seen_of = {name: (found[name]["state"], found[name]["seen"]) for name in ("Kueue", "Volcano")}
    assert seen_of == {
        "Kueue": ("ok", "bookings are quotas, and pods hold their devices"),
        "Volcano": ("ok", "scheduling.volcano.sh/v1beta1 is served, and not used"),
    }
    assert site_read(KubernetesApi(Access(server.url))).way == "quota"
    server.store.remove(api.POLICIES, names.POLICY)
    site.volcano()
    assert site_read(KubernetesApi(Access(server.url))).way == "volcano"
    # Kueue comes first, unless the site asks for Volcano.
    server.lacks = set()
    assert site_read(KubernetesApi(Access(server.url))).way == "queue"
    assert site_read(KubernetesApi(Access(server.url)), "volcano").way == "volcano"
    server.lacks = {api.VOLCANO}
    with pytest.raises(OSError, match="the cluster has no Volcano"):
        site_read(KubernetesApi(Access(server.url)), "volcano")


class VolcanoDoctor:
    """What doctor says of Volcano."""

    def __init__(self, server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._asked = (server, folder, capsys, "--kubernetes-bookings", "volcano")
        self._store = server.store

    def says(self, name: str) -> tuple[str, str]:
        found = examined(*self._asked)[name]
        return found["state"], found["seen"]

    def with_settings(self, text: str) -> tuple[str, str]:
        """What it says of the plugins where these are the settings of the scheduler."""
        where = ("volcano-scheduler-configmap", "volcano-system")
        self._store.remove(api.CONFIG_MAPS, *where)
        body = {"metadata": {"name": where[0]}, "data": {"volcano-scheduler.conf": text}}
        self._store.create(api.CONFIG_MAPS, body, where[1])
        return self.says("plugins of Volcano")


def test_doctor_says_what_volcano_lacks(
    server: ApiServer, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lacks, server.way = {api.KUEUE}, "volcano"
    doctor = VolcanoDoctor(server, tmp_path, capsys)
    missing = [f"the ValidatingAdmissionPolicyBinding {name}" for name in (names.POLICY, names.GROUP_POLICY)]
    said = f"bookings can't have queues of Volcano without {', '.join(missing)}"
    assert doctor.says("Volcano") == ("fail", said)
    with pytest.raises(OSError, match=" and ".join(missing)):
        site_read(KubernetesApi(Access(server.url)), "volcano")
    site.volcano()
    server.denied = {("create", "bus.volcano.sh", "commands"), ("get", "", "configmaps")}
    assert doctor.says("rights in Kubernetes")[1] == "not granted: create commands in gpu-agents"
    assert doctor.says("Volcano") == ("warn", "pods of others may come to n1, n2")
    assert doctor.says("plugins of Volcano")[0] == "unknown"
    server.denied = set()
    taint = {"key": names.NODE, "value": "", "effect": "NoSchedule"}
    for name in ("n1", "n2"):
        server.store.patch(api.NODES, name, {"spec": {"taints": [taint]}})
    assert doctor.says("Volcano")[0] == "ok"
    site.namespace("volcano-system")
    assert doctor.with_settings(SETTINGS) == ("ok", "gang, predicates, priority, proportion")
    assert doctor.with_settings(SETTINGS.replace("proportion", "drf").replace("gang", "sla")) == (
        "warn",
        "volcano-system/volcano-scheduler-configmap has no plugin gang, capacity or proportion",
    )
    server.store.patch(api.NODES, "n2", {"metadata": {"labels": {names.NODE_GROUP: "b"}}})
    assert doctor.with_settings(SETTINGS.replace("predicates", "nodegroup")) == (
        "warn",
        "it has the plugin nodegroup, and these nodes are in no group: n1",
    )


def test_the_schemas_refuse_what_an_api_server_refuses() -> None:
    meta = {"name": "x"}
    good = {"metadata": meta, "spec": {"stopPolicy": "Hold"}}
    assert problem_of("ClusterQueue", good) is None
    for bad in (
        {"metadata": meta, "spec": {"stopPolicy": "Stop"}},
        {"metadata": meta, "spec": {"unknown": 1}},
        {"metadata": {"name": "X_y"}, "spec": {}},
        {"metadata": {**meta, "labels": {"a": "x" * 64}}, "spec": {}},
    ):
        assert problem_of("ClusterQueue", bad) is not None


@pytest.mark.engines
def test_people_work_with_kubectl(
    server: ApiServer, site: Site, controllers: Controllers, tmp_path: Path
) -> None:
    kubectl = Kubectl(server, tmp_path)
    node, booked = OneNode(server, "n1"), (0, a_whole("a", booking="BK-1"))
    node.allowed(booked)
    assert kubectl("get", "localqueues", "-o", "name") == "localqueue.kueue.x-k8s.io/bk-1\n"
    kubectl("create", "--validate=false", "-f", kubectl.file(documented_job("kueue")))
    seen(lambda: site.running(TEAM) == ["n1"])
    assert kubectl("get", "workloads", "-o", "jsonpath={.items[0].status.admission.clusterQueue}") == (
        "biology.bk-1"
    )
    # What is observed of the cluster: a pod of others, and not the booking's.
    site.namespace("vision")
    site.pod("other", "vision", "n2", count=2)
    (other,) = pods_read(kubectl(*COMMAND[1:]))
    assert (other.account, other.nodes, other.gpus, other.ended) == ("vision", "n2", 2, None)
    # An administrator cordons the node, and deletes the queue.
    kubectl("cordon", "n1")
    seen(lambda: node.gpus.truth(node.gpus.gpus[1]).withheld == "n1 is cordoned in Kubernetes")
    kubectl("delete", "localqueue", "bk-1", "--wait=false")
    seen(lambda: node.follow(booked) == [] and server.store.find(api.LOCAL_QUEUES, "bk-1", TEAM) is not None)
    kubectl("delete", "job", "train", "--wait=false", "--cascade=background")
    seen(lambda: server.store.all(JOBS) == [])
    node.cluster.stop()


@pytest.mark.engines
def test_people_work_with_kubectl_in_a_queue_of_volcano(
    server: ApiServer, site: Site, controllers: Controllers, tmp_path: Path
) -> None:
    server.way, controllers.is_kueue_up, controllers.is_volcano_up = "volcano", False, True
    server.lacks = {api.KUEUE}
    site.volcano()
    node = a_gang_node(server, "n1")
    booked = [(slot, a_whole(f"a{slot}", booking="BK-1")) for slot in (0, 1)]
    node.allowed(*booked)
    kubectl = Kubectl(server, tmp_path)
    assert kubectl("get", "queues", "-o", "jsonpath={.items[*].status.state}") == "Open"
    kubectl("create", "--validate=false", "-f", kubectl.file(documented_job("volcano")))
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    assert kubectl("get", "podgroups", "-o", "jsonpath={.items[*].spec.queue}") == "gpu-portal.biology.bk-1"
    # An administrator can't delete it under its pods, and deletes the job.
    with pytest.raises(AssertionError, match="has allocated Pods"):
        kubectl("delete", "queue", "gpu-portal.biology.bk-1", "--wait=false")
    kubectl("delete", "jobs.v1.batch", "train", "--wait=false", "--cascade=background")
    kubectl("delete", "pods", "--all", "--wait=false")
    seen(lambda: site.running(TEAM) == [] and server.store.all(api.GROUPS) == [])
    kubectl("delete", "queue", "gpu-portal.biology.bk-1", "--wait=false")
    seen(lambda: node.follow(*booked) == [] and len(server.store.all(api.GANG_QUEUES)) == 1)
    node.cluster.stop()


class Kubectl:
    """`kubectl` in the namespace of the team."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        if shutil.which("kubectl") is None:
            pytest.fail("kubectl is not installed: run `make kubectl` as root", pytrace=False)
        self._server = server
        self._folder = folder

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ("kubectl", "--server", self._server.url, "--namespace", TEAM, *words),
            env={"HOME": str(self._folder), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file(self, data: dict[str, Any]) -> str:
        """Returns the path of a file with an object."""
        path = self._folder / "object.yaml"
        path.write_text(yaml.safe_dump(data))
        return str(path)


def documented_job(scheduler: str) -> dict[str, Any]:
    """Returns the Job that docs/kubernetes.md shows for a scheduler, as for the team's bookings on n1."""
    text = Path("docs/kubernetes.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (found,) = (each for each in blocks if scheduler in each)
    document: dict[str, Any] = yaml.safe_load(found.replace("helix", "biology").replace("gpu01", "n1"))
    return document
