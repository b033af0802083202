#!/usr/bin/env python3
"""tools/host_model.py: its parts against numbers that are worked out by hand, and what must hold
of any plan; docs/hosts.md has the table that it gives.
"""
import json
import pathlib
import subprocess
import sys
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
import host_model  # noqa: E402  (found in tools)
from host_model import Host, Link, Load  # noqa: E402

MODEL = host_model.Model(json.loads(host_model.MODEL.read_text("utf-8")))


class HostModel(unittest.TestCase):
    def test_a_layer_takes_the_sum_or_the_longest_part(self) -> None:
        self.assertAlmostEqual(host_model.layer_seconds((3.0, 2.0, 0.5), 1), 6.0)
        self.assertAlmostEqual(host_model.layer_seconds((3.0, 2.0, 0.5), 2), 3.0)
        self.assertAlmostEqual(host_model.layer_seconds((2.0, 2.0, 1.0), 2), 3.0)
        self.assertAlmostEqual(host_model.layer_seconds((2.0, 2.0, 1.0), 3), 2.0)

    def test_attention_reads_weights_and_cache(self) -> None:
        """576 latent elements a token in bf16; weights of 187,107,328 elements a layer."""
        load = Load(batch=10, micro_batches=1, context=1000)
        seconds = host_model.attention_seconds(MODEL, Host(bandwidth=1e9, flops=1e15), load)
        self.assertAlmostEqual(seconds, (2 * 187_107_328 + 10 * 1000 * 1152) / 1e9)

    def test_experts_are_read_once_however_many_rows(self) -> None:
        slow = Host(bandwidth=1e9, flops=1e30)
        seconds = host_model.expert_seconds(MODEL, slow, Load(batch=10**6), 1, 256)
        self.assertAlmostEqual(seconds, MODEL.expert_bytes / 1e9)
        one = host_model.expert_seconds(MODEL, slow, Load(batch=1), 1, 1)
        self.assertTrue(7.8 < one * 1e9 / MODEL.expert_bytes < 8)

    def test_a_way_is_as_long_as_that_of_the_busier_end(self) -> None:
        load, link = Load(batch=4), Link(bandwidth=1e6, latency=0.25)
        for ffn, rows in ((8, 32), (2, 32 * 4)):
            self.assertAlmostEqual(host_model.way_seconds(MODEL, link, load, 8, ffn),
                                   0.25 + rows * 14336 / 1e6)

    def test_windows_of_a_small_geometry(self) -> None:
        """2 micro-batches of 4 tokens and 8 experts: 64 rows of 14,336 bytes in, twice 64 records
        of 14,352 kept for each peer."""
        load = Load(batch=4, micro_batches=2)
        self.assertEqual(host_model.window_bytes(MODEL, load, 3, 5),
                         (64 * 14336 + 5 * 128 * 14352, 3 * (64 * 14336 + 128 * 14352)))

    def test_plans_fit_and_a_better_link_is_never_slower(self) -> None:
        speeds = []
        for gbit in (1, 10, 100, 1000):
            found = host_model.plan(MODEL, Host(), Link(gbit * 1e9 / 8), Load(), 32)
            self.assertEqual(found.num_attention + found.num_ffn, 32)
            self.assertLessEqual(MODEL.expert_bytes_of_all / found.num_ffn, Host().memory)
            speeds.append(found.tokens_per_second)
        self.assertEqual(speeds, sorted(speeds))
        with self.assertRaisesRegex(ValueError, "2 hosts have no room for the experts"):
            host_model.plan(MODEL, Host(), Link(1e9), Load(), 2)

    def test_the_page_has_its_table(self) -> None:
        subprocess.run([sys.executable, "-B", TOOLS / "host_model.py", "--check"], check=True)


if __name__ == "__main__":
    unittest.main()
