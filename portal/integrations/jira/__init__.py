"""Calls of REST APIs of Jira, made by the sender of webhooks."""
