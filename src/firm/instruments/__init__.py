"""Instruments: what turns a file of raw measurements into problems that `firm.restore` solves, one file a field."""
