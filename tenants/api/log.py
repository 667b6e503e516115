"""The audit logs over REST: a tenant's for its admins, the platform's for operators."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import require_tenant_admin
from tenants.api.base import ApiView, list_response
from tenants.models import AuditEntry
from tenants.platform.rest.fields import Instant, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.audit_words import ACTIONS, Labels, object_name, with_labels
from tenants.rules.operator_roles import Area
from tenants.services.sealed_log.search import LogFilter, log_detail, log_entries, log_labels, log_names


class LogQuery(PageQuery):
    """The log, and a filter."""

    log = serializers.ChoiceField(
        choices=["tenant", "own", "platform"],
        required=False,
        default="tenant",
        help_text="`tenant` (its admins), `own` acts in the tenant, or `platform` (operators).",
    )
    actor = Text(required=False, max_length=150, help_text="Sign-in name of who acted.")
    kind = Text(required=False, max_length=40, help_text="Kind of the object, as in `node`.")
    object = Text(required=False, max_length=64, help_text="Id or name of the object.")
    since = Instant(required=False)
    until = Instant(required=False, help_text="Entries before this time.")


class LogEntryOut(serializers.Serializer[Any]):
    """An entry of the log."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(allow_null=True, help_text="Null for the portal itself.")
    action = serializers.CharField()
    kind = serializers.CharField()
    object = serializers.CharField()
    sentence = serializers.CharField()
    before = serializers.DictField(allow_null=True, help_text="Values before a change.")
    after = serializers.DictField(allow_null=True, help_text="The same values after it.")
    detail = serializers.DictField(help_text="What else the entry says.")
    address = serializers.CharField(allow_null=True, help_text="From where, in the platform's log.")


class Log(ApiView):
    """What was done."""

    area = Area.LOG
    queries = {"GET": LogQuery}

    @described(
        "list_audit",
        "The log of the tenant (its admins), of the platform (operators), or of your own acts",
        answer=page(LogEntryOut),
        query=LogQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists entries, the newest first."""
        with self.tx():
            if self.query["log"] != "platform":
                if self.query["log"] == "tenant":
                    require_tenant_admin(self.actor)
                return self._page(tenant=True)
            self.require_operator()
            with operator_tx():
                return self._page(tenant=False)

    def _page(self, *, tenant: bool) -> Response:
        query = self.query
        wanted = LogFilter(
            actor=query.get("actor", ""),
            kind=query.get("kind", ""),
            about=query.get("object", ""),
            since=query.get("since"),
            until=query.get("until"),
            own_id=self.user.pk if query["log"] == "own" else None,
        )
        tenant_id = self.actor.tenant_id if tenant else None
        entries, next_cursor = page_of(
            log_entries(tenant_id, wanted),
            keys=("-at", "-id"),
            query=query,
            scope=f"log-{tenant_id}",
        )
        names, labels = log_names(entries), log_labels()
        shown = (_shown(entry, names, labels) for entry in entries)
        return list_response(shown, next_cursor)


def _shown(entry: AuditEntry, names: Mapping[int, str], labels: Labels) -> dict[str, Any]:
    actor = names.get(entry.actor_id or 0)
    detail = log_detail(entry, names)
    # Sentences have labels, fields have slugs.
    name = object_name(entry.object_kind, entry.object_id, with_labels(detail, labels), labels)
    before, after = detail.pop("before", None), detail.pop("after", None)
    done = ACTIONS.get(entry.action, f"{entry.action}: {{object}}").format(object=name)
    shown = LogEntryOut(
        {
            "id": entry.id,
            "at": entry.at,
            "actor": actor,
            "action": entry.action,
            "kind": entry.object_kind,
            "object": entry.object_id,
            "sentence": f"{actor or 'The portal'} {done}",
            "before": before if isinstance(before, dict) else None,
            "after": after if isinstance(after, dict) else None,
            "address": detail.pop("address", None),
            "detail": detail if isinstance(before, dict | None) else {**detail, "before": before},
        }
    )
    return dict(shown.data)
