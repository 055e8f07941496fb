"""halfbyte beside llama.cpp and wllama, on the same files, in one run, taking turns."""
