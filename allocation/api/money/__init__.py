"""REST resources about money: forecasts, spend and exports."""
