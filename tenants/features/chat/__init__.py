"""Chat channels: notifications of a person or of a project in Slack, Teams, Mattermost and others."""
