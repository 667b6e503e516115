"""Pages of approvals: requests to decide, and the rules that ask for them."""
