"""The quota tree, guarantees and limits over time, GPU-hour caps and fair share."""
