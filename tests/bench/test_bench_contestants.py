"""Every contestant that is installed does the work, and gives our answer."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import peers
import rowgrad
from bench import contestants, data, memory, run, work
from bench.contestants import PEERS, ours
from bench.work import Work
from peers import TINY, WORKS


@pytest.mark.parametrize(("peer", "item"), peers.cases(lambda peer: peer != "tensorflow"))
def test_a_peer_gives_our_answer(peer, item):
    peers.check(peer, item)


def test_variants_give_our_answer():
    plain = Work("mean_grad_v2", "variants", TINY)
    item = Work(
        "mean_grad_v2", "int32", replace(TINY, ids="int32"), (),
        {"int64": plain, "one thread": replace(plain, threads=1)},
    )  # fmt: skip
    result = run.run_one(item, {}, rounds=1, pause=0)
    assert set(result["ratios"]) == {"int64", "one thread"}
    half = Work("mean_grad_v2", "bfloat16", replace(TINY, dtype="bfloat16"), (), {"float32": plain})
    assert set(run.run_one(half, {}, rounds=1, pause=0)["ratios"]) == {"float32"}
    other = Work("mean_grad_v2", "int32", TINY, (), {"wrong": Work("mean_grad_v2", "", replace(TINY, bags=65))})
    assert "wrong answer" in run.run_one(other, {}, rounds=1, pause=0)["timings"]["wrong"]["problem"]


def test_threads_are_set_for_each_entry():
    ours.entry(Work("mean", "mean", TINY, threads=1)).prepare()
    assert rowgrad.get_num_threads() == 1
    ours.entry(Work("mean", "mean", TINY)).prepare()
    assert rowgrad.get_num_threads() == work.THREADS


def test_the_row_update_is_a_step_of_gradient_descent():
    ids, bags, grad, _ = data.batch(TINY)
    table = data.table(300, 8, "float32").copy()
    expected = table - ours.LEARNING_RATE * rowgrad.sparse_segment_mean_grad(grad, ids, bags, 300)
    ours.row_update(table, grad, ids, bags)
    np.testing.assert_allclose(table, expected, rtol=1e-6)
    assert not np.array_equal(table, data.table(300, 8, "float32"))


def test_a_peer_that_cannot_even_begin_is_reported():
    class Broken:
        @staticmethod
        def entry(work):
            raise OSError("libgomp is missing")

    result = run.run_one(WORKS[0], {"torch": Broken}, rounds=1, pause=0)
    assert result["timings"]["torch"] == {"problem": "OSError: libgomp is missing"}
    assert result["ratios"] == {}
    assert run.problems({"contests": [result]}) == ["mean_grad_v2/300-8-zipf: torch: OSError: libgomp is missing"]


def test_nothing_is_loaded_that_was_not_asked_for():
    code = (
        "import sys, bench.run, bench.report, bench.pictures, bench.documents\n"
        "from bench import contestants; contestants.load([])\n"
        f"print(sorted({{*{[peer.module for peer in PEERS.values()]}, 'matplotlib'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=memory.FOLDER, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_missing_peers_are_found(monkeypatch):
    monkeypatch.setattr(contestants.util, "find_spec", lambda module: None if module == "fbgemm_gpu" else object())
    assert contestants.missing(PEERS) == ["fbgemm"]
