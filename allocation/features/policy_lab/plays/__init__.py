"""The past of a site, played again under a policy: pure, without a database."""
