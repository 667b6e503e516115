"""What a hold of money is made of: shares of budgets, rows, guards and shortages."""
