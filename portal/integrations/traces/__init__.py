"""OpenTelemetry traces, from a request to the handed-over device. Needs `gpu-portal[traces]`."""
