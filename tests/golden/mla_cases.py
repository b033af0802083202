"""Cases of MlaPrologV3 and MlaAttention with fixed seeds: inputs, and what NumPy expects.

    mla_cases.py generate --out DIR [--list]   CASE.in.safetensors and CASE.expected.safetensors
    mla_cases.py compare EXPECTED ACTUAL       exit status 1 and a line per tensor that differs
    mla_cases.py check --out DIR --afd-op PATH [--reference]
                                               generates, runs every case, compares

The operator's name and its attributes as JSON stand in the metadata of the input file under
"operator" and "attributes". Files hold tensors under the seed's names; a cache is an input, and the
expected file holds it as it must be afterwards. Every row's content depends on its index, so a row
in the wrong place shows.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

import mla_np
import safetensors_np as st
import through_afd_op

SCENARIOS = ("000", "100", "120", "130", "200", "211", "230", "231")
CACHE_MODES = ("PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND")
B, S, HE, HCQ, HCKV, N, D, DR, V = 2, 5, 70, 37, 64, 3, 11, 32, 6
BLOCK_NUM, BLOCK_SIZE, TILE = 7, 4, 16
CACHES = ("kv_cache", "kr_cache")

# How far float64 sums and fp32 chains may end apart: a rounding point to bf16 can flip to the
# neighbour, 2^-8 of the row's largest value, and an int8 value by a step. Flips are rare and seldom
# meet, so one more is allowed than all of today's cases show.
BF16_BOUND = 2 / 256
INT8_BOUND = 1


def goes_together(scenario: str, mode: str, merged: bool) -> bool:
    if mode == "BSND" and merged or mode == "TND" and not merged:
        return False
    return scenario[1] != "3" or not mode.endswith("NZ")


class Maker:
    """Random tensors of one case; `given` collects (dtype, array) under the seed's names."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.given: dict[str, tuple[str, np.ndarray]] = {}

    def normal(self, name: str, shape: tuple, deviation: float = 1.0) -> None:
        values = self.random.normal(0, deviation, shape).astype(np.float32)
        self.given[name] = ("BF16", st.to_bf16_bits(values))

    def int8(self, name: str, shape: tuple) -> None:
        self.given[name] = ("I8", self.random.integers(-127, 128, shape, dtype=np.int8))

    def positive(self, name: str, shape: tuple, about: float) -> None:
        values = self.random.uniform(0.5 * about, 1.5 * about, shape)
        self.given[name] = ("F32", values.astype(np.float32))

    def ints(self, name: str, values, dtype: str = "I32") -> None:
        self.given[name] = (dtype, np.asarray(values, st.NUMPY_OF[dtype]))


def make_index(make: Maker, mode: str, merged: bool, spoil: bool) -> None:
    t = B * S
    if mode in ("BSND", "TND"):
        return
    if "BLK" not in mode:
        places = make.random.permutation(BLOCK_NUM * BLOCK_SIZE)[:t]
        if spoil:
            places[3], places[t - 1] = -1, places[0]
        make.ints("cache_index", places.reshape((t,) if merged else (B, S)), "I64")
        return
    places = make.random.permutation(BLOCK_NUM)
    if merged:
        ends = [3, t]
        count = -(-3 // BLOCK_SIZE) + -(-(t - 3) // BLOCK_SIZE)
        make.ints("actual_seq_len", ends)
        make.ints("cache_index", places[:count], "I64")
    else:
        per_sequence = -(-S // BLOCK_SIZE)
        make.ints("cache_index", places[:B * per_sequence].reshape(B, per_sequence), "I64")
    if spoil:
        make.given["cache_index"][1].reshape(-1)[1] = -1


def prolog_case(scenario: str, mode: str, merged: bool, seed: int, low_rank: bool = True,
                fractal_nz: bool = False, spoil: bool = False):
    weight, kv, query = (int(digit) for digit in scenario)
    make = Maker(seed)
    lead = (B * S,) if merged else (B, S)
    cols, depth = N * (D + DR), HCQ if low_rank else HE
    x = make.int8 if weight == 2 else make.normal
    x("token_x", (*lead, HE))
    int8_or = lambda quantised, name, shape, deviation: (
        make.int8(name, shape) if quantised else make.normal(name, shape, deviation))
    if low_rank:
        int8_or(weight == 2, "weight_dq", (HE, HCQ), 0.15)
        make.normal("rmsnorm_gamma_cq", (HCQ,))
    int8_or(weight >= 1, "weight_uq_qr", (depth, cols), 0.15)
    make.normal("weight_uk", (N, D, HCKV), 0.3)
    int8_or(weight == 2, "weight_dkv_kr", (HE, HCKV + DR), 0.15)
    make.normal("rmsnorm_gamma_ckv", (HCKV,))
    make.normal("rope_sin", (*lead, DR), 0.7)
    make.normal("rope_cos", (*lead, DR), 0.7)
    last = HCKV + 2 * DR + 4 * HCKV // TILE if kv == 3 else HCKV
    shape = {"BSND": (B, S, 1), "TND": (B * S, 1)}.get(mode, (BLOCK_NUM, BLOCK_SIZE, 1))
    int8_or(kv != 0, "kv_cache", (*shape, last), 1.0)
    if kv != 3:
        int8_or(kv == 2, "kr_cache", (*shape, DR), 1.0)
    make_index(make, mode, merged, spoil)
    if weight == 2:
        make.positive("dequant_scale_x", (B * S, 1), 0.01)
        make.positive("dequant_scale_w_dq", (1, HCQ), 0.001)
        make.positive("dequant_scale_w_dkv_kr", (1, HCKV + DR), 0.001)
    if weight:
        make.positive("dequant_scale_w_uq_qr", (1, cols), 0.01)
        make.positive("smooth_scales_cq", (1, HCQ), 1.0)
    if kv == 1:
        make.positive("quant_scale_ckv", (1,), 50)
    if kv == 2:
        make.positive("quant_scale_ckv", (1, HCKV), 50)
        make.positive("quant_scale_ckr", (1, DR), 30)
    if kv == 3:
        make.given["k_nope_clip_alpha"] = ("F32", np.array([0.75], np.float32))
    if fractal_nz:
        for name in ("weight_dq", "weight_uq_qr", "weight_dkv_kr"):
            dtype, array = make.given[name]
            make.given[name] = (dtype, mla_np.to_fractal_nz(array))
    attrs = {"rmsnorm_epsilon_cq": 1e-5, "rmsnorm_epsilon_ckv": 1e-5, "cache_mode": mode,
             "query_norm_flag": low_rank, "weight_quant_mode": weight, "kv_cache_quant_mode": kv,
             "query_quant_mode": query, "ckvkr_repo_mode": int(kv == 3),
             "quant_scale_repo_mode": int(kv == 3), "tile_size": TILE,
             "qc_qr_scale": 1.25 if low_rank else 1.0, "kc_scale": 0.875}
    return "mla_prolog_v3", attrs, make.given


def attention_case(pair: str, mode: str, merged: bool, seed: int):
    """Sequences of 70 positions, a whole softmax block and a part; the last tokens attend."""
    kv, query = (int(digit) for digit in pair)
    make = Maker(seed)
    length, block_size = 70, 16
    lead = (B * S,) if merged else (B, S)
    (make.int8 if query else make.normal)("query", (*lead, N, HCKV))
    make.normal("query_rope", (*lead, N, DR), 1.0)
    if query:
        make.positive("dequant_scale_q_nope", (B * S, N, 1), 0.01)
    blocks = -(-length // block_size)
    shape = {"BSND": (B, length, 1), "TND": (B * length, 1)}.get(mode, (11, block_size, 1))
    last = HCKV + 2 * DR + 4 * HCKV // TILE if kv == 3 else HCKV
    (make.int8 if kv else make.normal)("kv_cache", (*shape, last))
    cache = make.given["kv_cache"][1]
    if kv == 3:  # Random bytes are no scales and no keys.
        rows = cache.reshape(-1, last)
        keys = make.random.normal(0, 1, (len(rows), DR)).astype(np.float32)
        scales = make.random.uniform(0.01, 0.02, (len(rows), HCKV // TILE)).astype(np.float32)
        rows[:, HCKV:HCKV + 2 * DR] = st.to_bf16_bits(keys).view(np.int8)
        rows[:, HCKV + 2 * DR:] = scales.view(np.int8)
    else:
        (make.int8 if kv == 2 else make.normal)("kr_cache", (*shape, DR))
    positions = [int(p) for p in make.random.integers(0, length, B * S)]
    positions[0], positions[1], positions[2] = 0, 63, length - 1
    make.ints("positions", np.reshape(positions, lead))
    if merged:
        make.ints("sequence_index", make.random.integers(0, B, B * S))
    if mode.startswith("PA"):
        table = make.random.permutation(11)[:B * blocks].reshape(B, blocks)
        make.ints("block_table", table)
    if mode == "TND":
        make.ints("actual_seq_len", [length, 2 * length])
    if kv == 1:
        make.positive("quant_scale_ckv", (1,), 50)
    if kv == 2:
        make.positive("quant_scale_ckv", (1, HCKV), 50)
        make.positive("quant_scale_ckr", (1, DR), 50)
    make.normal("weight_uv", (N, V, HCKV), 0.3)
    make.normal("weight_o", (N * V, 21), 0.3)
    attrs = {"softmax_scale": 0.05, "cache_mode": mode, "kv_cache_quant_mode": kv,
             "query_quant_mode": query, "tile_size": TILE}
    return "mla_attention_v3", attrs, make.given


def all_cases() -> dict:
    """Name -> function that makes the case."""
    cases = {}

    def add(name, function, *arguments, **options):
        seed = 1000 + len(cases)
        cases[name] = lambda: function(*arguments, seed, **options)

    for mode in CACHE_MODES:
        for merged in (True, False):
            axes = "t" if merged else "bs"
            for scenario in SCENARIOS:
                if goes_together(scenario, mode, merged):
                    add(f"mla_prolog_v3.{scenario}.{mode}.{axes}", prolog_case, scenario, mode,
                        merged)
            for pair in ("00", "11", "20", "30", "31"):
                if goes_together("0" + pair, mode, merged):
                    add(f"mla_attention_v3.{pair}.{mode}.{axes}", attention_case, pair, mode,
                        merged)
    for scenario in SCENARIOS:
        add(f"mla_prolog_v3.{scenario}.fractal_nz", prolog_case, scenario, "PA_BSND", True,
            fractal_nz=True)
        add(f"mla_prolog_v3.{scenario}.skip_and_duplicate", prolog_case, scenario, "PA_BSND", True,
            spoil=True)
    add("mla_prolog_v3.000.skip_block", prolog_case, "000", "PA_BLK_BSND", False, spoil=True)
    add("mla_prolog_v3.000.no_low_rank", prolog_case, "000", "PA_BSND", True, low_rank=False)
    return cases


def widen(given: dict) -> dict:
    """Arrays as mla_np takes them: bf16 as float32, but caches as words."""
    return {name: st.from_bf16_bits(array) if dtype == "BF16" and name not in CACHES else array
            for name, (dtype, array) in given.items()}


def dtype_of(name: str, array: np.ndarray) -> str:
    if array.dtype == np.int8:
        return "I8"
    return "F32" if name.startswith("dequant") else "BF16"


def generate(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, make in all_cases().items():
        operator, attrs, given = make()
        metadata = {"operator": operator, "attributes": json.dumps(attrs)}
        st.write(out / f"{name}.in.safetensors", given, metadata)
        expected = mla_np.OPERATORS[operator](widen(given), attrs)
        tensors = {key: (dtype_of(key, array), array) for key, array in expected.items()}
        st.write(out / f"{name}.expected.safetensors", tensors, metadata)


def parts_of(name: str, array: np.ndarray, attrs: dict) -> list[tuple[str, np.ndarray]]:
    """What is compared by one rule; a per-tile row falls apart into its three dtypes."""
    if name == "kv_cache" and attrs["kv_cache_quant_mode"] == 3:
        rows = array.reshape(-1, array.shape[-1])
        key = np.ascontiguousarray(rows[:, HCKV:HCKV + 2 * DR]).view(np.uint16)
        scales = np.ascontiguousarray(rows[:, HCKV + 2 * DR:]).view(np.float32)
        latents = rows[:, :HCKV]
        return [("kv_cache int8", latents), ("kv_cache key", key), ("kv_cache scales", scales)]
    return [(name, array)]


def difference(have: np.ndarray, want: np.ndarray) -> str:
    """What is wrong, or nothing."""
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"is {have.dtype} {list(have.shape)}, expected {want.dtype} {list(want.shape)}"
    if want.dtype == np.int8:
        worst = int(np.abs(have.astype(int) - want.astype(int)).max(initial=0))
        return f"differs by {worst} steps, allowed {INT8_BOUND}" if worst > INT8_BOUND else ""
    if want.dtype == np.uint16:
        if np.array_equal(have, want):
            return ""
        have, want = st.from_bf16_bits(have), st.from_bf16_bits(want)
    # Untouched cache bytes need not be numbers; they must then be the same.
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        rows = np.where(same, 0, np.abs(have - want)).reshape(-1, want.shape[-1])
    size = np.abs(np.nan_to_num(want)).reshape(rows.shape).max(axis=1, initial=1e-30)
    worst = float(np.nan_to_num(rows.max(axis=1, initial=0) / size, nan=np.inf).max(initial=0))
    if worst <= BF16_BOUND:
        return ""
    return f"differs by {worst:.4f} of a row, allowed {BF16_BOUND:.4f}"


def compare(actual: pathlib.Path, expected: pathlib.Path) -> list[str]:
    """Everything in which an operator's outputs differ from what is expected."""
    attrs = json.loads(st.read_metadata(expected)["attributes"])
    want, have = st.read(expected, widen=False), st.read(actual, widen=False)
    problems = []
    for name, array in want.items():
        if name not in have:
            problems.append(f"{name} is missing")
            continue
        pairs = zip(parts_of(name, have[name], attrs), parts_of(name, array, attrs))
        for (part, mine), (_, theirs) in pairs:
            problem = difference(mine, theirs)
            if problem:
                problems.append(f"{part} {problem}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("generate")
    making.add_argument("--out", type=pathlib.Path)
    making.add_argument("--list", action="store_true")
    checking = commands.add_parser("check")
    checking.add_argument("--out", type=pathlib.Path, required=True)
    checking.add_argument("--afd-op", required=True)
    checking.add_argument("--reference", action="store_true")
    comparing = commands.add_parser("compare")
    comparing.add_argument("expected", type=pathlib.Path)
    comparing.add_argument("actual", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        problems = compare(arguments.actual, arguments.expected)
        for problem in problems:
            print(f"{arguments.actual.name}: {problem}")
        return int(bool(problems))
    if arguments.command == "check":
        generate(arguments.out)
        return int(through_afd_op.check(arguments.afd_op, arguments.out, list(all_cases()),
                                        compare, arguments.reference) > 0)
    if arguments.list:
        print("\n".join(all_cases()))
    if arguments.out:
        generate(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
