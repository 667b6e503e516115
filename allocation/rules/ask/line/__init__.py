"""The one-line grammar: tokens, rules, repairs, and the text of a document."""
