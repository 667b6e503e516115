"""Where a demand fits at one start: scoring, gangs, repacking and rearranging."""
