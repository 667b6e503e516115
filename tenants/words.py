"""The sentences of refusals, by code."""

from collections.abc import Mapping
from typing import Any

from tenants.platform.coded import CodedError
from tenants.platform.nouns import Sentence


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


def fault_text(fault: CodedError) -> str:
    """Returns the sentence of an error of pure code. KeyError: no such sentence."""
    return refusal_text(fault.text.code, **fault.text.facts)


def sentences_add(sentences: Mapping[str, Sentence]) -> None:
    """Adds the sentences of a feature."""
    _SENTENCES.update(sentences)


_SENTENCES: dict[str, Sentence] = {
    "announcement_over": "This announcement is shown no longer.",
    "announcement_text": "Enter what everybody should read.",
    "announcement_long": "At most %(text_most)s characters.",
    "announcement_level": "Choose note, maintenance or warning.",
    "announcement_ends": "It ends after it begins, and in the future.",
    "announcement_days": "It is shown for at most %(days)s days.",
    "too_many_announcements": "%(open_most)s announcements are shown now or later. Withdraw one first.",
    "no_dry_run": "This request has no dry run: it would change something. Leave out `Prefer: dry-run`.",
    "message_dismissed": "This message was given up; it is not tried again.",
    "service_account_role": "A service account is researcher or viewer.",
    "too_many_service_accounts": "An organisation has at most %(max_accounts)s service accounts.",
    "leads_and_admins_only": "Only the project's leads and the organisation's admins may do this.",
    "service_account_scopes": "A service account has the scopes read and book: choose one or both.",
    "project_closed": "%(found)s is closed. An admin of the organisation can open it again.",
    "scopes_missing": "Choose at least one of %(values)s.",
    "token_scope": "This token has no scope %(extra)s, so it cannot create a token with it.",
    "token_days": "Choose a lifetime of 1 to %(max_days)s days.",
    "token_overlap": "Choose an overlap of 0 to %(max_overlap_hours)s hours.",
    "too_many_tokens": "There are %(max_tokens)s valid tokens. Revoke one that is not used.",
    "token_over": "This token has expired or was revoked, so it cannot create another one.",
    "token_project": "This token is for another project.",
    "token_of_project": (
        "This token is limited to one project, and this is about more than that. Name the project, "
        "or use a token without a project."
    ),
    "directory_groups": "A directory keeps at most %(most_groups)s groups.",
    "directory_group_members": "A group has at most %(most_members)s members.",
    "directory_member": "A member is an id of a person.",
    "directory_no_person": "There is no person %(unknown)s here.",
    "directory_group_name": "A name has 1 to %(longest_name)s visible characters, and is not %(everybody)s.",
    "directory_id_long": "It has at most %(longest_id)s characters.",
    "directory_group_taken": "There is a group %(name)s already.",
    (
        "directory_last_admin"
    ): "%(user)s is the last admin of %(tenant)s, by this group. Make somebody else an admin first.",
    "directory_person_taken": "There is a person %(user_name)s already.",
    "directory_id_taken": "Another one has the `externalId` %(external_id)s already.",
    "directory_name": "A name has 1 to %(longest_name)s characters.",
    "directory_name_invisible": "A name has no invisible characters.",
    "name_invisible": "A name has no control or invisible characters.",
    "name_length": "A name has 1 to %(longest)s characters.",
    "bad_username": "A sign-in name has letters, digits and . _ @ + - only.",
    "bad_slug": "A short name has up to 40 small letters, digits and single hyphens between them.",
    "gpus_not_a_number": "Enter GPUs as a plain number, like 2 or 2.5.",
    "gpus_step": "A GPU has 56,000 units: at most 1/56,000 steps.",
    "gpus_most": "At most %(max_gpus)s GPUs.",
    "bad_duration": "Enter a duration like 30m, 6h, 7d or 1h 30m (s, m, h, d).",
    "whole_number": "Enter a whole number.",
    "number_example": "Enter a plain number, such as 100 or 2.5.",
    "clock_form": "Enter a time such as 08:00.",
    "lab_slug_taken": "Another lab has this short name.",
    "lab_archived": "%(target)s is archived.",
    "lab_lead_service_account": "A service account leads no lab.",
    (
        "lab_in_use"
    ): "%(lab)s still has projects: %(names)s%(more)s. Move them to another lab, or out of it, first.",
    "lab_budget_exceeded": (
        "%(project)s has spent and holds more than the budget of the lab has left. Raise that "
        "budget first, or make it soft."
    ),
    "owner_archived": "%(owner)s is archived.",
    "limit_negative": "A limit is never negative.",
    "project_leads_only": "Only leads of the project and admins may do this.",
    (
        "lab_guarantees_promised"
    ): "The projects of %(lab)s are guaranteed %(promised)s, so %(wanted)s is %(short)s too few.",
    "lab_leads_only": "Only the organisation's admins, and leads of the project's lab, may do this.",
    "guarantees_exceeded": (
        "%(project)s is guaranteed %(guaranteed)s %(model)s, its other projects have %(others)s of "
        "them. %(wanted)s is %(over)s too many: %(left)s would work."
    ),
    "share_negative": "A share is never negative.",
    "borrow_negative": "The borrow limit is never negative.",
    "lend_negative": "The lend limit is never negative.",
    "bad_weight": "A weight is a whole number from 0 to 1000.",
    "cap_too_small": "A cap has at least one GPU-hour.",
    "cap_days": "A cap applies to 1 to 31 consecutive days, or to a month; only a month carries over.",
    "cap_hours_missing": "Enter the GPU-hours of the cap.",
    "window_weekday": "A weekday is 0 (Monday) to 6.",
    "window_hours": "It begins at 0 to 23 and ends at 1 to 24.",
    "window_backward": "The last day is before the first.",
    "window_over": "The last day is over.",
    "too_many_windows": "There are %(most_windows)s already. Remove one first.",
    "window_person": "A person's limit is in a project or everywhere.",
    "unknown_zone": "There is no such time zone.",
    "own_account": "Another admin has to do this with your own account.",
    "erased": "This account was erased. Invite the person again.",
    "account_open": "Close the account first: its sessions end with that.",
    "own_account_locked": "Another operator has to do this with your own account.",
    "bad_invitee": "Give an e-mail address or a sign-in name, like mara.lind.",
    "too_many_invitations": "At most %(max_per_day)s invitations in 24 hours. Invite the others tomorrow.",
    "access_reason": "Enter a reason. The organisation's admins read it.",
    "access_length": "An access lasts at most 4 hours.",
    "access_over": "This access is over already.",
    "not_a_member": "%(tenant)s has no member %(username)s.",
    "project_slug_taken": "Another project has this short name.",
    "membership_role": "Choose viewer, researcher or lead.",
    "bad_zone": "Choose a zone from the list, like Europe/Berlin.",
    "bad_mails": "Choose one of %(values)s.",
    "invited_role": "Choose viewer, researcher, lead or organisation admin.",
    (
        "last_lead"
    ): "This is the project's only lead. Make somebody else lead first, or ask an admin to do this.",
    "last_admin": "This is the organisation's last admin. Make somebody else an admin first.",
    "admin_everywhere": "An organisation admin's role holds in all projects.",
    "bad_clock": "Write a time of day like 22:00.",
    "quiet_hours_half": "Quiet hours need a beginning and an end. Leave both empty for none.",
    "quiet_hours_equal": "Quiet hours begin and end at different times.",
    "unknown_type": "Choose one of %(known)s.",
    "always_in_app": "%(label)s always go to the inbox, because a countdown runs.",
    "tier_pause_method": "Choose stop, signal or suspend as the pause method.",
    "tier_idle_action": "Choose tell, pause or end for idle GPUs.",
    "tier_idle_pause": "Idle bookings can be paused only in a tier that can be paused.",
    "tier_more_time": "Enter both how often and for how long a pause can be postponed, or neither.",
    "tier_guarantee": "A tier that is never paused must count against the guarantee.",
    "tier_lengths": "The shortest booking is longer than the longest.",
    "tier_lead": "Bookings must be possible between the least and the most time ahead.",
    "tenant_slug_taken": "Another organisation has this short name.",
    "username_taken": "This sign-in name is taken.",
    "no_such_person": "There is no account with this sign-in name. An operator can create one.",
    "bad_email": "This is not an e-mail address.",
    "guarantees_promised": (
        "The projects of %(tenant)s are guaranteed %(promised)s %(model)s. %(guaranteed_units)s is "
        "%(missing_units)s too few: the organisation's admin has to lower a project's guarantee first."
    ),
    "weights_admins_only": "Only the organisation's admins set weights and caps of GPU-hours.",
    "wrong_password": "This is not your password.",
    "slow_down": "Ask again in %(poll_seconds)s seconds.",
    "device_code_unknown": "No device waits with this code. A code is valid for ten minutes and works once.",
    "access_denied": "The sign-in was declined in the browser.",
    "authorization_pending": "Nobody has confirmed this sign-in in a browser yet.",
    "expired_token": "This sign-in has expired. Start it again.",
    "busy": "The portal can't sign in devices now. Try again soon.",
    "link_used": "This link was used or has expired. Request a new one.",
    "too_many_passkeys": "You have %(passkeys_most)s passkeys. Remove one that you no longer use.",
    "too_many_requests": "More than %(most)s such calls in %(window_seconds)s seconds. Retry in %(wait)s s.",
    "wrong_code": "This is not the app's present code.",
    "second_factor_set": "You have a second factor. Remove it first.",
    "second_factor_not_begun": "There is nothing to confirm. Begin again.",
    "no_second_factor": "There is no second factor.",
    "no_role": (
        "%(tenant)s knows you, but none of your groups has a role here. Ask an admin of %(tenant)s "
        "to give one of your groups a role."
    ),
    "members_only_connect": "Only members of %(tenant)s connect their account with its provider.",
    "connected_already": "This person of the provider has another account here. Sign in with it instead.",
    "not_allowed_may_not": "Operators sign in with their password: no organisation's provider does it.",
    "account_closed": "Your account is closed. Ask the platform's operator.",
    "disabled": "An admin of %(tenant)s has disabled you there. Ask them.",
    "secret_lost": (
        "The client secret can't be decrypted, because the portal's master key was replaced. An "
        "admin of this organisation has to enter it again."
    ),
    "secret_missing": "Enter the client secret.",
    "secret_long": "A client secret has at most 500 characters.",
    "no_provider": "Save the provider first.",
    "no_groups": "No group gives a role yet, so nobody could sign in. Add one.",
    "group_role_tenant": "Name the group whose members administer the organisation.",
    "too_many_groups": "At most %(max_groups)s groups. Remove one first.",
    "group_taken": "This group has a role there. Remove that first.",
    "group_role_project": "Choose a role from the list.",
    "bookers_only": "Only researchers and leads of this project can book in it.",
    "admins_only": "Only the organisation's admins may do this.",
    "role_needed_to_act": (
        "Only operators with the role %(roles)s may change this. Your roles: %(own)s. Roles are given by"
        " %(people)s."
    ),
    "role_needed_to_read": (
        "Only operators with the role %(roles)s may open this. Your roles: %(own)s. Roles are given by"
        " %(people)s."
    ),
    "operators_only": "Only the platform's operators may do this.",
    "bad_idempotency_key": "An Idempotency-Key has 1 to %(key_max)s printable ASCII characters.",
    (
        "idempotency_key_reused"
    ): "This key was sent before with another request. Use a new key for each request.",
    "window_owner": "Name one owner: a project, a lab, the organisation, or a person in a project or in all.",
    "events_of_members": "Operators' tokens can't follow events. Use a member's token.",
    "unknown_event": "There is no event %(event)s.",
    "unknown_since": "There is no such event, or it is older than 30 days. Start again without `since`.",
    "clock_example": "Enter a time of day such as 08:00.",
    "limit_owner": "Send exactly one of `project`, `lab` and `tenant`.",
    "lab_weight": "Labs have no weight. Leave out `weight`.",
    "limit_twice": "Send either `borrow_limit_units` or `limit_units`.",
    "limit_below_guarantee": "The limit is less than the guarantee.",
    "scope_missing": "This needs a token with the scope %(needed)s. This one has: %(held)s.",
    "policy_hook_moved": "The request changed while the policy hook checked it. Send it again.",
    (
        "read_only_access"
    ): "You see this organisation's pages as %(person)s, and can change nothing there. End the access first.",
    (
        "service_account_managers"
    ): "Only the project's leads and the organisation's admins can manage service accounts.",
    "bad_time": "Enter a time such as 2026-11-25 18:00.",
    "mail_choice": "Choose when mails are sent.",
    "share_weight": "Enter a weight from 0 to 1000.",
    "share_number": "Enter a whole number, or leave the field empty.",
    "tier_slug_taken": "Another tier already has this short name.",
    "address_long": "An address has at most %(most)s characters.",
    "address_ascii": "An address has only visible ASCII characters and no backslash.",
    "address_form": "This is not an address like https://example.org/hook.",
    "address_https": "An address starts with https://.",
    "address_password": "An address contains no name or password.",
    "address_fragment": "An address contains no fragment (#).",
    "address_ipv6": "This is not an IPv6 address.",
    "address_host": "The address has no host name. Write an IDN in its form xn--….",
    "address_private": (
        "The name resolves to a private or reserved address. The operator can allow networks with "
        "%(setting)s."
    ),
    "address_public_https": "A public address needs https://.",
    "address_public_port": "A public address uses port 443 or 8443.",
    "name_server": "The name server does not answer.",
    "name_unresolved": "The name does not resolve.",
    "address_invalid": "This is not an address.",
    "chat_address_long": "An address has at most %(most)s visible ASCII characters.",
    "chat_service": "An address begins with one of the services: %(known)s.",
    "chat_forbidden": "Leave out %(name)s=.",
    "chat_not_taken": "The service did not take the message.",
    "chat_incomplete": "The address is not complete.",
}
