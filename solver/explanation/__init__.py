"""Why a demand waits or is refused, and what would work instead."""
