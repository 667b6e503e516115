"""What saved views add to the core: sentences and words of the log."""

from django.utils.translation import gettext_lazy

from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.words import sentences_add

sentences_add(
    {
        "view_sharers": gettext_lazy("Only admins share a view with everybody."),
        "view_of_another": gettext_lazy("This view belongs to somebody else. An admin can change it."),
        "view_empty": gettext_lazy("Choose a filter or an order of the list first, then save the view."),
        "view_long": gettext_lazy("These filters are too long to save: at most %(most)s characters."),
        "view_parameters": gettext_lazy(
            "The list has no filter %(unknown)s. A view keeps only these: %(names)s."
        ),
        "view_name_taken": gettext_lazy("There is a view %(name)s of this list. Choose another name."),
        "too_many_views": gettext_lazy("You have %(most)s views of this list. End one that you do not use."),
        "too_many_shared_views": gettext_lazy(
            "Everybody has %(most)s views of this list already. End one of them first."
        ),
    }
)
ACTIONS["view.saved"] = "saved the view {object}"
ACTIONS["view.changed"] = "changed the view {object}"
ACTIONS["view.ended"] = "ended the view {object}"
NAMED_BY["view"] = ("name",)
