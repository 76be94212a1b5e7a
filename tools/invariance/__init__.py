"""Batch invariance and repeat, checked for every operator: `python -m tools.invariance`."""
