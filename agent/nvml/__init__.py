"""The ports of a driver over NVML, through pynvml."""
