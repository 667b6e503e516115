"""Notebooks: JupyterLab, or another program with a web page, on the devices of a running booking."""
