"""Fits the part of a phone's thermal network that recordings determine; see fit_thermal.py."""
