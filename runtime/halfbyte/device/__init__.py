"""Devices that are not here: what one has, and how long it keeps its speed."""
