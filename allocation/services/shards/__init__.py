"""Where the shards of a large site are decided: here, in processes, or on other machines."""
