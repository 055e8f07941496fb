"""halfbyte in the browser: the page (`page/`, `engine`, `start`), and what serves or exports it."""
