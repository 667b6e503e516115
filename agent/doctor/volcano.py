"""The checks of Volcano in `doctor --engine kubernetes`: what it must be for bookings to have its queues."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.doctor.checks import Finding, said
from agent.kubernetes.api import CONFIG_MAPS, VOLCANO, ApiError, KubernetesApi, Way
from agent.kubernetes.cluster import chart_missing
from agent.kubernetes.names import NODE, NODE_GROUP
from agent.kubernetes.objects import SeenNode
from agent.ports.gpu import GpuError

_PLUGIN = re.compile(r"""-\s*["']?name["']?\s*:\s*["']?([a-z][-a-z]*)""")
_LIMITING = {"capacity", "proportion"}


@dataclass(frozen=True, slots=True)
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
