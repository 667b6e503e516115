"""What approvers see and offer: effects, alternatives, counter-offers, and their stand-ins."""
