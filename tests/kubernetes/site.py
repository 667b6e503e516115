"""What the people of a site with Kubernetes do."""

from agent.kubernetes import api
from agent.kubernetes.api import Object
from agent.kubernetes.bodies import RANK
from agent.kubernetes.names import BOOKING, GROUP_POLICY, HOLDER, NAMESPACE, POLICY
from agent.kubernetes.objects import HOSTNAME
from tests.kubernetes.admission import HOLDERS
from tests.kubernetes.controllers import QUEUE, STUBBORN, is_over
from tests.kubernetes.store import JOBS, VOLCANO_JOBS, Store
from tests.kubernetes.volcano import GANG_QUEUE, MIN_MEMBER, SCHEDULER


class Site:
    """What the site's people do: nodes, namespaces, jobs, pods."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def namespace(self, name: str, **labels: str) -> None:
        named = {f"gpu-portal/{key}": value for key, value in labels.items()}
        self.store.create(api.NAMESPACES, {"metadata": {"name": name, "labels": named}})

    def node(self, name: str, *, label: bool = True, **gpus: int) -> None:
        """Adds a node; `gpus` by resource without its vendor: `gpu`, or `mig_1g_10gb`."""
        counts = {f"nvidia.com/{_resource_text(key)}": str(count) for key, count in gpus.items()}
        labels = {HOSTNAME: name, **({"gpu-portal/node": ""} if label else {})}
        labels |= {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            "nvidia.com/mig-1g.10gb.memory": "9984",
        }
        host = {"cpu": "64", "memory": "515845Mi", "ephemeral-storage": "1000Gi", "pods": "110", **counts}
        info = dict.fromkeys(_NODE_INFO, "x") | {"bootID": f"boot-{name}"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        self.store.create(
            api.NODES,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {
                    "capacity": host,
                    "allocatable": host,
                    "conditions": [ready],
                    "nodeInfo": info,
                },
            },
        )

    def ready(self, name: str, *, ready: bool, message: str = "Kubelet stopped posting node status.") -> None:
        status = "True" if ready else "Unknown"
        said = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": message}
        self.store.patch(api.NODES, name, {"status": {"conditions": [said]}})

    def cordon(self, name: str, *, cordoned: bool) -> None:
        self.store.patch(api.NODES, name, {"spec": {"unschedulable": cordoned or None}})

    def job(
        self,
        name: str,
        namespace: str,
        queue: str,
        *,
        resource: str = "nvidia.com/gpu",
        count: int = 1,
        parallelism: int = 1,
        stubborn: bool = False,
        rank: str = "",
        node: str = "",
        gang: str = "",
        together: int = 1,
    ) -> None:
        """Submits a Job to a queue, or outside of all queues, with a PriorityClass and for a node; or to
        Volcano in its queue `gang`, where so many pods begin `together`."""
        template: Object = {
            "metadata": {"labels": {STUBBORN: ""} if stubborn else {}},
            "spec": {"restartPolicy": "Never", "containers": [_container(resource, count)]},
        }
        if rank:
            template["spec"]["priorityClassName"] = rank
        if node:
            template["spec"]["nodeSelector"] = {HOSTNAME: node}
        meta: Object = {"name": name, "labels": {QUEUE: queue} if queue else {}}
        if gang:
            template["metadata"]["annotations"] = {GANG_QUEUE: gang}
            template["spec"]["schedulerName"] = SCHEDULER
            meta["annotations"] = {MIN_MEMBER: str(together)}
        spec = {"suspend": bool(queue), "parallelism": parallelism, "template": template}
        body = {"metadata": meta, "spec": spec}
        self.store.create(JOBS, body, namespace)

    def volcano_job(self, name: str, namespace: str, queue: str, ranks: dict[str, str]) -> None:
        """Submits a job of Volcano with a pod for each node, by the class of the booking there, which begin
        together."""
        tasks: list[Object] = [
            {
                "name": node,
                "replicas": 1,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "priorityClassName": rank,
                        "nodeSelector": {HOSTNAME: node},
                        "containers": [_container("nvidia.com/gpu", 1)],
                    }
                },
            }
            for node, rank in ranks.items()
        ]
        spec = {"schedulerName": SCHEDULER, "queue": queue, "minAvailable": len(tasks), "tasks": tasks}
        self.store.create(VOLCANO_JOBS, {"metadata": {"name": name}, "spec": spec}, namespace)

    def finish(self, name: str, namespace: str) -> None:
        """A job comes to its end by itself."""
        done = {"type": "Complete", "status": "True"}
        with self.store.news:
            self.store.patch(JOBS, name, {"status": {"conditions": [done]}}, namespace)
            for pod in self.store.all(api.PODS):
                if pod["metadata"]["namespace"] == namespace and pod["metadata"]["name"].startswith(name):
                    over = {"status": {"phase": "Succeeded"}}
                    self.store.patch(api.PODS, pod["metadata"]["name"], over, namespace)

    def pod(self, name: str, namespace: str, node: str, *, count: int = 1, marked: str = "") -> None:
        """Somebody runs a pod with GPUs outside of the portal; `marked`: as if it were of this queue."""
        spec: Object = {"nodeName": node, "containers": [_container("nvidia.com/gpu", count)]}
        if marked:
            spec["tolerations"] = [{"key": BOOKING, "operator": "Equal", "value": marked}]
        body = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}}
        self.store.create(api.PODS, body, namespace)

    def plain(self) -> None:
        """What the chart makes where there is no Kueue."""
        meta = {"name": HOLDER, "labels": {BOOKING: "none"}, "annotations": {NAMESPACE: HOLDERS}}
        self.store.create(api.RANKS, {"metadata": meta, "value": RANK - 1, "preemptionPolicy": "Never"})
        body = {"metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]}}
        self.store.create(api.POLICIES, body)

    def volcano(self) -> None:
        """What the chart makes where there is Volcano."""
        for name in (POLICY, GROUP_POLICY):
            body = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
            self.store.create(api.POLICIES, body)

    def running(self, namespace: str) -> list[str]:
        """Returns the nodes of the pods in a namespace that run."""
        pods = [each for each in self.store.all(api.PODS) if each["metadata"]["namespace"] == namespace]
        return [each["spec"]["nodeName"] for each in pods if "nodeName" in each["spec"] and not is_over(each)]


_NODE_INFO = (
    *("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


def _resource_text(key: str) -> str:
    """Returns `mig-1g.10gb` of `mig_1g_10gb`."""
    head, _, tail = key.partition("_")
    return head if not tail else f"{head}-{tail.replace('_', '.')}"


def _container(resource: str, count: int) -> Object:
    limits = {resource: str(count), "cpu": "2", "memory": "8Gi"}
    return {"name": "main", "image": "train", "resources": {"limits": limits, "requests": limits}}


def quotas_of(store: Store, queue: str) -> dict[str, dict[str, str]]:
    """Returns the quotas of a ClusterQueue by flavor and resource."""
    groups = store.get(api.CLUSTER_QUEUES, queue)["spec"].get("resourceGroups", ())
    return {
        flavor["name"]: {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
        for group in groups
        for flavor in group["flavors"]
    }
