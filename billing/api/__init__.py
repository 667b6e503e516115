"""REST resources of budgets and price books."""
