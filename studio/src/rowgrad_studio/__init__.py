"""The studio: a local web page on which pages of blocks are drawn, run and kept.

The server owns the truth (pages, sessions, history, files) and knows operators only by the catalogue of `rowgrad`; the
page in the browser, built from `studio/web`, shows it. What they say to each other stands in `studio/PROTOCOL.md`.
"""

__version__ = "0.1.0"
