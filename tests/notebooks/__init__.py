"""halfbyte in products that are not ours: JupyterLite's notebooks and PyScript's pages."""
