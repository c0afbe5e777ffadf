"""Four processes that stay for all tests here, and run functions as the ranks of groups of one to four."""

import multiprocessing
import signal
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

WORLD = 4
PATIENCE = 300.0  # seconds that an exchange may take: another rank may have to compile kernels first


class Ranks:
    """Processes with a group for each number of ranks up to four; those of a failed test are replaced."""

    def __init__(self) -> None:
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(self, ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What function(group, *arguments) returns on each of so many ranks."""
        if not self._processes:
            self._begin()
        chosen = self._pipes[:ranks]
        for pipe in chosen:
            pipe.send((function, ranks, arguments))
        answers: dict[int, Any] = {}
        while len(answers) < ranks:
            ready = wait([pipe for rank, pipe in enumerate(chosen) if rank not in answers], timeout=2 * PATIENCE)
            if not ready:
                self.end()
                raise TimeoutError(f"ranks {sorted(set(range(ranks)) - set(answers))} do not answer")
            for pipe in ready:
                rank = chosen.index(pipe)
                try:
                    error, result = pipe.recv()
                except EOFError:
                    error, result = f"rank {rank} ended", None
                if error:
                    self.end()
                    raise AssertionError(f"rank {rank} of {ranks}:\n{error}")
                answers[rank] = result
        return [answers[rank] for rank in range(ranks)]

    def end(self) -> None:
        """Stop the processes."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        path = Path(tempfile.mkdtemp()) / "meeting"
        for rank in range(WORLD):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(path), there), daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)


def _serve(rank: int, path: str, pipe: Connection) -> None:
    import faulthandler

    import torch
    import torch.distributed as dist

    import rowgrad

    faulthandler.register(signal.SIGUSR1)  # where does it stand?

    torch.set_num_threads(1)
    rowgrad.set_num_threads(1)
    time = timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=WORLD, timeout=time)
    groups = {size: dist.new_group(list(range(size)), timeout=time) for size in range(1, WORLD + 1)}
    while True:
        try:
            function, ranks, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((None, function(groups[ranks], *arguments)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))
