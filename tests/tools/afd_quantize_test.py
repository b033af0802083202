# SPDX-License-Identifier: Apache-2.0
"""Goal: what afd-quantize cannot do it says at once, in one line that names what is wrong, and it
leaves no trace; where there is no room, empty files that the same command goes on with. Method: wrong places and texts, given beside right ones that would cost minutes.

    afd_quantize_test.py AFD_QUANTIZE MODEL
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

AFD_QUANTIZE, MODEL = "afd-quantize", ""
MIXTRAL = pathlib.Path(__file__).parents[1] / "model/family/released/mixtral_8x7b.json"


class RefusedAtOnce(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = MODEL
        self.text = self.folder / "text"
        self.text.write_text("Once upon a time there was a little dog. " * 50)

    def assert_refused(self, said: str, *options: str | pathlib.Path, code: int = 1,
                       **environment: str) -> None:
        before = sorted(self.folder.iterdir())
        done = subprocess.run([AFD_QUANTIZE, self.model, *options], capture_output=True, text=True,
                              check=False, timeout=60, env={**os.environ, **environment})
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr, f"afd-quantize: {said}\n")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_place_for_kv_scales_that_cannot_be_written(self) -> None:
        # Below a file: root may write anywhere else.
        self.assert_refused(f"{self.text}/x: cannot be written: Not a directory; "
                            "--out FILE names another place",
                            "--kv-scales", self.text, "--out", self.text / "x")

    def test_kv_scales_of_a_model_that_is_not_there(self) -> None:
        self.model = "/nonexistent"
        self.assert_refused("/nonexistent/config.json: no such file; give the directory of a "
                            "checkpoint in the layout of Hugging Face (config.json, *.safetensors, "
                            "tokenizer.json)",
                            "--kv-scales", self.text)

    def test_kv_scales_of_a_model_with_grouped_heads(self) -> None:
        # Neither its weights and tokenizer nor the text are there, and no file is made.
        model = self.folder / "mixtral"
        model.mkdir()
        shutil.copy(MIXTRAL, model / "config.json")
        self.model = str(model)
        self.assert_refused("--kv-scales: models of type mixtral have another kind of attention "
                            "than multi-head latent attention, which kv_dtype = int8_channel needs; "
                            "int8 and fp8 need no factors",
                            "--kv-scales", self.folder / "no")
        self.assertEqual([path.name for path in model.iterdir()], ["config.json"])

    def test_a_temporary_directory_that_is_not_there(self) -> None:
        self.assert_refused("TMPDIR=/no/such/place: No such file or directory; set TMPDIR to a "
                            "directory with room for what memory need not hold",
                            "--kv-dtype", "int8", "--validate", self.text, TMPDIR="/no/such/place")

    def test_the_second_of_two_texts(self) -> None:
        broken, out = self.folder / "broken", self.folder / "out"
        broken.write_bytes(b"Once upon a time \xff")
        said = f"{broken}: the text is not valid UTF-8"
        for first, second in (("--smooth", "--validate"), ("--validate", "--smooth")):
            with self.subTest(second=second):
                self.assert_refused(said, "--experts", "int8", first, self.text, second, broken,
                                    "--out", out)

    def test_a_text_that_is_no_file(self) -> None:
        pipe, out = self.folder / "pipe", self.folder / "out"
        os.mkfifo(pipe)
        for text in (pipe, self.folder):
            with self.subTest(text=text):
                self.assert_refused(f"{text}: not a regular file", "--experts", "int8",
                                    "--validate", text, "--out", out)
        self.assert_refused(f"{self.folder}/no: No such file or directory", "--experts", "int8",
                            "--validate", self.folder / "no", "--out", out)

    def test_a_file_beside_the_weights_that_cannot_be_copied(self) -> None:
        # Not one without permissions: root may read it.
        self.model = str(self.folder / "model")
        shutil.copytree(MODEL, self.model)
        os.mkfifo(f"{self.model}/LICENSE")
        self.assert_refused(f"{self.model}/LICENSE: not a regular file", "--experts", "int8",
                            "--out", self.folder / "out")

    def test_a_text_without_tokens(self) -> None:
        empty = self.folder / "empty"
        empty.write_text("")
        self.assert_refused(f"{empty}: has 0 tokens; to measure on it takes at least 2, better "
                            "some thousand",
                            "--kv-scales", empty, "--out", self.folder / "scales")

    def test_more_threads_than_any_system_gives(self) -> None:
        for threads in ("1025", "1000000"):
            with self.subTest(threads=threads):
                self.assert_refused(f"--threads: '{threads}' must be a whole number from 0 to 1024 "
                                    "(see afd-quantize --help)",
                                    "--experts", "int8", "--threads", threads,
                                    "--out", self.folder / "out", code=2)

    def test_a_result_larger_than_files_may_be(self) -> None:
        # A disk that is full, also for root. Before anything is measured, and no signal ends it.
        out = self.folder / "out"
        limit = 1 << 16
        done = subprocess.run(
            [AFD_QUANTIZE, self.model, "--experts", "int8", "--validate", self.text, "--out", out],
            capture_output=True, text=True, check=False, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr,
                         f"afd-quantize: {out}/model.safetensors: writing: File too large; the "
                         "weights need 6.3 MiB in all. Free as much, raise the limit of your "
                         "files, or give --out a place on another disk\n")
        self.assertEqual((out / "model.safetensors").stat().st_size, 0)
        progress = json.loads((out / ".unfinished/progress.json").read_text())
        self.assertEqual(progress["num_scored"], 0)

    def test_settings_of_int4_for_what_is_not_made_int4(self) -> None:
        for setting in (("--group", "64"), ("--group", "32"), ("--scale-dtype", "fp16")):
            for job in (("--experts", "int8", "--out", self.folder / "out"),
                        ("--attention", "int8", "--dry-run"),
                        ("--kv-scales", self.text),
                        ("--kv-dtype", "int8", "--validate", self.text)):
                with self.subTest(setting=setting, job=job):
                    self.assert_refused("--group and --scale-dtype say what int4 weights are like; "
                                        "give --experts int4, too, or leave them out",
                                        *job, *setting, code=2)

    def test_smooth_is_for_int8_experts(self) -> None:
        for experts in (("--experts", "int4"), ("--attention", "int8")):
            with self.subTest(experts=experts):
                self.assert_refused("--smooth is for experts whose input is quantised; give "
                                    "--experts int8, too",
                                    *experts, "--smooth", self.text, "--out", self.folder / "out",
                                    code=2)

    def test_nothing_to_quantise(self) -> None:
        self.assert_refused("nothing to quantise: give --experts int8 or int4, --attention int8, "
                            "or both", "--dry-run", code=2)

    # Goal: a program that cannot say what is wrong still ends with its exit code.
    def test_what_is_wrong_cannot_be_said(self) -> None:
        for model, options, code in ((self.model, ("--experts", "int8"), 2),
                                     ("/nonexistent", ("--experts", "int8", "--dry-run"), 1)):
            with self.subTest(code=code), open("/dev/full", "w") as full:
                done = subprocess.run([AFD_QUANTIZE, model, *options], stderr=full, check=False)
                self.assertEqual(done.returncode, code)


if __name__ == "__main__":
    AFD_QUANTIZE, MODEL = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
