"""The chart of the portal: the launcher's programs, no secret, and objects that a cluster takes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from devtools.launch.programs import PROGRAMS
from tests.servers.servers import ROOT

HELM = ROOT / "deploy" / "helm"
CHART = HELM / "gpu-portal"
ENGINES = ROOT / ".venv-engines" / "bin" / "python"
GIVEN = {
    "image": "registry.example.org/gpu-portal:1",
    "publicUrl": "https://gpus.example.org",
    "agentsRedisPublicUrl": "rediss://one.example.org:6380,two.example.org:6380",
}
SECRET = {"SECRET_KEY", "AGENTS_MASTER_KEY", "DATABASE_URL", "REDIS_URL", "AGENTS_REDIS_URL"}


def read(name: str) -> Any:  # noqa: ANN401 (YAML)
    return yaml.safe_load((CHART / name).read_text(encoding="utf-8"))


def test_the_chart_starts_what_the_launcher_starts() -> None:
    found = {each["name"]: each for each in read("files/programs.yaml")}
    assert found.keys() == {program.name for program in PROGRAMS}
    for program in PROGRAMS:
        one = found[program.name]
        assert tuple(one["args"]) == program.arguments
        assert one.get("env", {}) == program.settings
        assert f"portal_{one['secret']}" == program.role
        assert ("port" in one) is program.listens


def test_there_are_two_of_each_and_no_value_is_a_secret() -> None:
    values = read("values.yaml")
    assert values["replicas"] == dict.fromkeys((program.name for program in PROGRAMS), 2)
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate({**values, **GIVEN}, schema)
    for bad in (
        {"settings": {"SECRET_KEY": "x"}},
        {"replicas": {"redis": 1}},
        {"agentsRedisPublicUrl": "redis://user:password@one"},
        {"password": "x"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, **bad}, schema)


def rendered(chart: Path, values: dict[str, Any], refused: str = "") -> list[dict[str, Any]]:
    """The objects that Helm's engine makes; `refused` is what it says where it makes none."""
    done = subprocess.run(
        [str(ENGINES), str(Path(__file__).with_name("chart.py")), str(chart)],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if refused:
        assert done.returncode != 0
        assert refused in done.stderr
        return []
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads(done.stdout))


@pytest.mark.engines
def test_helm_makes_objects_that_a_cluster_takes() -> None:
    """Valid by the published schemas of Kubernetes, strictly."""
    engine = {"image": "x", "portal": GIVEN["publicUrl"], "projectNamespaces": ["a", "b"], "token": "t"}
    assert rendered(HELM / "gpu-agent-kubernetes", engine)
    plain = rendered(HELM / "gpu-agent-kubernetes", {**engine, "kueue": False})
    assert {"PriorityClass", "ValidatingAdmissionPolicy"} <= {each["kind"] for each in plain}
    volcano = {**engine, "kueue": False, "volcano": True, "volcanoNamespace": "volcano-system"}
    made = {
        (each["kind"], each["metadata"]["name"]) for each in rendered(HELM / "gpu-agent-kubernetes", volcano)
    }
    policies = {name for kind, name in made if kind == "ValidatingAdmissionPolicy"}
    assert policies == {"gpu-portal-bookings", "gpu-portal-groups"}
    assert ("PriorityClass", "gpu-portal-holder") not in made
    rendered(HELM / "gpu-agent-kubernetes", {**volcano, "kueue": True}, refused="two ways")
    objects = rendered(CHART, {**GIVEN, "ingress": {"tlsSecret": "tls", "className": "nginx"}})
    kinds = [each["kind"] for each in objects]
    assert kinds.count("Deployment") == kinds.count("PodDisruptionBudget") == len(PROGRAMS)
    assert "Secret" not in kinds
    for each in objects:
        if each["kind"] in {"Deployment", "Job"}:
            pod_check(each["spec"]["template"]["spec"])
    one = rendered(CHART, {**GIVEN, "replicas": {"beat": 1}, "migrate": False, "ingress": {"enabled": False}})
    names = {(each["kind"], each["metadata"]["name"]) for each in one}
    assert not {("PodDisruptionBudget", "portal-beat"), ("Job", "portal-migrate")} & names
    assert "Ingress" not in {kind for kind, _ in names}
    closed = rendered(CHART, {**GIVEN, "networkPolicy": {"egress": [{"ports": [{"port": 5432}]}]}})
    (policy,) = [
        each for each in closed if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", "portal")
    ]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert len(policy["spec"]["egress"]) == 3
    rendered(CHART, {}, refused="needed")
    rendered(CHART, {**GIVEN, "settings": {"MAIL_URL": "x"}}, refused="MAIL_URL")


def pod_check(pod: dict[str, Any]) -> None:
    """No root, no rights, no secret but by its Secret, and no key of nodes for the web."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["shareProcessNamespace"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not {each["name"] for each in container["env"]} & SECRET
    secrets = [each["secretRef"]["name"] for each in container["envFrom"]]
    role = {"web": "web", "operators": "operators", "migrate": "owner"}.get(container["name"], "system")
    assert secrets == ["gpu-portal-common", f"gpu-portal-{role}"]
    listens = {program.name for program in PROGRAMS if program.listens}
    assert ("readinessProbe" in container) is (container["name"] in listens)
