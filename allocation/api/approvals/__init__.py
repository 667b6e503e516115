"""REST resources of approvals: counter-offers, alternatives, rules and stand-ins."""
