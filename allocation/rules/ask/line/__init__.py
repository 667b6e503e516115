"""The one-line grammar, its tokens, repairs, and the text of a document."""
