"""What Jira adds to the core: sentences and words of the log."""

from django.utils.translation import gettext_lazy

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "jira_person_missing": gettext_lazy("This person can't book in the project."),
        "too_many_projects": gettext_lazy("At most %(max_projects)s projects are possible."),
        "board_taken": gettext_lazy("Another project has this board."),
        "jira_edition": gettext_lazy("Choose Cloud or Data Center."),
        "jira_url_query": gettext_lazy("The address of a Jira site has no query."),
        "jira_mail_missing": gettext_lazy(
            "Jira Cloud needs the e-mail address of the account that comments."
        ),
        "jira_token_missing": gettext_lazy("Give the API token of the account."),
        "jira_project_key": gettext_lazy("The key of a Jira project is like GPU."),
        "jira_action": gettext_lazy("Choose to book or to quote."),
        "no_such_tier": gettext_lazy("There is no such tier."),
        "jira_board_missing": gettext_lazy("Give both a board and what its sprints ask for."),
        "not_an_approver": gettext_lazy("This person decides no approvals."),
        "own_approver": gettext_lazy(
            "Bookings are made in the name of this person, so another person decides."
        ),
        "jira_decline_status": gettext_lazy("Choose another status to decline."),
        "jira_request_missing": gettext_lazy("Write a request such as 2 h100 6h or {customfield_10050}."),
        "jira_transition": gettext_lazy("Write state=status, such as active=In Progress. States: %(names)s."),
        "jira_decider_missing": gettext_lazy("Say in whose name these statuses decide."),
        "old_message": gettext_lazy("The message is of %(at)s, and it is %(now)s. Check the clocks."),
        "jira_person_left": gettext_lazy("%(name)s, in whose name Jira acts, has left."),
        "jira_timestamp": gettext_lazy("`timestamp` is missing: milliseconds, or a time with its offset."),
        "jira_approval": gettext_lazy("`approval` must be approve or decline."),
        "jira_field": gettext_lazy("The field %(name)s is missing or empty."),
        "jira_key": gettext_lazy("`issue.key` is missing, such as GPU-7."),
        "jira_fields": gettext_lazy("`issue.fields` must be an object."),
        "jira_sprint": gettext_lazy("`sprint` is missing."),
        "jira_sprint_ids": gettext_lazy("`sprint.id` or `sprint.originBoardId` is missing."),
        "jira_request_long": gettext_lazy("The request has more than %(most)s characters."),
        "board_number": gettext_lazy("Enter the number of the board. It is in the board's address."),
    }
)
ACTIONS["jira.project_set"] = "mapped the Jira project {object}"
ACTIONS["jira.project_removed"] = "removed the Jira project {object}"
NAMED_BY["jira"] = ("name", "key")
