"""The engine on an API server of ours: no cluster runs where these tests run."""
