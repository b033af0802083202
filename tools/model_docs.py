#!/usr/bin/env python3
"""Writes docs/models.md: which released models load, in what memory, and what was compared.

    model_docs.py --afdd PATH [--check]

Every configuration of tests/model/family/released is tried: afdd --check-config on a directory that
holds it alone, as it is and with the quantization_config of each format. What is refused stands on
the page in afdd's words, and so do the releases of tests/model/family/refused, as they are. Where a
configuration was confirmed is said by release_sources.py. Memory is counted from the keys
(model_memory.py), and must agree with what afdd says of the KV cache. What was compared is read
from tests/golden/CMakeLists.txt. Needs NumPy, for the variants of tests/golden.

--check writes nothing and exits with 1, saying what differs: the page is out of date, a release is
not described here, afdd ends in another way than by accepting or refusing (or accepts what is said
to be refused), or no variant of a release's architecture is compared.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import model_memory
import release_sources

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
RELEASED = ROOT / "tests" / "model" / "family" / "released"
REFUSED_RELEASES = RELEASED.parent / "refused"
GOLDEN = ROOT / "tests" / "golden"
TOKENIZERS = ROOT / "tests" / "model" / "tokenizer" / "golden" / "golden.json"
sys.path.append(str(GOLDEN))
import foreign_np  # noqa: E402  (found in tests/golden, like the next ones)
import grouped_checkpoint  # noqa: E402
import make_checkpoint  # noqa: E402

COLUMNS = 100
GIB = 2 ** 30
REFUSED = 3  # afdd's exit code for a model that cannot be served.

# file in RELEASED -> what people call it, the case of TOKENIZERS that has its kind of tokenizer.
RELEASES = {
    "deepseek_moe_16b": ("DeepSeek-MoE-16B", "deepseek_v2"),
    "deepseek_r1": ("DeepSeek-R1", "deepseek_v3"),
    "deepseek_v2": ("DeepSeek-V2", "deepseek_v2"),
    "deepseek_v2_lite": ("DeepSeek-V2-Lite", "deepseek_v2"),
    "deepseek_v3": ("DeepSeek-V3", "deepseek_v3"),
    "deepseek_v3_1": ("DeepSeek-V3.1", "deepseek_v3"),
    "dots_llm1": ("dots.llm1", "qwen"),
    "gigachat3_10b_a1_8b": ("GigaChat3-10B-A1.8B", None),
    "glm_4_5": ("GLM-4.5", "glm"),
    "glm_4_5_air": ("GLM-4.5-Air", "glm"),
    "glm_4_6": ("GLM-4.6", "glm"),
    "glm_4_7_flash": ("GLM-4.7-Flash", "glm"),
    "gpt_oss_120b": ("gpt-oss-120b", "gpt4o"),
    "gpt_oss_20b": ("gpt-oss-20b", "gpt4o"),
    "kanana_2_30b_a3b": ("Kanana-2-30B-A3B", "gpt4o"),
    "kimi_k2": ("Kimi-K2", "kimi"),
    "minimax_m2": ("MiniMax-M2", "gpt4o"),
    "mixtral_8x22b": ("Mixtral-8x22B", "mixtral"),
    "mixtral_8x7b": ("Mixtral-8x7B", "mixtral"),
    "moonlight_16b_a3b": ("Moonlight-16B-A3B", "kimi"),
    "olmoe_1b_7b": ("OLMoE-1B-7B", "olmoe"),
    "phi_3_5_moe": ("Phi-3.5-MoE", "phi"),
    "qwen1_5_moe_a2_7b": ("Qwen1.5-MoE-A2.7B", "qwen"),
    "qwen2_57b_a14b": ("Qwen2-57B-A14B", "qwen"),
    "qwen3_235b_a22b_2507": ("Qwen3-235B-A22B-2507", "qwen"),
    "qwen3_30b_a3b": ("Qwen3-30B-A3B", "qwen"),
    "qwen3_coder_480b_a35b": ("Qwen3-Coder-480B-A35B", "qwen"),
}

# file in REFUSED_RELEASES -> what people call it.
NOT_SERVED = {
    "ernie_4_5_21b_a3b": "ERNIE-4.5-21B-A3B",
    "ling_lite_1_5": "Ling-lite-1.5",
    "ling_mini_2_0": "Ling-mini-2.0",
}

# What of a model is in which format -> its quantization_config.
FORMATS = {
    "bf16": None,
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": [128, 128]},
    "int8": {"quant_method": "afd", "experts": "int8", "attention": "bf16"},
    "int4": {"quant_method": "afd", "experts": "int4-g32", "attention": "bf16"},
    "int8 attention": {"quant_method": "afd", "experts": "bf16", "attention": "int8"},
    "GPTQ": foreign_np.quantization_config(
        {"method": "gptq", "group": 128, "symmetric": True}),
    "AWQ": foreign_np.quantization_config({"method": "awq", "group": 128}),
    "packed int4": foreign_np.quantization_config(
        {"method": "packed", "group": 128, "symmetric": True}),
    "W8A8": foreign_np.quantization_config({"method": "int8", "scales": "BF16"}),
    "fp8 of rows": foreign_np.quantization_config({"method": "fp8", "scales": "BF16"}),
    "mxfp4": foreign_np.quantization_config({"method": "mxfp4"}),
}

TRIED = ("as released", *FORMATS)

HEAD = """\
# Models

The tables on this page list the released models that `afdd` accepts, the formats it accepts them
in, the memory they take, and what was compared with what. To check a checkpoint of your own before
you download it, run `afdd --check-config --model DIRECTORY` on its `config.json`. A model of one of
these architectures that is not in the tables is also served, unless one of its keys is refused.

`tools/model_docs.py` generates this page and tries each configuration; a test keeps the two in
step. The configurations, in `tests/model/family/released/`, are meant to have the keys and values
of the published `config.json` files. [The last section](#configurations) says what confirms each of
them, and which keys no public copy confirms: of Kanana-2-30B-A3B no copy was found. **No released
weights were loaded by this test.** Computation was compared on small random checkpoints of each
family's shape.

## What loads

"""

FORMATS_TEXT = """\
The format is that of the experts, the shared experts and the dense MLPs ([weights.md](weights.md)).
bf16 and fp8 (in blocks of 128 x 128) load as released; int8 and int4 load as `afd-quantize` writes
them. Attention is in bf16 or int8. The formats of GPTQ, AWQ and compressed-tensors (packed int4,
W8A8, fp8 with a scale for each row, mxfp4) load as downloaded; experts in int4 stay int4, with or
without zero points, in groups of 32 or a multiple of 64 that are not mixed; experts and attention
of W8A8, `int-quantized` with dynamic activations, stay int8; and all else becomes bf16. Where only
the routed experts are in int4, int8 or fp8, the shared experts and dense MLPs stay in bf16. As
released, DeepSeek-V3, R1, V3.1, Kimi-K2 and MiniMax-M2 are in fp8. gpt-oss has its experts in its
own mxfp4 layout: they stay mxfp4, also with int8 attention, and take as many bytes as int4.

Each of these twelve formats was tried with `afdd --check-config`, on `config.json` alone; the table
lists those it accepted.

The tokenizer column names a case of `tests/model/tokenizer/golden/golden.json`: the normalizer,
expression and options of that kind over a small vocabulary, compared with the ids that the
tokenizers library gives. No public copy confirms which kind a release has; a dash means that none
was tried. That of Kanana-2 is the one that llama.cpp takes for it. Kimi-K2 and Moonlight publish a
`tiktoken.model`, which loads without conversion.

**DeepSeek-V2 and V3** are supported with or without query compression, and with sigmoid
(`noaux_tc`) or softmax (greedy, grouped) routing, leading dense layers, shared experts, YaRN and
tied embeddings. The router of DeepSeek-V4 is supported in such a decoder: `sqrtsoftplus` scores,
and layers that look up their experts in a table by token id (`num_hash_layers`,
`mlp.gate.tid2eid`). V4's attention is not supported.

**Models of text and images** load as the text model that they contain, if it is of one of these
families: `text_config` of `config.json` says which ([weights.md](weights.md)).

**Sliding windows** are served where every layer has one (`sliding_window`; Mixtral, Phi) or
`layer_types` says which layers do (Mixtral, Qwen, gpt-oss). They limit what a token's attention
reads, and how much of these layers' KV cache a sequence holds at a time.

**YaRN** is served where a checkpoint has it, and where you add it as Qwen documents for longer
texts: a `rope_scaling` of type `yarn` with `factor` and `original_max_position_embeddings`.
Requests may then be as long as the product of the two, even if `max_position_embeddings` is
smaller. It applies to all requests, whatever their length. A `rope_scaling` without a type, or with
a key that `afdd` does not know, is refused.

**Absent keys** mean what they do in transformers, whose classes differ in it from family to family;
where they do not, the weights have other shapes, and are refused. **The norms of latents** add
1e-6, as transformers does, whatever `rms_norm_eps` says; other programs add `rms_norm_eps`. **Parts
that `config.json` does not name**: a bias of attention or the head, a norm of queries and keys, or
shared experts are refused if the weights hold them, unless a bias is 0 throughout.

**longrope**, the rotation of Phi-3.5-MoE, has two lists of factors: one for up to 4,096 tokens and
one for longer sequences. The published code chooses per sequence, which requires rotating its keys
again when it grows. Here `config.json` decides once for all requests: the long list as released, or
the short list with `max_position_embeddings` set to 4096. The short list gives what the published
code computes for sequences that stay that short.
"""

MEMORY_TEXT = """\
In GiB, calculated from the keys of `config.json` (`tools/model_memory.py`), not measured. Layers
for multi-token prediction are not loaded and not counted.
"""

FORMULAS_TEXT = """\
* **Attention**: everything but the MLPs (embedding, attention, norms, routers, head). Each
  attention worker holds all of it, except routers with `router = ffn` and `dispatch = window`. An
  element takes 2 bytes (bf16), a router's balancing bias 4, and one of MiniMax-M2's routers, which
  are released in fp32, 6. The KV cache comes on top: `kv_tokens` times the last column, about half
  of that with another `kv_dtype`, and less where some layers have a window (`afdd --check-config`).
* **FFN**: the MLPs (routed and shared experts, dense layers). All FFN workers of a machine together
  hold them once, because they map the same cache on disk (`weight_cache`). Bytes of each matrix [N,
  K]:
  * bf16: 2 N K
  * fp8: N K + 4 ceil(N / 128) ceil(K / 128)
  * int8: N K + 4 N
  * int4, in groups of 32: N ceil(K / 2) + 2 N ceil(K / 32)
* **KV a token**, in bf16 and over all layers L: 2 L (kv_lora_rank + qk_rope_head_dim) with latent
  attention (DeepSeek's), 2 L · 2 · num_key_value_heads · head_dim with grouped heads. For each
  release, this was compared with the output of `afdd --check-config`, in whole KiB.

The bytes are those of the tensors in a checkpoint of that format; a test compares the count with
random checkpoints of every family and with the output of `afd-quantize`. In memory they take a
little more: matrices are cut into panels of 32 outputs, and the last panel is padded.
"""


CONFIGURATIONS_TEXT = """\
This section says where each configuration was confirmed, and which keys were not. A key is
confirmed if a public copy of the `config.json`, or the values that a public program has of it,
agree with our file. Nobody compared with the publisher's own file. Sources without a repository
name are short for:
"""


@dataclasses.dataclass
class Answer:
    """What afdd --check-config says of a directory."""
    refusal: str = ""       # afdd's words, or empty.
    kv_bytes: float | None = None
    problem: str = ""       # Neither accepted nor refused.


def ask(afdd: pathlib.Path, config: dict) -> Answer:
    """The environment and the directory of the caller have no say."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AFD_")}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config), "utf-8")
        run = subprocess.run([afdd.resolve(), "--check-config", "--model", folder], check=False,
                             cwd=folder, env=environment, capture_output=True, text=True)
        # Behind what it warns of on this machine.
        said = "".join(run.stderr.splitlines()[-1:])
        said = said.removeprefix("afdd: ").replace(folder + "/", "")
    if run.returncode == REFUSED and said:
        return Answer(refusal=said)
    kv = re.search(r"^# model: .*; ([\d.]+) (KiB|bytes) of KV cache a token$", run.stdout,
                   re.MULTILINE)
    if run.returncode != 0 or kv is None:
        return Answer(problem=f"afdd --check-config ended with {run.returncode}: {said}")
    return Answer(kv_bytes=float(kv[1]) * (1024 if kv[2] == "KiB" else 1))


def in_format(config: dict, label: str) -> dict:
    """The configuration of a release, in a format of TRIED."""
    if label == "as released":
        return config
    others = {key: value for key, value in config.items() if key != "quantization_config"}
    return {**others, "quantization_config": FORMATS[label]} if FORMATS[label] else others


def wrapped(text: str, first: str = "") -> list[str]:
    """The text in lines of the page's width, `first` before the first and as much space after."""
    return textwrap.wrap(text, COLUMNS, initial_indent=first, break_long_words=False,
                         subsequent_indent=" " * len(first), break_on_hyphens=False)


def markdown(columns: list[str], rows: list[list[str]]) -> list[str]:
    """The first column is text, the others too unless their names begin with a space."""
    ruler = ["---:" if column.startswith(" ") else "---" for column in columns]
    return ["| " + " | ".join(column.strip() for column in columns) + " |",
            "|" + "|".join(ruler) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


class GoldenTests:
    """Which tests of tests/golden run for which variant, as its CMakeLists.txt says."""

    def __init__(self) -> None:
        text = (GOLDEN / "CMakeLists.txt").read_text("utf-8")
        self.served: list[str] = []      # Compared with NumPy, unrounded and served.
        self.unrounded: list[str] = []   # Unrounded; what is served may be among them.
        self.colocated: list[str] = []
        self.same_bits: list[str] = []
        for names, body in re.findall(r"^foreach\(\w+\s+([^)]*)\)(.*?)^endforeach", text,
                                      re.DOTALL | re.MULTILINE):
            for list_of, word in ((self.served, "golden_served("),
                                  (self.unrounded, "golden_logits("),
                                  (self.colocated, "--topology colocated"),
                                  (self.same_bits, "same_bits_test")):
                if word in body:
                    list_of += names.split()
        # name -> the variant that afd-quantize makes it of.
        self.quantised: dict[str, str] = dict(
            re.findall(r"^golden_quantised\((\w+) (\w+) ", text, re.MULTILINE))
        self.bound = re.search(r"--logits \S+ --rounding none --bound (\S+?)\)", text)[1]
        limits = (GOLDEN / "compare_logprobs.py").read_text("utf-8")
        self.limits = {key: re.search(rf'"--{key}", type=float, default=(\S+?)\)', limits)[1]
                       for key in ("median-bound", "tail-bound", "noise-ratio")}

    def plain(self, architecture: str) -> list[str]:
        return [name for name in self.served if name not in self.quantised
                and architecture_of(name) == architecture]

    def of(self, names: list[str], architecture: str) -> list[str]:
        # A variant may be compared in more than one setting.
        return [name for name in dict.fromkeys(names)
                if architecture_of(self.quantised.get(name, name)) == architecture]

    def text(self) -> str:
        limits = self.limits
        return (
            "The forward pass of `tests/golden` is written in NumPy from the published "
            "architectures, never from the C++ code. Its random checkpoints (\"variants\", of "
            "`tests/golden/make_checkpoint.py`) have the keys and tensors of a family, at a small "
            "size; those called odd have three heads and widths that no block divides. Each "
            "variant is compared twice. The reference decoder, with all roundings off, is compared "
            "with NumPy in float64 (the largest difference of a logit is at most "
            f"{self.bound} of the largest logit). The log probabilities that the running daemon "
            "serves are compared with NumPy that rounds where the system does (median difference "
            f"at most {limits['median-bound']} nats and {limits['noise-ratio']} times what the "
            "order of fp32 sums explains, 99th percentile at most "
            f"{limits['tail-bound']}). With the router in the FFN workers, the daemon must give "
            "the same answer, to the last bit.")


def architecture_of(variant: str) -> str:
    config = (grouped_checkpoint.VARIANTS.get(variant)
              or {**make_checkpoint.BASE, **make_checkpoint.VARIANTS.get(variant, {})})
    return config["architectures"][0]


class Page:
    """The page in the making, and what is not as it must be."""

    def __init__(self, afdd: pathlib.Path) -> None:
        self.afdd = afdd
        self.problems: list[str] = []
        self.configs = {path.stem: json.loads(path.read_text("utf-8"))
                        for path in sorted(RELEASED.glob("*.json"))}
        self.not_served = {path.stem: json.loads(path.read_text("utf-8"))
                           for path in sorted(REFUSED_RELEASES.glob("*.json"))}
        for folder, there, listed in ((RELEASED, self.configs, RELEASES),
                                      (REFUSED_RELEASES, self.not_served, NOT_SERVED)):
            if there.keys() != listed.keys():
                sys.exit(f"{folder.relative_to(ROOT)} and tools/model_docs.py differ: "
                         f"{', '.join(sorted(there.keys() ^ listed.keys()))}")
        self.problems += release_sources.problems({**self.configs, **self.not_served})
        self.answers = {
            name: {label: ask(afdd, in_format(config, label)) for label in TRIED}
            for name, config in self.configs.items()}
        for name, answers in self.answers.items():
            for label, answer in answers.items():
                if answer.problem:
                    self.problems.append(f"{name}, {label}: {answer.problem}")

    def what_loads(self) -> list[str]:
        known = json.loads(TOKENIZERS.read_text("utf-8"))["families"]
        rows: list[list[str]] = []
        refusals: dict[str, list[str]] = {}  # afdd's words -> what they were said of.
        for name, (title, tokenizer) in RELEASES.items():
            if tokenizer is not None and tokenizer not in known:
                self.problems.append(f"{name}: {TOKENIZERS.name} has no case {tokenizer}")
            answers = self.answers[name]
            accepted = [label for label, answer in answers.items() if not answer.refusal]
            rows.append([title, f"`{self.configs[name]['architectures'][0]}`",
                         "all" if len(accepted) == len(answers)
                         else ", ".join(accepted) or "none",
                         f"`{tokenizer}`" if tokenizer else "–"])
            for label, answer in answers.items():
                if answer.refusal:
                    refusals.setdefault(answer.refusal, []).append(f"{title} in {label}")
        for name, title in NOT_SERVED.items():
            answer = ask(afdd=self.afdd, config=self.not_served[name])
            if not answer.refusal:
                self.problems.append(f"{name}: {answer.problem or 'accepted'}")
            refusals.setdefault(answer.refusal, []).append(title)
        table = markdown(["release", "architecture", "accepted in", "tokenizer"], rows)
        said = [line for words, of in refusals.items()
                for line in wrapped(f"{', '.join(of)}: {words}", "* ")]
        if said:
            said = ["", "Refused, in the words of `afdd`:", "", *said]
        return [*table, *said, "", *FORMATS_TEXT.splitlines()]

    def memory(self) -> list[str]:
        rows = []
        for name, (title, _) in RELEASES.items():
            config = self.configs[name]
            kv = model_memory.kv_bytes_per_token(config)
            said = self.answers[name]["bf16"].kv_bytes
            # afdd rounds to a tenth of a KiB, by half of one at most.
            if said is not None and abs(said - kv) > 1024 / 20 + 1:
                self.problems.append(f"{name}: afdd says {said} bytes of KV cache a token, "
                                     f"its keys {kv} bytes")
            rows.append([title, f"{model_memory.num_parameters(config) / 1e9:.1f}",
                         f"{model_memory.other_bytes(config) / GIB:.1f}",
                         *(f"{model_memory.mlp_bytes(config, weight_format) / GIB:.1f}"
                           for weight_format in model_memory.FORMATS), f"{kv / 1024:.1f} KiB"])
        columns = ["release", " 10⁹ elements", " attention",
                   *(f" FFN {label}" for label in model_memory.FORMATS), " KV a token"]
        return ["## Memory", "", *MEMORY_TEXT.splitlines(), "", *markdown(columns, rows), "",
                *FORMULAS_TEXT.splitlines()]

    def compared(self) -> list[str]:
        tests = GoldenTests()
        lines = ["## What was compared with what", "", *wrapped(tests.text()), ""]
        architectures = [config["architectures"][0] for config in self.configs.values()]
        architectures += [architecture_of(name) for name in tests.served
                          if name not in tests.quantised]
        for architecture in dict.fromkeys(architectures):
            releases = [RELEASES[name][0] for name, config in self.configs.items()
                        if config["architectures"][0] == architecture]
            plain = tests.plain(architecture)
            if not plain:
                self.problems.append(f"tests/golden compares no variant of {architecture}")
            unrounded = tests.of(list(tests.quantised), architecture)
            foreign = [name for name in tests.of(tests.unrounded, architecture)
                       if name not in plain and name not in tests.quantised]
            parts = {
                "": plain,
                "unrounded only": foreign,
                "from `afd-quantize`, unrounded": unrounded,
                "of these also as served": [name for name in unrounded if name in tests.served],
                "same bits in one process": tests.of(tests.colocated, architecture),
                "same bits in the most different settings of workers, batches and routers, and over "
                "UCX": tests.of(tests.same_bits, architecture)}
            text = "; ".join((f"{what}: " if what else "") + quoted(names)
                             for what, names in parts.items() if names)
            lines += wrapped(f"`{architecture}` ({', '.join(releases) or 'no release above'}): "
                             f"{text}.", "* ")
        lines += ["", *wrapped(
            "What a list does not name (for example, a variant in fp8) was not compared for that "
            "family. The kernels for each format are the same for all families and have their own "
            "tests in `tests/ops/`.")]
        return lines

    def configurations(self) -> list[str]:
        lines = ["## Configurations", "", *CONFIGURATIONS_TEXT.splitlines(), ""]
        for short, place in release_sources.PLACES.items():
            lines += wrapped(f"{short}: {place}", "* ")
        lines += ["", "Releases that are served, then those that are refused:", ""]
        titles = {name: title for name, (title, _) in RELEASES.items()} | NOT_SERVED
        for name, title in titles.items():
            lines += wrapped(f"**{title}**: {release_sources.sentence(name)}", "* ")
        return lines

    def text(self) -> str:
        parts = (self.what_loads(), self.memory(), self.compared(), self.configurations())
        return HEAD + "\n\n".join("\n".join(part).rstrip() for part in parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--afdd", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    page = Page(arguments.afdd)
    text = page.text()
    if not arguments.check:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        page.problems.append("docs/models.md is out of date: run "
                             "tools/model_docs.py --afdd build/release/bin/afdd")
    for problem in page.problems:
        print(problem)
    return 1 if page.problems else 0


if __name__ == "__main__":
    sys.exit(main())
