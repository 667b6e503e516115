"""The operation with which the first migration of an app creates all its tables."""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class CreateTables(Operation):
    """Creates models as `CreateModel` does, but renders the models of all apps once.

    Django renders a new model together with all that it has a relation to. Here nearly all have
    one to the tenant, so a hundred models would be rendered a hundred times.
    """

    reversible = False

    def __init__(self, *models: CreateModel) -> None:
        self.models = models

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Adds the models; the first reader of `state.apps` renders them."""
        state.__dict__.pop("apps", None)
        for model in self.models:
            model.state_forwards(app_label, state)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Creates the tables."""
        for model in self.models:
            model.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        """Returns what `migrate --plan` prints."""
        return f"Create {len(self.models)} tables"
