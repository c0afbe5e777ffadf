"""The benchmark behind `make bench`: rowgrad and its peers, side by side, in one run.

From the folder `benchmarks`, `python -m bench --help` lists the options.

`work` lists what is measured and `data` makes its inputs; `contestants` holds one module for each peer; `contest`
checks their answers and times them; `run` goes through it all; `targets` compares the figures with what rowgrad
promises; `report`, `pictures` and `documents` tell. It is not part of the package.
"""
