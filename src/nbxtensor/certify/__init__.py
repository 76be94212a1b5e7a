"""Proves and times the settings of launch keys, and writes certificates."""
