"""The shipped catalogue of GPU models, and `site.toml`."""
