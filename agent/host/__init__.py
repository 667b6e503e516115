"""The machine around the GPUs: its inventory, network, open files and device files."""
