"""The checks of `doctor --engine kubernetes`: what a cluster must have for the portal to use it."""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from agent.doctor.checks import Check, Finding, found, said
from agent.doctor.host import HostOptions, host_checks
from agent.kubernetes import cluster
from agent.kubernetes.api import (
    CONFIG_MAPS,
    KUEUE,
    NAMESPACES,
    NODES,
    REVIEWS,
    RIGHTS,
    VOLCANO,
    ApiError,
    KubernetesApi,
    Resource,
    Rights,
    Way,
)
from agent.kubernetes.cluster import chart_missing
from agent.kubernetes.gpu import product_of
from agent.kubernetes.names import NODE, NODE_GROUP, PROJECT, TENANT
from agent.kubernetes.objects import SeenNamespace, SeenNode, namespace_read, node_read
from agent.ports.gpu import GpuError

_OF_PODS = frozenset(("state folder", "room in the state folder", "enrolment", "portal"))
_PLUGIN = re.compile(r"""-\s*["']?name["']?\s*:\s*["']?([a-z][-a-z]*)""")
_LIMITING = {"capacity", "proportion"}


def pod_checks(options: HostOptions) -> list[Check]:
    """Returns the checks of the pod in which the engine runs."""
    return [check for check in host_checks(options) if check.name in _OF_PODS]


@dataclasses.dataclass(frozen=True, slots=True)
class VolcanoCheck:
    """`config` is NAMESPACE/NAME of the ConfigMap of Volcano's scheduler."""

    api: KubernetesApi
    way: Way
    config: str

    def served(self, nodes: Sequence[SeenNode]) -> Finding:
        """Whether bookings can have queues of it, and their nodes are kept for them."""
        is_served = self.api.served(VOLCANO)
        name = VOLCANO.removeprefix("/apis/")
        if self.way != "volcano":
            code = "kubernetes_volcano_unused" if is_served else "kubernetes_volcano_none"
            return Finding("ok", said(code, api=name))
        do = said("fix_kubernetes_volcano")
        if not is_served:
            return Finding("fail", said("kubernetes_volcano_none", api=name), do)
        missing = chart_missing(self.api, "volcano")
        if missing:
            return Finding("fail", said("kubernetes_volcano_missing", missing=", ".join(missing)), do)
        bare = sorted(node.name for node in nodes if not node.is_apart)
        if bare:
            seen = said("kubernetes_volcano_shared", nodes=", ".join(bare))
            return Finding("warn", seen, said("fix_kubernetes_volcano_shared", taint=NODE))
        return Finding("ok", said("kubernetes_volcano", api=name))

    def plugins(self, nodes: Sequence[SeenNode]) -> Finding:
        """Whether its scheduler does what queues of bookings say. Only who may read its settings sees it."""
        if self.way != "volcano":
            return Finding("ok", said("kubernetes_volcano_off"))
        try:
            found = self._plugins()
        except (ApiError, GpuError) as error:
            seen = said("kubernetes_volcano_unread", config=self.config, error=error)
            return Finding("unknown", seen, said("fix_kubernetes_volcano_unread"))
        lacks = sorted({"gang"} - found) + ([] if _LIMITING & found else [" or ".join(sorted(_LIMITING))])
        if lacks:
            seen = said("kubernetes_volcano_lacks", config=self.config, plugins=", ".join(lacks))
            return Finding("warn", seen, said("fix_kubernetes_volcano_lacks"))
        outside = sorted(node.name for node in nodes if NODE_GROUP not in node.labels)
        if "nodegroup" in found and outside:
            seen = said("kubernetes_volcano_outside", nodes=", ".join(outside))
            return Finding("warn", seen, said("fix_kubernetes_volcano_outside", label=NODE_GROUP))
        return Finding("ok", said("kubernetes_volcano_plugins", plugins=", ".join(sorted(found))))

    def _plugins(self) -> set[str]:
        """Raises ApiError, and GpuError where it says none."""
        namespace, _, name = self.config.partition("/")
        data = self.api.get(CONFIG_MAPS, name, namespace).get("data", {})
        found = {plugin for text in data.values() for plugin in _PLUGIN.findall(text)}
        if not found:
            raise GpuError("invalid", "it names no plugin")
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """`nodes` are those to be served, empty: those with the label. `models` are the products that the
    options name. `way` is what a booking is to be; `own` the namespace of pods that hold devices, or of
    commands to Volcano; `config` the ConfigMap of its scheduler."""

    nodes: Sequence[str]
    models: dict[str, tuple[str, int]]
    way: cluster.Asked
    own: str
    config: str


def kubernetes_checks(api: KubernetesApi, asked: Asked) -> list[Check]:
    """Returns the checks."""
    site = _Site(api, asked)
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("Kubernetes", site.answers),
        ("rights in Kubernetes", site.rights),
        ("Kueue", site.kueue),
        ("Volcano", site.volcano),
        ("plugins of Volcano", site.plugins),
        ("nodes of Kubernetes", site.nodes),
        ("GPUs of Kubernetes", site.gpus),
        ("products of GPUs", site.products),
        ("namespaces of projects", site.namespaces),
    ]
    late = said("fix_kubernetes_silent")
    return [Check(name, look, "Kubernetes", late=late) for name, look in looks]


class _Site:
    """What the API server says, asked once."""

    def __init__(self, api: KubernetesApi, asked: Asked) -> None:
        self._api = api
        self._asked = asked.nodes
        self._models = asked.models
        self._way_asked = asked.way
        self._own = asked.own
        self._config = asked.config

    @functools.cached_property
    def _way(self) -> Way:
        """What bookings are."""
        return cluster.way_find(self._api, self._way_asked)

    def _rights(self) -> Iterator[tuple[str, Rights]]:
        """Yields what is needed, by namespace."""
        rights = RIGHTS[self._way]
        yield "", rights.everywhere
        for each in self._projects:
            yield each, rights.in_projects
        if rights.own:
            yield self._own, rights.own

    @functools.cached_property
    def _nodes(self) -> dict[str, SeenNode]:
        """The nodes to be served, by name."""
        rows = map(node_read, self._api.listed(NODES)[0])
        return {node.name: node for node in rows if node.name in self._asked or self._is_labelled(node)}

    def _is_labelled(self, node: SeenNode) -> bool:
        return not self._asked and NODE in node.labels

    def answers(self) -> Finding:
        try:
            version = self._api.version()
        except ApiError as error:
            return Finding("fail", said("kubernetes_silent", error=error), said("fix_kubernetes_silent"))
        return Finding("ok", said("kubernetes_answers", version=version))

    def rights(self) -> Finding:
        missing = [
            f"{verb} {resource.plural}{f' in {namespace}' if namespace else ''}"
            for namespace, rights in self._rights()
            for resource, verbs in rights
            for verb in verbs
            if not self._may(verb, resource, namespace)
        ]
        if missing:
            seen = said("kubernetes_rights_missing", missing=", ".join(missing))
            return Finding("fail", seen, said("fix_kubernetes_rights"))
        return Finding("ok", said("kubernetes_rights"))

    def _may(self, verb: str, resource: Resource, namespace: str) -> bool:
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural}
        if namespace:
            asked["namespace"] = namespace
        answer = self._api.create(REVIEWS, {"spec": {"resourceAttributes": asked}})
        return bool(answer.get("status", {}).get("allowed"))

    @functools.cached_property
    def _projects(self) -> dict[str, SeenNamespace]:
        """The namespaces of projects, by name."""
        rows = map(namespace_read, self._api.listed(NAMESPACES, labelSelector=TENANT)[0])
        return {each.name: each for each in rows}

    def kueue(self) -> Finding:
        do = said("fix_kubernetes_kueue")
        if self._way == "volcano":
            return Finding("ok", said("kubernetes_volcano_queues"))
        if self._way == "quota":
            missing = cluster.chart_missing(self._api, "quota")
            seen = said("kubernetes_plain_missing", missing=", ".join(missing))
            seen = seen if missing else said("kubernetes_plain")
            return found(good=not missing, seen=seen, do=do, otherwise="fail")
        good = self._api.served(KUEUE)
        seen = said("kubernetes_kueue" if good else "kubernetes_kueue_none", api=KUEUE.removeprefix("/apis/"))
        return found(good=good, seen=seen, do=do, otherwise="fail")

    def volcano(self) -> Finding:
        return self._volcano.served(list(self._nodes.values()))

    def plugins(self) -> Finding:
        return self._volcano.plugins(list(self._nodes.values()))

    @property
    def _volcano(self) -> VolcanoCheck:
        return VolcanoCheck(self._api, self._way, self._config)

    def nodes(self) -> Finding:
        missing = sorted(set(self._asked) - self._nodes.keys())
        if missing or not self._nodes:
            seen = said("kubernetes_nodes_missing", nodes=", ".join(missing) or NODE)
            return Finding("fail", seen, said("fix_kubernetes_nodes", label=NODE))
        bad = sorted(node.name for node in self._nodes.values() if node.damage or node.closure)
        bare = sorted(node.name for node in self._nodes.values() if NODE not in node.labels)
        do = said("fix_kubernetes_nodes", label=NODE)
        seen = said("kubernetes_nodes", nodes=", ".join(sorted(self._nodes)), closed=", ".join(bad) or "-")
        return found(good=not bad and not bare, seen=seen, do=do)

    def gpus(self) -> Finding:
        counts = {
            name: " + ".join(f"{count} {kind}" for kind, count in sorted(node.capacity.items())) or "0"
            for name, node in sorted(self._nodes.items())
        }
        good = bool(counts) and all(node.capacity for node in self._nodes.values())
        seen = said("kubernetes_gpus", gpus="; ".join(f"{name}: {count}" for name, count in counts.items()))
        return found(good=good, seen=seen, do=said("fix_kubernetes_gpus"), otherwise="fail")

    def products(self) -> Finding:
        names, missing = set(), set()
        for node in self._nodes.values():
            for resource in node.capacity:
                try:
                    names.add(product_of(resource, node.labels, self._models)[0])
                except GpuError:
                    missing.add(f"{resource} ({node.name})")
        seen = said("kubernetes_products", products=", ".join(sorted(names or {"-"})))
        do = said("fix_kubernetes_products", missing=", ".join(sorted(missing)))
        return found(good=not missing, seen=seen, do=do, otherwise="fail")

    def namespaces(self) -> Finding:
        rows = self._projects.values()
        count = Counter((each.tenant, each.project) for each in rows)
        twice = sorted("/".join(filter(None, key)) for key, number in count.items() if number > 1)
        do = said("fix_kubernetes_namespaces", tenant=TENANT, project=PROJECT)
        names = ", ".join(f"{each.name} ({each.tenant}/{each.project or '*'})" for each in rows)
        if twice:
            return Finding("fail", said("kubernetes_namespaces_twice", projects=", ".join(twice)), do)
        seen = said("kubernetes_namespaces", namespaces=names or "-")
        return found(good=bool(rows), seen=seen, do=do)
