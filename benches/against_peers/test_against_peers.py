"""Tests of the plan: which peers a case has. `python3 -m unittest discover -s benches/against_peers`; without PyTorch, all but one."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import types
import unittest
from pathlib import Path
from typing import Any

import peers
import timing
from cases import Case, NoPeer, UnknownCase
from lazy import load, torch
from peers import COMPILED, Peer, peers_of

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"


def script() -> Any:
    """`__main__.py` as a module."""
    spec = importlib.util.spec_from_file_location("against_peers", HERE / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = script()


def committed() -> list[tuple[str, str]]:
    """All cases of all results."""
    documents = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*/*.json")))
    return list(dict.fromkeys(pair for document in documents for pair in SCRIPT.cases_in(document)))


class Names(unittest.TestCase):
    def test_words_of_a_name(self) -> None:
        case = Case("op", "batch=64 n=2^28 p=0.1 8x16 128x1 column-major 8 vectors pages of 16 as in text float16 to int8")
        self.assertEqual((case.sizes("batch", "n"), case.number("p", 0.0)), ((64, 1 << 28), 0.1))
        self.assertEqual((case.shape(), case.shape()), ((8, 16), (128, 1)))
        self.assertEqual((case.before("vectors", 1), case.after("pages of", 0)), (8, 16))
        self.assertTrue(case.flag("as in text") and case.flag("column-major"))
        self.assertEqual((case.dtype(), case.flag("to"), case.dtype(), case.dtype("none")), ("float16", True, "int8", "none"))
        case.all_read()

    def test_sizes_of_products(self) -> None:
        self.assertEqual(Case("op", "4096^3").product(), (4096, 4096, 4096))
        self.assertEqual(Case("op", "m=1 n=2 k=3").product(), (1, 2, 3))
        with self.assertRaises(UnknownCase):
            Case("op", "m=1 n=2").product()

    def test_what_is_not_understood_is_not_timed(self) -> None:
        for op, case in (("gemm", "m=8 n=8 k=8 NN bf16 offset=1"), ("row.softmax", "rows=8 d=8 float32 causal"), ("ew.fancy", "n=8")):
            with self.assertRaises(UnknownCase, msg=f"{op} {case}"):
                peers_of(op, case)


class Plans(unittest.TestCase):
    def test_every_committed_case_has_peers_or_a_reason(self) -> None:
        cases = committed()
        self.assertGreater(len(cases), 400)
        planned, others = SCRIPT.plan(cases)
        self.assertEqual([line for line in others if not line.startswith("no peer: ")], [])
        self.assertEqual(len(planned) + len(others), len(cases))
        for op, case, found in planned:
            names = [peer.name for peer in found]
            self.assertTrue(names, f"{op} {case}")
            self.assertEqual(len(set(names)), len(names), f"{op} {case}: {names}")

    def test_peers_that_results_name_are_those_of_the_plan(self) -> None:
        for name in ("attention-peers", "operators-peers", "memory-peers"):
            rows = json.loads((RESULTS / f"2026-11-29-h200/{name}.json").read_text(encoding="utf-8"))["rows"]
            for row in rows:
                try:
                    found = [peer.name for peer in peers_of(row["op"], row["case"])]
                except UnknownCase:
                    # Cases that peers alone were timed on, by other names.
                    continue
                self.assertIn(row["peer"], found, f"{row['op']} {row['case']}")

    def test_an_operator_has_peers_or_a_reason_and_not_both(self) -> None:
        self.assertEqual(set(peers.OPS) & set(peers.WITHOUT), set())
        with self.assertRaises(NoPeer):
            peers_of("gemm.mxfp8", "m=4096 n=4096 k=4096 bf16")

    def test_list_needs_no_torch(self) -> None:
        code = "import sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
        results = RESULTS / "2026-11-29-h200"
        call = [sys.executable, "-c", code, str(HERE), str(results / "operators.json"), "--list", "--only", "attn.fwd,gemm.mxfp8"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("attn.fwd | b=8 h=32 s=2048 d=64 causal bf16: flash4, sdpa.flash2, sdpa.cudnn\n", done.stdout)
        self.assertIn("no peer: gemm.mxfp8 | m=4096 n=4096 k=4096 bf16: ", done.stderr)
        self.assertNotIn("gemm.bf16", done.stdout)

    def test_operators_are_chosen_by_how_they_begin(self) -> None:
        pairs = [("attn.fwd", "a"), ("attn.bwd", "b"), ("gemm", "c"), ("gemm.bf16", "d")]
        self.assertEqual(SCRIPT.chosen(pairs, "attn,gemm.bf16"), [pairs[0], pairs[1], pairs[3]])
        self.assertEqual(SCRIPT.chosen(pairs, ""), pairs)


class Gpu:
    """What timing uses of PyTorch, on a device whose clock goes on when something is launched. A tensor is a number, its size."""

    uint8, cuda = None, property(lambda self: self)

    def __init__(self) -> None:
        self.now = 0.0

    def empty(self, size: int, **_: Any) -> Any:
        return types.SimpleNamespace(zero_=lambda: size)

    def is_tensor(self, x: Any) -> bool:
        return hasattr(x, "numel")

    def get_device_properties(self, _: int) -> Any:
        return types.SimpleNamespace(L2_cache_size=100)

    def synchronize(self) -> None:
        pass

    def _sleep(self, cycles: int) -> None:
        self.now += 1000.0

    def Event(self, enable_timing: bool) -> Any:
        event = types.SimpleNamespace(at=0.0)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event


class Rounds(unittest.TestCase):
    def setUp(self) -> None:
        self.gpu, self.made, self.failures = Gpu(), 0, []
        self.addCleanup(setattr, timing, "torch", timing.torch)
        timing.torch = self.gpu

    def make(self) -> tuple[Any, ...]:
        self.made += 1
        return self.made, types.SimpleNamespace(numel=lambda: 15, element_size=lambda: 4)

    def peer(self, name: str, took: float, fails_at: int = 0) -> Peer:
        used: list[int] = []

        def call(number: int, _: Any) -> None:
            used.append(number)
            if len(used) == fails_at:
                raise ValueError("two\nlines")
            self.gpu.now += took + (number - 1) / 10

        return Peer(name, call, self.make)

    def time(self, *wanted: Peer) -> Any:
        return timing.time_in_turns(list(wanted), 0.15, lambda peer, error: self.failures.append((peer.name, SCRIPT.described(error))))

    def test_medians_and_minima_of_launches_on_rotated_tensors(self) -> None:
        [(_, ms, least), (_, ms_of_slow, _)] = self.time(self.peer("a", 2.0), self.peer("b", 5.0))
        # 60 bytes a set, and 200 are to be exceeded, once for both.
        self.assertEqual(self.made, 4)
        self.assertTrue(2.0 <= least < 2.05 < ms < 2.25 and 5.05 < ms_of_slow < 5.25, f"{least} {ms} {ms_of_slow}")

    def test_who_fails_is_out_and_the_others_go_on(self) -> None:
        timed = self.time(self.peer("at once", 1.0, 1), self.peer("later", 1.0, 40), self.peer("never", 1.0))
        self.assertEqual([peer.name for peer, _, _ in timed], ["never"])
        self.assertEqual(self.failures, [("at once", "ValueError: two"), ("later", "ValueError: two")])

    def test_a_lost_device_ends_all(self) -> None:
        def lost() -> None:
            raise RuntimeError("illegal address")

        peer = self.peer("a", 1.0, 1)
        self.gpu.synchronize = lost
        with self.assertRaises(timing.DeviceLost):
            self.time(peer)

    def test_rounds_go_forth_and_back_from_another_beginning(self) -> None:
        self.assertEqual(["".join(timing.order(list("abc"), number)) for number in range(4)], ["abc", "cba", "bca", "bac"])


def small(name: str) -> str:
    """A case with sizes that a CPU can do, odd ones odd."""
    shrink = lambda found: str(256 - int(found[0]) % 2) if int(found[0]) >= 512 else found[0]  # noqa: E731
    return re.sub(r"\d+", shrink, re.sub(r"\b2\^\d+", "2^16", name))


@unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
class Calls(unittest.TestCase):
    # What PyTorch does on GPUs alone, or not with such sizes elsewhere.
    ON_GPU = ("gemm.to_f32", "gemm.fp8", "gemm.fp8_blocks", "optim.adamw", "optim.adamw_master")

    def test_pytorch_takes_the_calls(self) -> None:
        load()
        torch.manual_seed(0)
        peers.DEVICE = "cpu"
        for op, case in dict.fromkeys((op, small(case)) for op, case in committed()):
            try:
                found = peers_of(op, case)
            except NoPeer:
                continue
            for peer in found:
                if peer.name == "torch" and op not in self.ON_GPU:
                    with self.subTest(op=op, case=case):
                        peer.call(*peer.make())
        self.assertIn(COMPILED, [peer.name for peer in peers_of("ew.relu", "n=64 float32")])


if __name__ == "__main__":
    unittest.main()
