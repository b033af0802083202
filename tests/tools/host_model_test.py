#!/usr/bin/env python3
"""tools/host_model.py: its parts against numbers that are worked out by hand, what must hold of any
plan, and its options; docs/host_figures.md has the table that it gives without any.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
import host_model  # noqa: E402  (found in tools)
from host_model import Host, Link, Load  # noqa: E402

MODEL = host_model.read_model("deepseek_v3", None)
# Of DeepSeek-V3: a layer's attention with its norms; the routers, whose balancing bias is fp32.
ATTENTION_BYTES = 2 * (187_107_328 + 2 * 7168)
ROUTER_BYTES = 2 * 7168 * 256 + 4 * 256
HEAD_BYTES = 2 * 129280 * 7168
FP8_EXPERT = 3 * 2048 * 7168 + 4 * 3 * 16 * 56
FP8_DENSE = 3 * 18432 * 7168 + 4 * 3 * 144 * 56


class HostModel(unittest.TestCase):
    def test_a_step_takes_the_sum_or_the_longest_part(self) -> None:
        self.assertAlmostEqual(host_model.step_seconds((3.0, 2.0, 0.5), 1), 6.0)
        self.assertAlmostEqual(host_model.step_seconds((3.0, 2.0, 0.5), 2), 3.0)
        self.assertAlmostEqual(host_model.step_seconds((2.0, 2.0, 1.0), 2), 3.0)
        self.assertAlmostEqual(host_model.step_seconds((2.0, 2.0, 1.0), 3), 2.0)

    def test_attention_reads_weights_cache_and_head(self) -> None:
        """576 latent elements a token in bf16, in 61 layers, of which 58 have a router; the norm
        before the head."""
        load = Load(batch=10, micro_batches=1, context=1000)
        seconds = host_model.attention_seconds(MODEL, Host(bandwidth=1e9, flops=1e30), load)
        expected = (61 * (ATTENTION_BYTES + 10 * 1000 * 1152) + 58 * ROUTER_BYTES + 2 * 7168
                    + HEAD_BYTES)
        self.assertAlmostEqual(seconds * 1e9 / expected, 1)

    def test_attention_multiplies_with_weights_and_cache(self) -> None:
        """Of each token of the cache 128 heads take 576 products for a score and 512 for the sum."""
        load = Load(batch=32, context=4096)
        seconds = host_model.attention_seconds(MODEL, Host(bandwidth=1e30, flops=20e12), load)
        layers = 32 * (61 * (ATTENTION_BYTES / 2 + 4096 * 128 * 1088) + 58 * ROUTER_BYTES / 2)
        expected = 2 * (layers + 32 * (HEAD_BYTES / 2 + 7168)) / 20e12
        self.assertAlmostEqual(seconds / expected, 1)

    def test_grouped_heads_multiply_keys_and_values(self) -> None:
        """Qwen3-30B-A3B: 32 heads of 128, whose 4 keys and values are 2 KiB of a token's cache."""
        model = host_model.read_model("qwen3_30b_a3b", None)
        self.assertEqual((model.kv_products, model.kv_bytes), (32 * 2 * 128, 2 * 2 * 4 * 128))
        self.assertEqual((model.num_slots, model.num_dense, model.shared_bytes), (8, 0, 0))
        self.assertEqual(model.expert_bytes, 2 * 3 * 768 * 2048)

    def test_a_text_model_is_planned_like_itself_alone(self) -> None:
        config = json.loads((host_model.RELEASED / "deepseek_v3.json").read_text("utf-8"))
        text = dict(config, quantization_config=None)
        wrapped = {"model_type": "some_vl", "vision_config": {}, "text_config": text,
                   "quantization_config": config["quantization_config"]}
        self.assertEqual(vars(host_model.Model(wrapped)), vars(MODEL))

    def test_layers_with_a_window_attend_no_more(self) -> None:
        model = host_model.read_model("gpt_oss_20b", "int4")
        self.assertEqual(model.attended(4096), [128, 4096] * 12)
        self.assertEqual(model.attended(100), [100] * 24)
        self.assertEqual(MODEL.attended(4096), [4096] * 61)

    def test_experts_are_read_once_however_many_rows(self) -> None:
        """Of each layer an expert and the shared one; 3 layers have the dense MLP."""
        slow = Host(bandwidth=1e9, flops=1e30)
        seconds = host_model.expert_seconds(MODEL, slow, Load(batch=10**6), 1, 256)
        self.assertAlmostEqual(seconds * 1e9 / (58 * 2 * FP8_EXPERT + 3 * FP8_DENSE), 1)
        one = host_model.expert_seconds(MODEL, slow, Load(batch=1), 1, 1) * 1e9 - 3 * FP8_DENSE
        self.assertTrue(8.8 < one / (58 * FP8_EXPERT) < 9)

    def test_the_host_with_most_experts_takes_the_time(self) -> None:
        """256 experts over 3 hosts: one has 86."""
        slow = Host(bandwidth=1e9, flops=1e30)
        seconds = host_model.expert_seconds(MODEL, slow, Load(batch=10**6), 1, 3)
        self.assertAlmostEqual(seconds * 1e9 / (58 * 87 * FP8_EXPERT + 3 * FP8_DENSE), 1)

    def test_products_of_routed_shared_and_dense_rows(self) -> None:
        """5 attention hosts and 2 FFN hosts: one has the shared and dense rows of three."""
        host = Host(bandwidth=1e30, flops=2.0)  # One product a second.
        seconds = host_model.expert_seconds(MODEL, host, Load(batch=4), 5, 2)
        expected = (58 * (5 * 4 * 8 / 2 + 3 * 4) * 3 * 2048 * 7168
                    + 3 * 3 * 4 * 3 * 18432 * 7168)
        self.assertAlmostEqual(seconds / expected, 1)

    def test_a_way_is_as_long_as_that_of_the_busier_end(self) -> None:
        """4 tokens of 9 slots leave an attention host; two FFN hosts take half of the routed rows
        of eight attention hosts each, and the shared rows of four."""
        load, link = Load(batch=4), Link(bandwidth=1e6, latency=0.25)
        for ffn, rows in ((8, 36), (2, 8 * 4 * 8 // 2 + 4 * 4)):
            self.assertAlmostEqual(host_model.way_seconds(MODEL, link, load, 8, ffn),
                                   0.25 + rows * 14336 / 1e6)
        # Of a dense layer only one row of each token.
        self.assertAlmostEqual(
            host_model.ways_seconds(MODEL, link, load, 8, 8),
            58 * (0.25 + 36 * 14336 / 1e6) + 3 * (0.25 + 4 * 14336 / 1e6))

    def test_rows_of_a_pass_of_a_small_geometry(self) -> None:
        """2 micro-batches of 4 tokens: 8 rows of three arrays and 8 choices. An FFN host takes a
        micro-batch of each of 3 attention hosts at once: 108 slots of two arrays and 4 indices."""
        load = Load(batch=4, micro_batches=2)
        self.assertEqual(host_model.pass_bytes(MODEL, load, 3),
                         (8 * (3 * 14336 + 8 * 8), 108 * (2 * 14336 + 16)))

    def test_windows_of_a_small_geometry(self) -> None:
        """2 micro-batches of 4 tokens and 9 slots: 72 rows of 14,336 bytes in, 72 records of 14,352
        kept for each peer."""
        load = Load(batch=4, micro_batches=2)
        self.assertEqual(host_model.window_bytes(MODEL, load, 3, 5),
                         (72 * 14336 + 5 * 72 * 14352, 3 * (72 * 14336 + 72 * 14352)))

    def test_memory_holds_weights_cache_windows_and_rows(self) -> None:
        load = Load(batch=4, micro_batches=2, context=1000)
        windows = host_model.window_bytes(MODEL, load, 3, 5)
        passes = host_model.pass_bytes(MODEL, load, 3)
        attention, ffn = host_model.memory_bytes(MODEL, load, 3, 5)
        self.assertAlmostEqual(
            attention, MODEL.other_bytes + 8 * 1000 * 61 * 1152 + windows[0] + passes[0])
        self.assertEqual(ffn, 58 * (52 + 1) * FP8_EXPERT + 3 * FP8_DENSE + windows[1] + passes[1])

    def test_plans_fit_and_a_better_link_is_never_slower(self) -> None:
        speeds = []
        for gbit in (1, 10, 100, 1000):
            found = host_model.plan(MODEL, Host(), Link(gbit * 1e9 / 8), Load(), 32)
            self.assertEqual(found.num_attention + found.num_ffn, 32)
            needed = host_model.memory_bytes(MODEL, Load(), found.num_attention, found.num_ffn)
            self.assertLessEqual(max(needed), Host().memory)
            speeds.append(found.tokens_per_second)
        self.assertEqual(speeds, sorted(speeds))
        with self.assertRaisesRegex(
                ValueError, "^no room: attention hosts need 42 GiB, FFN hosts 613$"):
            host_model.plan(MODEL, Host(), Link(1e9), Load(), 2)
        with self.assertRaisesRegex(ValueError, "at most 1024 attention hosts and 256 FFN hosts"):
            host_model.plan(MODEL, Host(), Link(1e9), Load(), 1281)

    def test_every_release_can_be_planned(self) -> None:
        for path in sorted(host_model.RELEASED.glob("*.json")):
            with self.subTest(path.stem):
                model = host_model.read_model(path.stem, "int4")
                found = host_model.plan(model, Host(), Link(1e10), Load(), 16)
                self.assertTrue(0 < found.tokens_per_second < math.inf)


class Options(unittest.TestCase):
    """The program as a planner calls it. Oracle of the refusals: their words."""

    def run_it(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-B", TOOLS / "host_model.py", *arguments],
                              capture_output=True, text=True, check=False)

    def test_the_page_has_its_table_and_only_update_writes_it(self) -> None:
        self.assertEqual(self.run_it("--check").returncode, 0)
        before = host_model.PAGE.stat().st_mtime_ns
        done = self.run_it()
        self.assertEqual(host_model.PAGE.stat().st_mtime_ns, before)
        self.assertIn(host_model.BEGIN + done.stdout + host_model.END,
                      host_model.PAGE.read_text("utf-8"))

    def test_a_table_has_a_row_for_each_number_of_hosts(self) -> None:
        done = self.run_it("--model", "mixtral_8x7b", "--hosts", "2", "4", "16", "--gbits", "25",
                           "--memory-gib", "100", "--batch", "8", "--micro-batches", "3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines()]
        self.assertEqual({len(cells) for cells in rows}, {7})
        self.assertEqual([cells[:2] for cells in rows[2:]], [["2", "25"], ["4", "25"], ["16", "25"]])
        model = host_model.read_model("mixtral_8x7b", None)
        found = host_model.plan(model, Host(memory=100 * 2**30), Link(25e9 / 8),
                                Load(batch=8, micro_batches=3), 16)
        self.assertEqual(rows[-1][2], f"{found.num_attention} + {found.num_ffn}")
        self.assertEqual(rows[-1][3].split()[0], f"{found.tokens_per_second:,.0f}")
        self.assertEqual(rows[-1][4], f"{3e3 * found.seconds:,.0f}")

    def test_hosts_without_room_are_said_in_their_row(self) -> None:
        done = self.run_it("--hosts", "2", "4", "--gbits", "10", "25")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 2 | 10 | no room: attention hosts need 42 GiB, FFN hosts 613 |",
                      done.stdout)

    def test_a_config_of_ones_own(self) -> None:
        config = json.loads(host_model.MODEL.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "config.json")
            for change, words in (({}, ""),
                                  ({"model_type": "llama"}, "model_type is llama; there are "),
                                  ({"first_k_dense_replace": 61}, "has no layer with experts"),
                                  ({"vocab_size": None}, "config.json has no vocab_size"),
                                  ({"quantization_config": {"quant_method": "gptq"}},
                                   "quant_method is gptq; say --weights bf16, fp8, int8, int4")):
                changed = {key: value for key, value in (config | change).items()
                           if value is not None}
                path.write_text(json.dumps(changed), "utf-8")
                done = self.run_it("--model", folder, "--hosts", "8")
                self.assertEqual(done.returncode, 2 if words else 0, done.stderr)
                self.assertIn(words, done.stderr)

    def test_what_cannot_be_is_refused(self) -> None:
        for arguments, words in (
                (("--model", "deepseek_v5"), "deepseek_v5 is no config.json that can be read"),
                (("--model", "deepseek_v5"), "or one of deepseek_moe_16b, "),
                (("--hosts", "1"), "argument --hosts: 1 must be from 2 on"),
                (("--gbits", "0"), "argument --gbits: 0 must be above 0"),
                (("--gbits", "nan"), "argument --gbits: nan must be above 0"),
                (("--batch", "many"), "argument --batch: invalid integer value: 'many'"),
                (("--micro-batches", "65"), "65 must be from 1 to 64"),
                (("--context", "200000"), "--context is 200000; max_position_embeddings of "
                                          "deepseek_v3 is 163840"),
                (("--update", "--hosts", "4"), "--update and --check take no other option")):
            done = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
