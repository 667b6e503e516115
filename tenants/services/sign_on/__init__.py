"""Single sign-on of tenants: providers, attempts, and the roles of people who sign in. In
`operator_tx`."""
