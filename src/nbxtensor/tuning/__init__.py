"""Launch keys, the settings proved for them, and the choice between a certified setting and the declared default."""
