"""The part of a phone's thermal network that recordings say something of; see fit_thermal.py."""
