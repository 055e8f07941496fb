"""halfbyte in several versions of Pyodide, under Node."""
