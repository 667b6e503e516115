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
from agent.kubernetes.api import (
    EVERYWHERE,
    EVERYWHERE_PLAIN,
    IN_PROJECTS,
    IN_PROJECTS_PLAIN,
    OF_HOLDERS,
    Access,
    KubernetesApi,
    Rights,
)
from agent.kubernetes.bodies import RANK
from agent.kubernetes.cluster import site_read
from tests.agent.builders import a_whole
from tests.agent.desk import seen
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ENGINE_TOKEN, ApiServer
from tests.kubernetes.site import Site
from tests.kubernetes.store import JOBS
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
    server.has_kueue = False
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


def rules(name: str, *, kueue: bool = True) -> set[tuple[str, str, str]]:
    """Returns the rights of a role of the chart: verb, group and resource."""
    text = (CHART / "templates" / name).read_text().removeprefix("{{- if not .Values.kueue }}\n")
    branches = r"\{\{- if .Values.kueue \}\}\n(.*?)\{\{- else \}\}\n(.*?)\{\{- end \}\}\n"
    text = re.sub(branches, r"\1" if kueue else r"\2", text, flags=re.DOTALL)
    first = re.sub(r"\{\{.*?\}\}", "x", text).split("\n---")[0]
    document = yaml.safe_load("\n".join(line for line in first.splitlines() if line != "x"))
    return {
        (verb, group, resource)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def plain(rights: Rights) -> set[tuple[str, str, str]]:
    return {(verb, each.group, each.plural) for each, verbs in rights for verb in verbs}


def test_the_chart_grants_what_the_engine_needs_and_no_more() -> None:
    assert rules("clusterrole.yaml") == plain(EVERYWHERE)
    assert rules("projectrole.yaml") == plain(IN_PROJECTS)
    assert rules("clusterrole.yaml", kueue=False) == plain(EVERYWHERE_PLAIN)
    assert rules("projectrole.yaml", kueue=False) == plain(IN_PROJECTS_PLAIN)
    assert rules("holders.yaml") == plain(OF_HOLDERS)


def test_the_classes_of_the_chart_are_those_that_the_engine_names() -> None:
    text = re.sub(r"\{\{.*?\}\}", "", (CHART / "templates" / "policy.yaml").read_text())
    holder, policy, binding = yaml.safe_load_all(text)
    assert (holder["metadata"]["name"], holder["value"]) == (names.HOLDER, RANK - 1)
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == names.POLICY
    (rule,) = policy["spec"]["validations"]
    assert f"params.metadata.annotations['{names.HOST}']" in rule["expression"]
    assert f"params.metadata.annotations['{names.NAMESPACE}']" in rule["expression"]
    (selects,) = binding["spec"]["paramRef"]["selector"]["matchExpressions"]
    assert selects == {"key": names.BOOKING, "operator": "Exists"}
    assert names.BOOKING in holder["metadata"]["labels"]


def test_doctor_says_what_a_cluster_without_kueue_lacks(
    server: ApiServer, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.has_kueue = False
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
    assert not site_read(api_of).has_kueue
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
    if shutil.which("kubectl") is None:
        pytest.fail("kubectl is not installed: run `make kubectl` as root", pytrace=False)
    node, booked = OneNode(server, "n1"), (0, a_whole("a", booking="BK-1"))
    node.allowed(booked)

    def kubectl(*words: str) -> str:
        command = ("kubectl", "--server", server.url, "--namespace", TEAM, *words)
        done = subprocess.run(
            command,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert kubectl("get", "localqueues", "-o", "name") == "localqueue.kueue.x-k8s.io/bk-1\n"
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(documented_job()))
    kubectl("create", "--validate=false", "-f", str(job))
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


def documented_job() -> dict[str, Any]:
    """Returns the Job that docs/kubernetes.md shows."""
    text = Path("docs/kubernetes.md").read_text()
    (found,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    document: dict[str, Any] = yaml.safe_load(found)
    return document
