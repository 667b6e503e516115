"""Pages of money: budgets, prices and the ledger."""
