"""Policy lab: versions of the policy are tried on the past and in shadow, and put into force."""
