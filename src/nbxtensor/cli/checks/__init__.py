"""The checks of ``nbxtensor doctor``, by what they look at."""
