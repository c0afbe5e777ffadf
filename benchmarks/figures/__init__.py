"""`make report`: measure everything that the documents state, and write docs/report.md.

`command` runs the parts, each of which keeps its figures in a JSON file beside this folder; `values` compares results
with those of PyTorch and TensorFlow; `page` writes the page from the files, and measures nothing.
"""
