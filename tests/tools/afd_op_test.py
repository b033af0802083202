#!/usr/bin/env python3
"""afd-op as a person or a program in another language uses it.

    afd_op_test.py AFD_OP        path of the program

What the operators compute is compared in tests/golden; here: every record can be shown, files go
in and out, and what is wrong is said in one line with a defined exit code.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import mla_cases  # noqa: E402  (found beside the NumPy decoder, like the next three)
import routing_cases  # noqa: E402
import safetensors_np  # noqa: E402
import two_phase_np  # noqa: E402

AFD_OP = ""
KINDS = {"int", "float", "bool", "ints", "string"}
ROLES = {"input", "output", "in place"}


def afd_op(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([AFD_OP, *arguments], capture_output=True, text=True, check=False)


def names() -> list[str]:
    return [line.split()[0] for line in afd_op("list").stdout.splitlines()]


class Records(unittest.TestCase):
    def test_list_names_every_operator_once_in_order(self):
        listed = names()
        self.assertGreaterEqual(len(listed), 11)
        self.assertEqual(listed, sorted(set(listed)))

    def test_describe_shows_every_record_in_both_forms(self):
        for name in names():
            record = json.loads(afd_op("describe", name, "--json").stdout)
            text = afd_op("describe", name).stdout
            self.assertEqual(record["name"], name)
            self.assertTrue(record["formula"] and record["source"] and record["tensors"])
            self.assertIn(f"  reference: {record['reference'] or 'none'}\n", text)
            for attribute in record["attributes"]:
                self.assertIn(attribute["kind"], KINDS)
                self.assertTrue(attribute["meaning"], f"{name} {attribute['name']}")
                self.assertIn("  " + attribute["name"], text)
                if attribute["default"]:
                    self.assert_default_is_allowed(name, attribute)
            for tensor in record["tensors"]:
                self.assertIn(tensor["role"].removesuffix(", optional"), ROLES)
                self.assertTrue(tensor["dtypes"] and tensor["shape"].startswith("["))
                self.assertIn("  " + tensor["name"], text)

    def assert_default_is_allowed(self, name: str, attribute: dict) -> None:
        default = json.loads(attribute["default"])
        if attribute["values"]:
            text = default if isinstance(default, str) else json.dumps(default)
            self.assertIn(text, attribute["values"], f"{name} {attribute['name']}")


class Runs(unittest.TestCase):
    """moe_init_routing_v3 stands for all: 5 tokens, 2 picks of 4 experts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        random = np.random.default_rng(1)
        self.x = (np.arange(5)[:, None] + random.random((5, 8)) / 10).astype(np.float32)
        self.ids = random.integers(0, 4, (5, 2)).astype(np.int32)
        self.write({"x": ("F32", self.x), "expert_idx": ("I32", self.ids)})

    def write(self, tensors: dict) -> None:
        safetensors_np.write(self.folder / "in.safetensors", tensors)

    def run_it(self, attributes, *further: str) -> subprocess.CompletedProcess:
        text = attributes if isinstance(attributes, str) else json.dumps(attributes)
        return afd_op("run", "moe_init_routing_v3", "--in", str(self.folder / "in.safetensors"),
                      "--out", str(self.folder / "out.safetensors"), "--attrs", text, *further)

    def assert_refused(self, done: subprocess.CompletedProcess, words: str) -> None:
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse((self.folder / "out.safetensors").exists())

    def test_rows_come_sorted_by_expert_from_both_paths(self):
        order = np.argsort(self.ids.reshape(-1), kind="stable")
        for further in ((), ("--reference",)):
            done = self.run_it({"expert_num": 4, "expert_tokens_num_flag": True}, *further)
            self.assertEqual(done.returncode, 0, done.stderr)
            out = safetensors_np.read(self.folder / "out.safetensors")
            np.testing.assert_array_equal(out["expanded_x"], self.x[order // 2])
            np.testing.assert_array_equal(out["expert_tokens_count_or_cumsum"],
                                          np.cumsum(np.bincount(self.ids.reshape(-1), minlength=4)))

    def test_a_place_that_cannot_be_written_is_said(self):
        # Below a file: root may write anywhere else.
        place = str(self.folder / "in.safetensors" / "out")
        done = afd_op("run", "moe_init_routing_v3", "--in", str(self.folder / "in.safetensors"),
                      "--out", place, "--attrs", '{"expert_num": 4}')
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{place}: cannot be written: Not a directory", done.stderr)

    def test_an_unknown_operator_is_refused(self):
        done = afd_op("run", "no_such", "--out", str(self.folder / "out.safetensors"))
        self.assert_refused(done, "there is no operator no_such; see: afd-op list")

    def test_an_unknown_attribute_is_refused_with_those_there_are(self):
        self.assert_refused(self.run_it({"expert_nmu": 4}),
                            "there is no attribute expert_nmu; there are active_num, ")

    def test_a_slip_gets_a_suggestion(self):
        for arguments, words in (
                (("describe", "moe_init_routing_v4"), "; did you mean moe_init_routing_v3?"),
                (("descrbe",), "there is no command descrbe; there are list, describe, "),
                (("bogus",), "there is no command bogus; there are list, describe, "),
                ((), "a command is missing; there are list, describe, ")):
            done = afd_op(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        self.assert_refused(self.run_it({"expert_nmu": 4}), "; did you mean expert_num?")

    def test_a_slip_in_an_option_gets_a_suggestion(self):
        for further, words in (
                (("--refrence",), "afd-op: there is no option --refrence; there are --help, --in, "
                                  "--out, --attrs, --reference, --numeric-class, --threads, "
                                  "--memory-max, --repeat; did you mean --reference?"),
                (("--numeric-clas", "portable"), "; did you mean --numeric-class?"),
                (("--numeric-clas=portable",), "there is no option --numeric-clas; there are "),
                (("--nonsense",), "--memory-max, --repeat\n"),
                (("portable",), "afd-op: unexpected argument portable\n")):
            self.assert_refused(self.run_it({"expert_num": 4}, *further), words)
        # One that must be there, misspelt, is not only missing.
        for arguments, words in (
                (("run", "moe_init_routing_v3", "--outt", "x"), "; did you mean --out?"),
                (("moe-plan", "--hiden", "64"), "; did you mean --hidden?"),
                (("describe", "moe_gating_top_k", "--jsn"), "; did you mean --json?"),
                (("--hlep",), "; did you mean --help?")):
            self.assert_refused(afd_op(*arguments), words)
        # Without a slip it is missing.
        self.assertIn("afd-op: --out must be given (see", afd_op("run", "moe_init_routing_v3").stderr)

    def test_exit_codes_are_those_of_the_help(self):
        for arguments, code in (((), 2), (("run",), 2), (("list", "--nonsense"), 2),
                                (("--help",), 0), (("run", "--help"), 0)):
            self.assertEqual(afd_op(*arguments).returncode, code, arguments)
        done = self.run_it({"expert_num": 4}, "--threads", "0")
        self.assertEqual(done.returncode, 2)

    def test_the_class_is_asked_for_and_reported(self):
        done = self.run_it({"expert_num": 4}, "--numeric-class", "portable")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "moe_init_routing_v3: numeric class portable\n"))
        done = self.run_it({"expert_num": 4}, "--reference")
        self.assertEqual(done.stdout, "moe_init_routing_v3: reference\n")
        (self.folder / "out.safetensors").unlink()
        self.assert_refused(self.run_it({"expert_num": 4}, "--numeric-class", "vax"),
                            "numeric_class is vax; allowed are portable")

    def test_repeating_prints_median_bytes_and_rates(self):
        done = self.run_it({"expert_num": 4}, "--repeat", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[1], r"^median of 3: [\d.]+ us$")
        # x and expanded_x, the ids and the index.
        num_bytes = 4 * (5 * 8 + 10 * 8 + 5 * 2 + 10)
        self.assertRegex(lines[2], rf"^{num_bytes} bytes: [\d.]+ GB/s, \d+% of copying memory ")

    def test_repetitions_have_a_limit(self):
        done = self.run_it({"expert_num": 4}, "--repeat", "1000001")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--repeat: '1000001' must be a whole number from 0 to ", done.stderr)
        self.assertFalse((self.folder / "out.safetensors").exists())

    def test_memory_has_a_limit(self):
        self.assert_refused(self.run_it({"expert_num": 4}, "--memory-max", "100"),
                            "outputs and workspace need ")
        self.assert_refused(self.run_it({"expert_num": 4, "drop_pad_mode": 1,
                                         "expert_capacity": 2 ** 28}, "--memory-max", "999999"),
                            "expanded_x [4, 268435456, 8] 34359738368")

    def test_a_message_repeats_no_whole_input(self):
        done = self.run_it({"expert_num": 4, "quant_mode": "x" * 5000})
        self.assert_refused(done, "...; it must be an integer")
        self.assertLess(len(done.stderr), 300)

    def test_a_scalar_is_no_vector(self):
        self.write({"x": ("F32", self.x), "expert_idx": ("I32", self.ids),
                    "scale": ("F32", np.float32(1).reshape(()))})
        self.assert_refused(self.run_it({"expert_num": 4}), "scale is a scalar; it must have the "
                                                            "shape [N] | [1]")

    def test_a_missing_attribute_is_named(self):
        self.assert_refused(self.run_it({}), "attribute expert_num is missing; it has no default")

    def test_an_attribute_of_another_kind_is_refused(self):
        self.assert_refused(self.run_it({"expert_num": "four"}),
                            'expert_num is "four"; it must be an integer')

    def test_integers_that_64_bits_do_not_hold_are_refused(self):
        # The first would be -1, the default of active_num.
        for value in (2 ** 64 - 1, 2 ** 63, 2 ** 64, -2 ** 63 - 1):
            done = self.run_it({"expert_num": 4, "active_num": value})
            self.assert_refused(done, "moe_init_routing_v3: active_num is ")
            self.assertIn("; it must be an integer from -2^63 to 2^63 - 1", done.stderr)
        self.assert_refused(self.run_it({"expert_num": 4, "active_expert_range": [0, 2 ** 64 - 1]}),
                            "active_expert_range is [0,18446744073709551615]; it must be a list of "
                            "integers from -2^63 to 2^63 - 1")

    def test_a_value_outside_its_choices_is_refused(self):
        self.assert_refused(self.run_it({"expert_num": 4, "quant_mode": 5}),
                            "moe_init_routing_v3: quant_mode is 5; allowed are -1, 0, 1")

    def test_attributes_that_are_no_json_are_refused(self):
        self.assert_refused(self.run_it("{expert_num: 4}"),
                            "moe_init_routing_v3: the attributes are no JSON: {expert_num: 4}")
        self.assert_refused(self.run_it("[4]"), "the attributes must be a JSON object")

    def test_an_attribute_that_stands_twice_is_refused(self):
        self.assert_refused(self.run_it('{"expert_num": 4, "quant_mode": 1, "expert_num": 5}'),
                            "moe_init_routing_v3: attribute expert_num is given twice")

    def test_an_output_is_no_input(self):
        self.write({"x": ("F32", self.x), "expert_idx": ("I32", self.ids),
                    "expanded_x": ("F32", self.x)})
        self.assert_refused(self.run_it({"expert_num": 4}), "moe_init_routing_v3: expanded_x is an "
                                                            "output; inputs are x, expert_idx, ")

    def test_files_of_numpy_are_called_by_their_name(self):
        for save, words in ((lambda path: np.savez(path, x=self.x), "this is a zip archive"),
                            (lambda path: np.save(path, self.x), "this is a NumPy array (.npy)")):
            with (self.folder / "in.safetensors").open("wb") as file:
                save(file)
            done = self.run_it({"expert_num": 4})
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)

    def test_an_unknown_tensor_is_refused_with_those_there_are(self):
        self.write({"x": ("F32", self.x), "expert_ids": ("I32", self.ids)})
        self.assert_refused(self.run_it({"expert_num": 4}),
                            "there is no input tensor expert_ids; there are x, expert_idx, ")

    def test_a_missing_tensor_is_named(self):
        self.write({"x": ("F32", self.x)})
        self.assert_refused(self.run_it({"expert_num": 4}),
                            "moe_init_routing_v3: expert_idx is missing; it must be [N, K]")

    def test_a_wrong_shape_is_shown_with_what_it_must_be(self):
        self.write({"x": ("F32", self.x[:4]), "expert_idx": ("I32", self.ids)})
        self.assert_refused(self.run_it({"expert_num": 4}), "must be [N, K] with N = 4 (x)")

    def test_a_missing_file_has_its_own_exit_code(self):
        (self.folder / "in.safetensors").unlink()
        done = self.run_it({"expert_num": 4})
        self.assertEqual(done.returncode, 1)
        self.assertIn("in.safetensors", done.stderr)


class Repetitions(unittest.TestCase):
    """Goal: what an operator changes in place is for each repetition as it was given.

    Method: an operator that refuses what it has left, since all blocks are done then, and one that
    goes on from there; once, and with repetitions. Oracle: the same file.
    """

    def test_of_operators_that_change_their_inputs(self):
        payload, scheduler = self.payload(), next(routing_cases.scheduler_cases())[:3]
        for call, further in ((payload, ()), (payload, ("--reference",)), (scheduler, ())):
            with self.subTest(name=call[0], further=further):
                once = self.result(*call, *further)
                self.assertEqual(self.result(*call, *further, "--repeat", "3"), once)

    @staticmethod
    def payload() -> tuple[str, dict, dict]:
        name, tensors, attributes = next(
            case for case in two_phase_np.dispatch_cases("few", 7, "copy", "F32")
            if case[0].startswith("two_phase_payload"))
        keys = (attributes["num_ranks"], attributes["num_local_experts"])
        return name, {**tensors, "done": ("I64", np.zeros(keys, np.int64))}, attributes

    def result(self, name: str, tensors: dict, attributes: dict, *further: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            given, result = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
            safetensors_np.write(given, tensors)
            done = afd_op("run", name.split(".")[0], "--in", str(given), "--out", str(result),
                          "--attrs", json.dumps(attributes), *further)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("median of 3: " in done.stdout, "--repeat" in further)
            return result.read_bytes()


class OutputsThatAreOff(unittest.TestCase):
    """Goal: an output that is switched off is not in the file, whichever operator and path it is;
    one that is on is, even without a row; and the switch changes no other output.

    Method: the same call twice, on and off, for one operator of each kind: routing, MLA, windows.
    Oracle: the outputs of the operator's record for the call with all of them on, the names that
    docs/specification.md calls optional for the other, and the bytes of the first call.
    """

    def outputs(self, operator: str, attributes: dict, tensors: dict, *further: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            given, result = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
            safetensors_np.write(given, tensors)
            done = afd_op("run", operator, "--in", str(given), "--out", str(result),
                          "--attrs", json.dumps(attributes), *further)
            self.assertEqual(done.returncode, 0, done.stderr)
            return safetensors_np.read(result, widen=False)

    def assert_switches(self, call: tuple[str, dict, dict], change: dict, off: set[str],
                        others: set[str] = frozenset()) -> None:
        """`change` of the attributes turns `off` off; it may change the bytes of `others`."""
        operator, attributes, tensors = call
        record = json.loads(afd_op("describe", operator, "--json").stdout)
        all_names = {tensor["name"] for tensor in record["tensors"]
                     if tensor["role"].startswith("output")
                     or tensor["role"].startswith("in place") and tensor["name"] in tensors}
        for further in ((), ("--reference",)):
            with self.subTest(operator=operator, change=change, further=further):
                on = self.outputs(operator, attributes, tensors, *further)
                without = self.outputs(operator, attributes | change, tensors, *further)
                self.assertEqual(set(on), all_names)
                self.assertEqual(set(without), all_names - off)
                for name in set(without) - others:
                    self.assertEqual(without[name].tobytes(), on[name].tobytes(), name)

    def test_of_moe_init_routing_v3(self):
        random = np.random.default_rng(2)
        attributes = {"expert_num": 4, "quant_mode": 1, "expert_tokens_num_flag": True}
        for num_tokens in (5, 0):
            call = ("moe_init_routing_v3", attributes, {
                "x": ("F32", random.random((num_tokens, 8)).astype(np.float32)),
                "expert_idx": ("I32", random.integers(0, 4, (num_tokens, 2)).astype(np.int32))})
            self.assert_switches(call, {"expert_tokens_num_flag": False},
                                 {"expert_tokens_count_or_cumsum"})
            self.assert_switches(call, {"quant_mode": -1}, {"expanded_scale"}, {"expanded_x"})

    def test_of_mla_prolog_v3(self):
        call = mla_cases.prolog_case("211", "PA_BSND", True, 3)
        self.assert_switches(call, {"query_norm_flag": False},
                             {"query_norm", "dequant_scale_q_norm"})

    def test_of_ffn_worker_batching(self):
        name, tensors, attributes, _ = next(case for case in routing_cases.batching_cases()
                                            if case[2]["token_dtype"] == 2)
        call = (name.split(".")[0], attributes, tensors)
        self.assert_switches(call, {"token_dtype": 1}, {"dynamic_scale"}, {"y"})


class MoePlan(unittest.TestCase):
    LIMITS = {"hidden": 2048, "intermediate": 1408, "experts": 64, "top-k": 6, "shared": 2,
              "tokens": 4096, "ranks": 4, "row-fraction": 0.25}

    @staticmethod
    def rows(done: subprocess.CompletedProcess) -> list[list[str]]:
        return [[cell.strip(" `") for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines()[2:] if line.startswith("|")]

    def plan(self, **changed) -> subprocess.CompletedProcess:
        limits = self.LIMITS | {name.replace("_", "-"): value for name, value in changed.items()}
        return afd_op("moe-plan", *(f"--{name}={value}" for name, value in limits.items()))

    def test_every_composition_has_its_bytes_or_its_reason(self):
        rows = self.rows(self.plan())
        self.assertEqual(len(rows), 18)
        found = {(row[0], row[1]): row[2:] for row in rows}
        self.assertIn("takes batched", found["local", "batched_bf16"][0])
        self.assertEqual(found["local_batched", "batched_bf16"][5], "")
        dispatch, driver, worst, bounded, of_a_rank = map(
            int, found["local_batched", "batched_bf16"][:5])
        self.assertEqual(worst, dispatch + driver)
        self.assertLess(bounded, worst * 0.26)
        # 66 experts with 4096 places of 4096 bytes, and for every slot 4 bytes of index.
        self.assertEqual(dispatch, 66 * 4096 * 4096 + 4096 * 8 * 4 + 66 * 4 // 64 * 64 + 64)
        self.assertEqual(of_a_rank, 4096 * (6 + 2))
        # The rows are in the windows; the driver has two tables of 66 entries.
        self.assertEqual(found["afd_window", "grouped_bf16"],
                         ["0", "1408", "1408", "", str(of_a_rank), str(self.windows(4096))])

    @staticmethod
    def windows(returned: int) -> int:
        """Four stripes with descriptors and rows of 4096 bytes, a window with flags and results."""
        def whole(size: int) -> int:
            return -(-size // 512) * 512
        slots = 4096 * (6 + 2)
        return 4 * (whole(4 * (2 + slots)) + slots * 4096) + whole(4 * slots) + slots * returned

    def test_parts_between_processes_have_windows_or_segments(self):
        def shared(**changed) -> dict[str, str]:
            rows = self.rows(self.plan(**changed))
            return {row[0]: row[7] for row in rows if row[1] == "grouped_bf16" and len(row) == 8}
        # The routing weight behind a result of 4096 bytes takes another 512.
        plain = shared()
        self.assertEqual(plain["afd_window_ffn_router"], str(self.windows(4096 + 512)))
        # Each row once, two blocks of 1024 tokens of results for each of four ranks, and the counts:
        # four blocks of 16 experts and 2 shared ones, in whole lines.
        rows = 4096 * 8 * 4096 + 4 * 2 * 1024 * 8 * 4096
        self.assertEqual(int(plain["afd_two_phase"]) - rows, 4 * (-(-4 * 4 * 18 // 128) * 128))
        narrow = shared(dispatch_dtype="fp8")
        self.assertEqual(int(plain["afd_two_phase"]) - int(narrow["afd_two_phase"]),
                         4096 * 8 * (4096 - 2048 - 2048 // 128 * 4))

    def test_int8_rows_of_int4_experts_have_their_bytes(self):
        def worst(**changed) -> int:
            rows = self.rows(self.plan(weights="int4", **changed))
            return int({(row[0], row[1]): row[4] for row in rows}["local", "grouped_int4"])
        # Of each row of each slot at least the values, the same arranged, a scale and a sum.
        self.assertGreaterEqual(worst(int4_rows="int8") - worst(int4_rows="bf16"),
                                4096 * (6 + 2) * (2048 + 2048 + 4 + 4))

    def test_limits_that_nothing_serves_are_refused(self):
        done = self.plan(row_fraction=1.5)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--row-fraction is 1.500000; allowed are numbers above 0 up to 1", done.stderr)
        done = self.plan(top_k=33, experts=32)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--top-k is 33; there are 32 experts", done.stderr)
        done = self.plan(intermediate=2**62)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--intermediate is 4611686018427387904; allowed are 1 ... 2147483647",
                      done.stderr)
        done = self.plan(layers=0)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--layers is 0; allowed are 1 ... 2147483647", done.stderr)
        # As afdd refuses more FFN workers than its default placement has experts for.
        done = self.plan(ranks=300, experts=256)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks is 300; there are 256 experts, each on one rank, so 44 ranks would "
                      "hold none", done.stderr)
        done = self.plan(ranks=0)
        self.assertIn("--ranks is 0; allowed are 1 ... 4096", done.stderr)
        done = self.plan(tokens=2 ** 31)
        self.assertIn("--tokens is 2147483648; allowed are 1 ... ", done.stderr)

    def test_a_rank_has_the_bytes_of_its_weights(self):
        """Of 64 experts over 4 ranks 16, and the 2 shared ones, in 3 layers."""
        last = self.plan(layers=3).stdout.splitlines()[-1]
        self.assertEqual(last, "Weights (bf16) of a rank's 16 routed and 2 shared experts in 3 "
                               "layers, all as wide as the widest: "
                               f"{3 * 18 * 3 * 2 * 1408 * 2048} bytes")
        # Values of one byte, and fp32 scales of outputs, or of two half panels a block of depth.
        values, of_int8 = 1408 * 2048, 4 * (2 * 1408 + 2048)
        int8 = self.plan(layers=1, weights="int8").stdout.split()
        self.assertGreaterEqual(int(int8[-2]), 18 * (3 * values + of_int8))
        self.assertLess(int(int8[-2]), 18 * 3 * values * 1.05)

    def test_help_says_defaults_and_what_is_counted(self):
        text = afd_op("moe-plan", "--help").stdout
        # Versions of the library write "UINT=2" or "UINT [2]".
        for name, default in (("ranks", 2), ("layers", 1), ("threads", 1), ("micro-batches", 1),
                              ("block-tokens", 1024), ("weights", "bf16")):
            self.assertRegex(text, rf"--{name} \S+?(=| \[){default}\b")
        self.assertIn("Not counted: attention with its weights and KV\ncache", text)

    def test_a_model_of_any_size_is_planned(self):
        done = self.plan(experts=2**31 - 1, layers=2**31 - 1)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("two_phase takes 65536 experts of a rank at most; --experts 2147483647 and "
                      "--shared 2 over --ranks 4 are 536870913", done.stdout)


if __name__ == "__main__":
    AFD_OP = sys.argv.pop(1)
    unittest.main()
