"""Two ranks on two networks of their own, joined by a cable of the kernel: as near as one machine comes to two.

Needs root and iproute2. What leaves each interface is counted by the kernel and compared with the cost model.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import rowgrad
from optional import framework, missing

torch = framework("torch")
import job  # noqa: E402

from rowgrad import optim  # noqa: E402
from rowgrad.torch import EmbeddingBag  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBag, cost  # noqa: E402

JOB = Path(__file__).with_name("job.py")
ADDRESSES = ("10.213.71.1", "10.213.71.2")
LONG = 600


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def machines() -> Iterator[list[tuple[str, str]]]:
    """Name and interface of two network namespaces, each with an address of its own."""
    if shutil.which("ip") is None:
        missing("iproute2 is not installed")
    found = [(f"rowgrad-{os.getpid()}-{side}", f"rg{os.getpid() % 10**7}{side}") for side in "ab"]
    try:
        try:
            for name, _ in found:
                ip("netns", "add", name)
            (first, one), (second, other) = found
            ip("link", "add", one, "netns", first, "type", "veth", "peer", "name", other, "netns", second)
        except subprocess.CalledProcessError as error:
            missing(f"network namespaces cannot be made here: {error.stderr.strip()}")
        for (name, interface), address in zip(found, ADDRESSES, strict=True):
            # Packets as on a real cable: the kernel would hand over up to 64 kB at once, with one header.
            ip("-n", name, "link", "set", interface, "gso_max_segs", "1")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield found
    finally:
        for name, _ in found:
            with suppress(subprocess.CalledProcessError, FileNotFoundError):
                ip("netns", "delete", name)  # and with it, its interface


def run(machines: list[tuple[str, str]], folder: Path, exact: str) -> list[dict[str, float]]:
    """Train on both machines; what each wrote."""
    processes = []
    for rank, (name, interface) in enumerate(machines):
        environment = {
            **os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "GLOO_SOCKET_IFNAME": interface,
            "RANK": str(rank), "WORLD_SIZE": "2", "ROWGRAD_SHARED_MEMORY": "0",
            "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29571",
        }  # fmt: skip
        command = ["ip", "netns", "exec", name, sys.executable, str(JOB), str(folder / f"{rank}.npz"), interface, exact]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, errors = process.communicate(timeout=LONG)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


@pytest.fixture(scope="module")
def one_process() -> EmbeddingBag:
    """The same training without any network."""
    first = first_table()
    layer = EmbeddingBag(job.ROWS, job.WIDTH, combiner="mean", _weight=first, fused_optimizer=optim.RowWiseAdagrad(0.1))
    job.train(layer, 0, 1, range(job.WARM + job.STEPS))
    return layer


def first_table() -> "torch.Tensor":
    """The table that a sharded layer draws, which does not depend on the number of ranks."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        layer = ShardedEmbeddingBag(job.ROWS, job.WIDTH, combiner="mean", sharding="hash", seed=3)
        return layer.full_table()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("exact", ["exact", "sums"])
def test_two_machines_train_as_one_process(machines, tmp_path, one_process, exact):
    found = run(machines, tmp_path, exact)
    compare = np.testing.assert_array_equal
    if exact != "exact":

        def compare(a, b):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as saved:
            compare(saved["table"], one_process.weight.detach().numpy())
            compare(saved["sum"], one_process.fused_state["sum"].numpy())
        batch = cost.Batch(job.BAGS / 2, job.IDS, job.WIDTH, unique=found[rank]["unique"], exact=exact == "exact")
        assert found[rank]["traffic"] == pytest.approx(job.STEPS * sum(cost.wire_bytes(2, batch).values()), rel=0.02)
        on_the_cable = job.STEPS * cost.packet_bytes(2, batch)
        print(f"{exact}, rank {rank}: {found[rank]['interface']} bytes left, {on_the_cable:.0f} by the model")
        assert found[rank]["interface"] == pytest.approx(on_the_cable, rel=0.1)
