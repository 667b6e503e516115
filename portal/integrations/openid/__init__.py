"""OpenID Connect: reads providers' discovery documents, exchanges codes and checks ID tokens."""
