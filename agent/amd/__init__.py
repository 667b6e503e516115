"""AMD's GPUs by `amdsmi`, the library that comes with ROCm: partitions are slices."""
