"""The order of the queue: shares, guarantees, strengths of planned starts."""
