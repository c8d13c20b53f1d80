"""Instruments: one file a field, which opens its files and turns raw measurements into problems to restore."""
