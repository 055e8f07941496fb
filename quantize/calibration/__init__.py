"""What a language model's matrices read on a text: statistics by which weights are rounded.

`texts` gives tokens, `segments` runs the model a layer at a time, `statistics` adds up what enters
each matrix, and `imatrix` reads and writes llama.cpp's files of such sums.
"""
