"""Measurements against peers; each module is a program: ``python -m bench.ops_cpu --help``."""
