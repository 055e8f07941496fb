"""halfbyte and its peers in a browser tab."""
