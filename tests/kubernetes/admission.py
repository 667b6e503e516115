"""What an API server checks before it makes a pod or a group of pods: PriorityClasses, quotas, the policies
of the chart, and the webhook of Volcano."""

from collections import Counter
from decimal import Decimal

from agent.kubernetes import api, names
from agent.kubernetes.api import Object, Resource
from agent.kubernetes.objects import HOSTNAME, quantity
from tests.kubernetes.store import Refusal, Store
from tests.kubernetes.volcano import group_review
from wire.kubernetes_names import RANKS

HOLDERS = "gpu-agents"
"""The namespace of the chart, and of the pods that hold devices."""


class Admission:
    """See Store.admit."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, resource: Resource, data: Object) -> None:
        if resource is api.PODS:
            self._rank(data)
            self._policy(data)
            self._quotas(data)
        if resource is api.GROUPS:
            self._group_policy(data)
            group_review(self._store, data)

    def _rank(self, pod: Object) -> None:
        name = pod["spec"].get("priorityClassName")
        if name is None:
            pod["spec"]["priority"] = 0
            return
        rank = self._store.find(api.RANKS, name)
        if rank is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found")
        pod["spec"] |= {"priority": rank["value"], "preemptionPolicy": rank.get("preemptionPolicy")}

    def _policy(self, pod: Object) -> None:
        """What templates/policy.yaml of the chart says in CEL."""
        if self._store.find(api.POLICIES, names.POLICY) is None:
            return
        for rank in self._store.all(api.RANKS):
            meta = rank["metadata"]
            if names.BOOKING not in meta["labels"] or meta["name"] != pod["spec"].get("priorityClassName"):
                continue
            host = meta["annotations"].get(names.HOST)
            aims = pod["spec"].get("nodeSelector", {}).get(HOSTNAME)
            here = pod["metadata"]["namespace"] == meta["annotations"][names.NAMESPACE]
            if not here or host not in (None, aims):
                raise _forbidden(pod, "its PriorityClass is for another namespace or node")

    def _group_policy(self, group: Object) -> None:
        """What templates/grouppolicy.yaml of the chart says in CEL."""
        name = group["spec"].get("queue", "")
        if self._store.find(api.POLICIES, names.GROUP_POLICY) is None or not name.startswith(RANKS):
            return
        queues = [
            each
            for each in self._store.all(api.GANG_QUEUES)
            if names.BOOKING in each["metadata"].get("labels", {})
        ]
        for queue in queues:
            meta = queue["metadata"]
            is_home = meta.get("annotations", {}).get(names.NAMESPACE) == group["metadata"]["namespace"]
            if meta["name"] == name and not is_home:
                raise _forbidden(group, "its queue is for another namespace")
        if not queues:
            raise _forbidden(group, "there is no booking")

    def _quotas(self, pod: Object) -> None:
        for quota in self._store.all(api.QUOTAS):
            if not counts(quota, pod):
                continue
            used: Counter[str] = Counter()
            for other in self._store.all(api.PODS):
                over = other.get("status", {}).get("phase") in ("Succeeded", "Failed")
                if counts(quota, other) and not over:
                    used.update(needs(other))
            asks = needs(pod)
            for key, most in quota["spec"]["hard"].items():
                if key in ("requests.cpu", "requests.memory") and key not in asks:
                    raise _forbidden(pod, f"failed quota: {quota['metadata']['name']}: must specify {key}")
                if asks.get(key) and used[key] + asks[key] > quantity(most):
                    raise _forbidden(pod, f"exceeded quota: {quota['metadata']['name']}")


def counts(quota: Object, pod: Object) -> bool:
    """Returns whether a quota counts a pod."""
    rules = quota["spec"].get("scopeSelector", {}).get("matchExpressions", ())
    here = quota["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return here and all(pod["spec"].get("priorityClassName") in rule["values"] for rule in rules)


def needs(pod: Object) -> dict[str, Decimal]:
    """Returns what a quota counts of a pod."""
    total = {"pods": Decimal(1)}
    for each in pod["spec"]["containers"]:
        for name, count in each["resources"].get("requests", {}).items():
            key = f"requests.{name}"
            total[key] = total.get(key, Decimal(0)) + quantity(count)
    return total


def _forbidden(pod: Object, text: str) -> Refusal:
    return Refusal(403, "Forbidden", f'pods "{pod["metadata"].get("name", "")}" is forbidden: {text}')
