"""halfbyte in products that are not ours: notebooks of JupyterLite and marimo, PyScript's pages."""
