"""Known models: their files, and what is around them (bytes of a file, tokens of a sentence)."""
