"""Reports: statements that people get by mail each week or month."""
