"""Policy lab: versions of the policy are compared, approved, put into force and taken back."""
