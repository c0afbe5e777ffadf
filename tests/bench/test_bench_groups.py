"""Every contestant that is installed does the work of every group, and gives our answer."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import peers
import rowgrad
from bench import run
from bench.case import OURS, PEERS, Case
from bench.contest import Entry
from bench.groups import operators, recommender
from optional import framework
from peers import MODEL

FOLDER = Path(run.__file__).parents[1]


@pytest.mark.parametrize("case", peers.cases("torch", "fbgemm"))
def test_peers_give_our_answer(case):
    peers.check(case, "torch", "fbgemm")


def test_a_batch_is_one_and_the_same_for_all_tables_and_for_each():
    torch = framework("torch")
    given = recommender.inputs(replace(MODEL, weighted=True))
    assert len(given.batches) == 2
    for batch in given.batches:
        assert torch.equal(batch.values, torch.cat([ids for ids, _, _ in batch.each]))
        assert torch.equal(batch.weights, torch.cat([weights for _, _, weights in batch.each]))
        lengths = torch.cat([offsets.diff() for _, offsets, _ in batch.each])
        assert torch.equal(batch.offsets.diff(), lengths)
        assert len(lengths) == 3 * MODEL.batch
        for (ids, _, _), rows in zip(batch.each, MODEL.tables, strict=True):
            assert ids.min() >= 0 and ids.max() < rows
    assert not torch.equal(given.batches[0].values[:20], given.batches[1].values[:20])
    assert given.grad.shape == (7, 4 + 8 + 4)
    assert [grad.shape[1] for grad in given.grads] == [4, 8, 4]


def test_a_wrong_update_is_caught():
    framework("torch")

    class Lazy(recommender.Torch):
        def step(self, batch):
            self.pool(batch)

    entries = {
        OURS: lambda: recommender._entry(OURS, MODEL, "SGD", "step, SGD"),
        "torch": lambda: Lazy(recommender.inputs(MODEL), "SGD").entry("step, SGD"),
    }
    case = Case("g", "k", "t", "r", "c", entries)
    result = run.run_one(case, ["torch"], rounds=1, turn=0)
    assert "wrong answer" in result["timings"]["torch"]["problem"]


def test_threads_are_set_for_each_turn():
    shape = operators.Shape(300, 8, 64, 5)
    operators._ours("SparseSegmentMeanGradV2", shape, threads=1).prepare()
    assert rowgrad.get_num_threads() == 1
    operators._ours("SparseSegmentMeanGradV2", shape).prepare()
    assert rowgrad.get_num_threads() == 2


def test_a_peer_that_cannot_even_begin_is_reported():
    def broken():
        raise OSError("libgomp is missing")

    entries = {OURS: lambda: Entry(lambda: None, list), "torch": broken}
    result = run.run_one(Case("g", "k", "t", "r", "c", entries), ["torch"], rounds=1, turn=0)
    assert result["timings"]["torch"] == {"problem": "OSError: libgomp is missing"}
    assert result["ratios"] == {}
    assert run.problems({"contests": [result]}) == ["g/k: torch: OSError: libgomp is missing"]
    with pytest.raises(OSError, match="libgomp"):
        run.run_one(Case("g", "k", "t", "r", "c", {OURS: broken}), [], rounds=1, turn=0)


def test_nothing_is_loaded_that_was_not_asked_for():
    code = (
        "import sys, bench.run, bench.report, bench.pictures, bench.documents, bench.groups\n"
        "bench.groups.all_cases('full')\n"
        f"print(sorted({{*{[peer.module for peer in PEERS.values()]}, 'matplotlib'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
