"""Stand-ins: people who decide requests for an approver during a time."""
