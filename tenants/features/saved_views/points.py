"""What saved views add to the core: sentences and words of the log."""

from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.words import sentences_add

sentences_add(
    {
        "view_sharers": "Only admins share a view with everybody.",
        "view_of_another": "This view belongs to somebody else. An admin can change it.",
        "view_empty": "Choose a filter or an order of the list first, then save the view.",
        "view_long": "These filters are too long to save: at most %(most)s characters.",
        "view_parameters": "The list has no filter %(unknown)s. A view keeps only these: %(names)s.",
        "view_name_taken": "There is a view %(name)s of this list. Choose another name.",
        "too_many_views": "You have %(most)s views of this list. End one that you do not use.",
        "too_many_shared_views": "Everybody has %(most)s views of this list already. End one of them first.",
    }
)
ACTIONS["view.saved"] = "saved the view {object}"
ACTIONS["view.changed"] = "changed the view {object}"
ACTIONS["view.ended"] = "ended the view {object}"
NAMED_BY["view"] = ("name",)
