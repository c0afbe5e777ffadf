"""The benchmark behind `rowgrad bench` and `make bench`: rowgrad and its peers, side by side, in one run.

`work` lists what is measured and `data` makes its inputs; `contestants` holds one module for each peer; `contest`
checks their answers and times them; `run` goes through it all; `targets` compares the figures with what rowgrad
promises; `report`, `pictures` and `documents` tell. Nothing here is loaded by `import rowgrad`.
"""
