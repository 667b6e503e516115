"""Rules of projects that make plans by themselves: for the backlog, and for expected shortages."""
