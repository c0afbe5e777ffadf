"""The benchmark behind `make bench`: rowgrad and its peers, side by side, in one run.

From the folder `benchmarks`, `python -m bench --help` lists the options.

`case` says what a case is; `groups` has a module for each group of cases, with its inputs and its contestants;
`lookups` makes ids and tables; `contest` checks the answers and times them; `run` goes through it all; `report`,
`documents` and `pictures` tell. It is not part of the package.
"""
