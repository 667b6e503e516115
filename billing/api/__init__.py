"""REST resources of money: budgets and price books."""
