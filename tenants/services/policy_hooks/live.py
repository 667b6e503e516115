"""The hook that is asked at present, from memory where reference data is."""

from dataclasses import dataclass
from uuid import UUID

from tenants.models import PolicyHook
from tenants.platform.reference import by_version


@dataclass(frozen=True, slots=True)
class LiveHook:
    """A hook that is on."""

    id: UUID
    url: str
    timeout_ms: int
    is_fail_open: bool
    is_dry_run: bool


def hook_live(tenant_id: UUID) -> LiveHook | None:
    """Returns the hook of a tenant, if it is on."""
    return next(iter(_hooks_live(tenant_id)), None)


def hook_decides(tenant_id: UUID) -> bool:
    """Whether a hook decides on the tenant's requests; one in a dry run does not."""
    hook = hook_live(tenant_id)
    return hook is not None and not hook.is_dry_run


def live_of(hook: PolicyHook) -> LiveHook:
    """Returns what a question needs of a hook."""
    return LiveHook(hook.id, hook.url, hook.timeout_ms, hook.is_fail_open, hook.is_dry_run)


@by_version
def _hooks_live(tenant_id: UUID) -> tuple[LiveHook, ...]:
    # A tuple, because None is not kept in memory.
    return tuple(map(live_of, PolicyHook.objects.filter(tenant_id=tenant_id, is_on=True)))
