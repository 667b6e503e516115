"""What Jira adds to the core: sentences and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "jira_person_missing": "This person can't book in the project.",
        "too_many_projects": "At most %(max_projects)s projects are possible.",
        "board_taken": "Another project has this board.",
        "jira_edition": "Choose Cloud or Data Center.",
        "jira_url_query": "The address of a Jira site has no query.",
        "jira_mail_missing": "Jira Cloud needs the e-mail address of the account that comments.",
        "jira_token_missing": "Give the API token of the account.",
        "jira_project_key": "The key of a Jira project is like GPU.",
        "jira_action": "Choose to book or to quote.",
        "no_such_tier": "There is no such tier.",
        "jira_board_missing": "Give both a board and what its sprints ask for.",
        "not_an_approver": "This person decides no approvals.",
        "own_approver": "Bookings are made in the name of this person, so another person decides.",
        "jira_decline_status": "Choose another status to decline.",
        "jira_request_missing": "Write a request such as 2 h100 6h or {customfield_10050}.",
        "jira_transition": "Write state=status, such as active=In Progress. States: %(names)s.",
        "jira_decider_missing": "Say in whose name these statuses decide.",
        "old_message": "The message is of %(at)s, and it is %(now)s. Check the clocks.",
        "jira_person_left": "%(name)s, in whose name Jira acts, has left.",
        "jira_timestamp": "`timestamp` is missing: milliseconds, or a time with its offset.",
        "jira_approval": "`approval` must be approve or decline.",
        "jira_field": "The field %(name)s is missing or empty.",
        "jira_key": "`issue.key` is missing, such as GPU-7.",
        "jira_fields": "`issue.fields` must be an object.",
        "jira_sprint": "`sprint` is missing.",
        "jira_sprint_ids": "`sprint.id` or `sprint.originBoardId` is missing.",
        "jira_request_long": "The request has more than %(most)s characters.",
        "board_number": "Enter the number of the board. It is in the board's address.",
    }
)
ACTIONS["jira.project_set"] = "mapped the Jira project {object}"
ACTIONS["jira.project_removed"] = "removed the Jira project {object}"
NAMED_BY["jira"] = ("name", "key")
