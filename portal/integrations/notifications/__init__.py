"""Notifications of people: who gets which, in the inbox and by mail."""
