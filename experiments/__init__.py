"""The studies: every table and figure of the paper and what goes beyond it, each beside its results; see catalog.py."""
