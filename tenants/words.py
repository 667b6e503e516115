"""The sentences of refusals, by code."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from tenants.platform.coded import CodedError


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


def fault_text(fault: CodedError) -> str:
    """Returns the sentence of an error of pure code. KeyError: no such sentence."""
    return refusal_text(fault.text.code, **fault.text.facts)


def sentences_add(sentences: Mapping[str, Promise]) -> None:
    """Adds the sentences of a feature."""
    _SENTENCES.update(sentences)


_SENTENCES: dict[str, Promise] = {
    "announcement_over": gettext_lazy("This announcement is shown no longer."),
    "announcement_text": gettext_lazy("Enter what everybody should read."),
    "announcement_long": gettext_lazy("At most %(text_most)s characters."),
    "announcement_level": gettext_lazy("Choose note, maintenance or warning."),
    "announcement_ends": gettext_lazy("It ends after it begins, and in the future."),
    "announcement_days": gettext_lazy("It is shown for at most %(days)s days."),
    "too_many_announcements": gettext_lazy(
        "%(open_most)s announcements are shown now or later. Withdraw one first."
    ),
    "no_dry_run": gettext_lazy(
        "This request has no dry run: it would change something. Leave out `Prefer: dry-run`."
    ),
    "message_dismissed": gettext_lazy("This message was given up; it is not tried again."),
    "service_account_role": gettext_lazy("A service account is researcher or viewer."),
    "too_many_service_accounts": gettext_lazy("A tenant has at most %(max_accounts)s service accounts."),
    "leads_and_admins_only": gettext_lazy("Only the project's leads and the tenant's admins may do this."),
    "service_account_scopes": gettext_lazy(
        "A service account has the scopes read and book: choose one or both."
    ),
    "project_closed": gettext_lazy("%(found)s is closed. Its tenant admin can open it again."),
    "scopes_missing": gettext_lazy("Choose at least one of %(values)s."),
    "token_scope": gettext_lazy("This token has no scope %(extra)s, so it cannot create a token with it."),
    "token_days": gettext_lazy("Choose a lifetime of 1 to %(max_days)s days."),
    "token_overlap": gettext_lazy("Choose an overlap of 0 to %(max_overlap_hours)s hours."),
    "too_many_tokens": gettext_lazy("There are %(max_tokens)s valid tokens. Revoke one that is not used."),
    "token_over": gettext_lazy("This token has expired or was revoked, so it cannot create another one."),
    "token_project": gettext_lazy("This token is for another project."),
    "token_of_project": gettext_lazy(
        "This token is limited to one project, and this is about more than that. Name the project, "
        "or use a token without a project."
    ),
    "directory_groups": gettext_lazy("A directory keeps at most %(most_groups)s groups."),
    "directory_group_members": gettext_lazy("A group has at most %(most_members)s members."),
    "directory_member": gettext_lazy("A member is an id of a person."),
    "directory_no_person": gettext_lazy("There is no person %(unknown)s here."),
    "directory_group_name": gettext_lazy(
        "A name has 1 to %(longest_name)s visible characters, and is not %(everybody)s."
    ),
    "directory_id_long": gettext_lazy("It has at most %(longest_id)s characters."),
    "directory_group_taken": gettext_lazy("There is a group %(name)s already."),
    "directory_last_admin": gettext_lazy(
        "%(user)s is the last admin of %(tenant)s, by this group. Make somebody else an admin first."
    ),
    "directory_person_taken": gettext_lazy("There is a person %(user_name)s already."),
    "directory_id_taken": gettext_lazy("Another one has the `externalId` %(external_id)s already."),
    "directory_name": gettext_lazy("A name has 1 to %(longest_name)s characters."),
    "directory_name_invisible": gettext_lazy("A name has no invisible characters."),
    "name_invisible": gettext_lazy("A name has no control or invisible characters."),
    "name_length": gettext_lazy("A name has 1 to %(longest)s characters."),
    "bad_username": gettext_lazy("A sign-in name has letters, digits and . _ @ + - only."),
    "bad_slug": gettext_lazy(
        "A short name has up to 40 small letters, digits and single hyphens between them."
    ),
    "gpus_not_a_number": gettext_lazy("Enter GPUs as a plain number, like 2 or 2.5."),
    "gpus_step": gettext_lazy("A GPU has 56,000 units: at most 1/56,000 steps."),
    "gpus_most": gettext_lazy("At most %(max_gpus)s GPUs."),
    "bad_duration": gettext_lazy("Enter a duration like 30m, 6h, 7d or 1h 30m (s, m, h, d)."),
    "whole_number": gettext_lazy("Enter a whole number."),
    "number_example": gettext_lazy("Enter a plain number, such as 100 or 2.5."),
    "clock_form": gettext_lazy("Enter a time such as 08:00."),
    "lab_slug_taken": gettext_lazy("Another lab has this short name."),
    "lab_archived": gettext_lazy("%(target)s is archived."),
    "lab_lead_service_account": gettext_lazy("A service account leads no lab."),
    "lab_in_use": gettext_lazy(
        "%(lab)s still has projects: %(names)s%(more)s. Move them to another lab, or out of it, first."
    ),
    "lab_budget_exceeded": gettext_lazy(
        "%(project)s has spent and holds more than the budget of the lab has left. Raise that "
        "budget first, or make it soft."
    ),
    "owner_archived": gettext_lazy("%(owner)s is archived."),
    "limit_negative": gettext_lazy("A limit is never negative."),
    "project_leads_only": gettext_lazy("Only leads of the project and admins may do this."),
    "lab_guarantees_promised": gettext_lazy(
        "The projects of %(lab)s are guaranteed %(promised)s, so %(wanted)s is %(short)s too few."
    ),
    "lab_leads_only": gettext_lazy("Only the tenant's admins, and leads of the project's lab, may do this."),
    "guarantees_exceeded": gettext_lazy(
        "%(project)s is guaranteed %(guaranteed)s %(model)s, its other projects have %(others)s of "
        "them. %(wanted)s is %(over)s too many: %(left)s would work."
    ),
    "share_negative": gettext_lazy("A share is never negative."),
    "borrow_negative": gettext_lazy("The borrow limit is never negative."),
    "lend_negative": gettext_lazy("The lend limit is never negative."),
    "bad_weight": gettext_lazy("A weight is a whole number from 0 to 1000."),
    "cap_too_small": gettext_lazy("A cap has at least one GPU-hour."),
    "cap_days": gettext_lazy(
        "A cap applies to 1 to 31 consecutive days, or to a month; only a month carries over."
    ),
    "cap_hours_missing": gettext_lazy("Enter the GPU-hours of the cap."),
    "window_weekday": gettext_lazy("A weekday is 0 (Monday) to 6."),
    "window_hours": gettext_lazy("It begins at 0 to 23 and ends at 1 to 24."),
    "window_backward": gettext_lazy("The last day is before the first."),
    "window_over": gettext_lazy("The last day is over."),
    "too_many_windows": gettext_lazy("There are %(most_windows)s already. Remove one first."),
    "window_person": gettext_lazy("A person's limit is in a project or everywhere."),
    "unknown_zone": gettext_lazy("There is no such time zone."),
    "own_account": gettext_lazy("Another admin has to do this with your own account."),
    "erased": gettext_lazy("This account was erased. Invite the person again."),
    "account_open": gettext_lazy("Close the account first: its sessions end with that."),
    "own_account_locked": gettext_lazy("Another operator has to do this with your own account."),
    "bad_invitee": gettext_lazy("Give an e-mail address or a sign-in name, like mara.lind."),
    "too_many_invitations": gettext_lazy(
        "At most %(max_per_day)s invitations in 24 hours. Invite the others tomorrow."
    ),
    "access_reason": gettext_lazy("Enter a reason. The tenant's admins read it."),
    "access_length": gettext_lazy("An access lasts at most 4 hours."),
    "access_over": gettext_lazy("This access is over already."),
    "not_a_member": gettext_lazy("%(tenant)s has no member %(username)s."),
    "project_slug_taken": gettext_lazy("Another project has this short name."),
    "membership_role": gettext_lazy("Choose viewer, researcher or lead."),
    "bad_zone": gettext_lazy("Choose a zone from the list, like Europe/Berlin."),
    "bad_mails": gettext_lazy("Choose one of %(values)s."),
    "invited_role": gettext_lazy("Choose viewer, researcher, lead or tenant admin."),
    "last_lead": gettext_lazy(
        "This is the project's only lead. Make somebody else lead first, or ask a tenant admin to do this."
    ),
    "last_admin": gettext_lazy("This is the tenant's last admin. Make somebody else an admin first."),
    "admin_everywhere": gettext_lazy("A tenant admin's role holds in all projects."),
    "bad_clock": gettext_lazy("Write a time of day like 22:00."),
    "quiet_hours_half": gettext_lazy("Quiet hours need a beginning and an end. Leave both empty for none."),
    "quiet_hours_equal": gettext_lazy("Quiet hours begin and end at different times."),
    "unknown_type": gettext_lazy("Choose one of %(known)s."),
    "always_in_app": gettext_lazy("%(label)s always go to the inbox, because a countdown runs."),
    "tier_pause_method": gettext_lazy("Choose stop, signal or suspend as the pause method."),
    "tier_idle_action": gettext_lazy("Choose tell, pause or end for idle GPUs."),
    "tier_idle_pause": gettext_lazy("Idle bookings can be paused only in a tier that can be paused."),
    "tier_more_time": gettext_lazy(
        "Enter both how often and for how long a pause can be postponed, or neither."
    ),
    "tier_guarantee": gettext_lazy("A tier that is never paused must count against the guarantee."),
    "tier_lengths": gettext_lazy("The shortest booking is longer than the longest."),
    "tier_lead": gettext_lazy("Bookings must be possible between the least and the most time ahead."),
    "tenant_slug_taken": gettext_lazy("Another tenant has this short name."),
    "username_taken": gettext_lazy("This sign-in name is taken."),
    "no_such_person": gettext_lazy("There is no account with this sign-in name. An operator can create one."),
    "bad_email": gettext_lazy("This is not an e-mail address."),
    "guarantees_promised": gettext_lazy(
        "The projects of %(tenant)s are guaranteed %(promised)s %(model)s. %(guaranteed_units)s is "
        "%(missing_units)s too few: the tenant's admin has to lower a project's guarantee first."
    ),
    "weights_admins_only": gettext_lazy("Only the tenant's admins set weights and caps of GPU-hours."),
    "wrong_password": gettext_lazy("This is not your password."),
    "slow_down": gettext_lazy("Ask again in %(poll_seconds)s seconds."),
    "device_code_unknown": gettext_lazy(
        "No device waits with this code. A code is valid for ten minutes and works once."
    ),
    "access_denied": gettext_lazy("The sign-in was declined in the browser."),
    "authorization_pending": gettext_lazy("Nobody has confirmed this sign-in in a browser yet."),
    "expired_token": gettext_lazy("This sign-in has expired. Start it again."),
    "busy": gettext_lazy("The portal can't sign in devices now. Try again soon."),
    "link_used": gettext_lazy("This link was used or has expired. Request a new one."),
    "too_many_passkeys": gettext_lazy(
        "You have %(passkeys_most)s passkeys. Remove one that you no longer use."
    ),
    "too_many_requests": gettext_lazy(
        "More than %(most)s such calls in %(window_seconds)s seconds. Retry in %(wait)s s."
    ),
    "wrong_code": gettext_lazy("This is not the app's present code."),
    "second_factor_set": gettext_lazy("You have a second factor. Remove it first."),
    "second_factor_not_begun": gettext_lazy("There is nothing to confirm. Begin again."),
    "no_second_factor": gettext_lazy("There is no second factor."),
    "no_role": gettext_lazy(
        "%(tenant)s knows you, but none of your groups has a role here. Ask an admin of %(tenant)s "
        "to give one of your groups a role."
    ),
    "members_only_connect": gettext_lazy(
        "Only members of %(tenant)s connect their account with its provider."
    ),
    "connected_already": gettext_lazy(
        "This person of the provider has another account here. Sign in with it instead."
    ),
    "not_allowed_may_not": gettext_lazy(
        "Operators sign in with their password: no organisation's provider does it."
    ),
    "account_closed": gettext_lazy("Your account is closed. Ask the platform's operator."),
    "disabled": gettext_lazy("An admin of %(tenant)s has disabled you there. Ask them."),
    "secret_lost": gettext_lazy(
        "The client secret can't be decrypted, because the portal's master key was replaced. An "
        "admin of this organisation has to enter it again."
    ),
    "secret_missing": gettext_lazy("Enter the client secret."),
    "secret_long": gettext_lazy("A client secret has at most 500 characters."),
    "no_provider": gettext_lazy("Save the provider first."),
    "no_groups": gettext_lazy("No group gives a role yet, so nobody could sign in. Add one."),
    "group_role_tenant": gettext_lazy("Name the group whose members administer the tenant."),
    "too_many_groups": gettext_lazy("At most %(max_groups)s groups. Remove one first."),
    "group_taken": gettext_lazy("This group has a role there. Remove that first."),
    "group_role_project": gettext_lazy("Choose a role from the list."),
    "bookers_only": gettext_lazy("Only researchers and leads of this project can book in it."),
    "admins_only": gettext_lazy("Only the tenant's admins may do this."),
    "role_needed_to_act": gettext_lazy(
        "Only operators with the role %(roles)s may change this. Your roles: %(own)s. Roles are given by"
        " %(people)s."
    ),
    "role_needed_to_read": gettext_lazy(
        "Only operators with the role %(roles)s may open this. Your roles: %(own)s. Roles are given by"
        " %(people)s."
    ),
    "operators_only": gettext_lazy("Only the platform's operators may do this."),
    "bad_idempotency_key": gettext_lazy(
        "An Idempotency-Key has 1 to %(key_max)s printable ASCII characters."
    ),
    "idempotency_key_reused": gettext_lazy(
        "This key was sent before with another request. Use a new key for each request."
    ),
    "window_owner": gettext_lazy(
        "Name one owner: a project, a lab or a tenant, or a person (in a project or in all)."
    ),
    "events_of_members": gettext_lazy("Operators' tokens can't follow events. Use a member's token."),
    "unknown_event": gettext_lazy("There is no event %(event)s."),
    "unknown_since": gettext_lazy(
        "There is no such event, or it is older than 30 days. Start again without `since`."
    ),
    "clock_example": gettext_lazy("Enter a time of day such as 08:00."),
    "limit_owner": gettext_lazy("Send exactly one of `project`, `lab` and `tenant`."),
    "lab_weight": gettext_lazy("Labs have no weight. Leave out `weight`."),
    "limit_twice": gettext_lazy("Send either `borrow_limit_units` or `limit_units`."),
    "limit_below_guarantee": gettext_lazy("The limit is less than the guarantee."),
    "scope_missing": gettext_lazy("This needs a token with the scope %(needed)s. This one has: %(held)s."),
    "policy_hook_moved": gettext_lazy("The request changed while the policy hook checked it. Send it again."),
    "read_only_access": gettext_lazy(
        "You see this organisation's pages as %(person)s, and can change nothing there. End the access first."
    ),
    "service_account_managers": gettext_lazy(
        "Only the project's leads and the tenant's admins can manage service accounts."
    ),
    "bad_time": gettext_lazy("Enter a time such as 2026-11-25 18:00."),
    "mail_choice": gettext_lazy("Choose when mails are sent."),
    "share_weight": gettext_lazy("Enter a weight from 0 to 1000."),
    "share_number": gettext_lazy("Enter a whole number, or leave the field empty."),
    "tier_slug_taken": gettext_lazy("Another tier already has this short name."),
    "address_long": gettext_lazy("An address has at most %(most)s characters."),
    "address_ascii": gettext_lazy("An address has only visible ASCII characters and no backslash."),
    "address_form": gettext_lazy("This is not an address like https://example.org/hook."),
    "address_https": gettext_lazy("An address starts with https://."),
    "address_password": gettext_lazy("An address contains no name or password."),
    "address_fragment": gettext_lazy("An address contains no fragment (#)."),
    "address_ipv6": gettext_lazy("This is not an IPv6 address."),
    "address_host": gettext_lazy("The address has no host name. Write an IDN in its form xn--…."),
    "address_private": gettext_lazy(
        "The name resolves to a private or reserved address. The operator can allow networks with "
        "%(setting)s."
    ),
    "address_public_https": gettext_lazy("A public address needs https://."),
    "address_public_port": gettext_lazy("A public address uses port 443 or 8443."),
    "name_server": gettext_lazy("The name server does not answer."),
    "name_unresolved": gettext_lazy("The name does not resolve."),
    "address_invalid": gettext_lazy("This is not an address."),
    "chat_address_long": gettext_lazy("An address has at most %(most)s visible ASCII characters."),
    "chat_service": gettext_lazy("An address begins with one of the services: %(known)s."),
    "chat_forbidden": gettext_lazy("Leave out %(name)s=."),
    "chat_not_taken": gettext_lazy("The service did not take the message."),
    "chat_incomplete": gettext_lazy("The address is not complete."),
}
