"""The REST API as a whole: routes, errors, OpenAPI document and probes."""
