"""`gpu-agent --engine …`: one process that is the agent of many nodes of another scheduler."""
