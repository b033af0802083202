"""Golden vectors of the routing operators: `--out DIR` writes NAME.in.safetensors and
NAME.expected.safetensors per case, `--check AFD_OP [--reference]` also runs every case through
`afd-op run` and compares.

`__metadata__` of an input file has "operator" and "attributes" (JSON). Expected tensors hold the
rows that the operator writes; "tolerance" of their file (JSON, by tensor) says how far a value may
be off: relative, and "steps" for integers. Tensors without one must have the same bytes. Seeds are
fixed, and every row is random, so that a row in the wrong place shows.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

import routing_np
import safetensors_np as st
import through_afd_op
from routing_np import Context, narrow, raw

F32 = np.float32
# The order of fp32 sums and the last bits of exp are not fixed by the specification.
GATING = {"y": {"relative": 1e-5}}
# bf16 rounding points may fall to the neighbour: 2^-8 each in gate and up, and silu bends.
SWIGLU = {"output": {"relative": 2 ** -5, "of_largest": 2 ** -9}}
SWIGLU_QUANT = {"output": {"steps": 4}, "output_scale": {"relative": 2 ** -5}}


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on the case's name alone."""
    return np.random.default_rng([ord(c) for c in name])


def rows(rng, dtype: str, *shape: int, deviation: float = 1.0):
    if dtype == "I8":
        return ("I8", rng.integers(-127, 128, shape, dtype=np.int8))
    return (dtype, narrow(dtype, rng.normal(0, deviation, shape).astype(F32)))


def ids(rng, low: int, high: int, *shape: int):
    return ("I32", rng.integers(low, high, shape, dtype=np.int32))


def gating_cases():
    modes = {"v3": dict(norm_type=1, n_group=8, topk_group=4, norm_topk_prob=True,
                        routed_scaling_factor=2.5),
             "v2_greedy": dict(norm_type=0),
             "v4": dict(norm_type=2, norm_topk_prob=True, routed_scaling_factor=1.5),
             "v2_group": dict(norm_type=0, n_group=8, topk_group=3, routed_scaling_factor=16.0)}
    for mode, attrs in modes.items():
        for dtype in ("F32", "BF16", "F16"):
            name = f"moe_gating_top_k.{mode}.{dtype}"
            rng = generator(name)
            logits = np.round(rng.normal(0, 2, (17, 64)) * 8) / 8  # A coarse grid has ties.
            if mode == "v2_greedy":
                logits[5, 3] = np.nan
            inputs = {"x": (dtype, narrow(dtype, logits.astype(F32)))}
            if mode in ("v3", "v4"):
                inputs["bias"] = ("F32", (np.round(rng.normal(0, 0.1, 64) * 64) / 64).astype(F32))
            yield name, inputs, {"k": 8, **attrs}, GATING


def init_routing_cases():
    n, k, hidden, experts = 13, 4, 29, 11
    for quant, scale in ((-1, None), (-1, "rows"), (0, "static"), (1, None), (1, "smooth"),
                         (1, "shared")):
        for dtype in ("F32", "F16", "BF16", "I8") if quant == -1 else ("F32", "F16", "BF16"):
            for variant in range(4):
                name = f"moe_init_routing_v3.quant{quant}.{scale}.{dtype}.{variant}"
                rng = generator(name)
                span = [3, 9] if variant in (1, 2) else [0, experts]
                attrs = {"expert_num": experts, "quant_mode": quant,
                         "expert_tokens_num_flag": True, "expert_tokens_num_type": variant % 3,
                         "row_idx_type": int(variant == 2), "active_expert_range": span}
                if variant == 1:
                    attrs["active_num"] = 7
                if variant == 3:
                    attrs.update(drop_pad_mode=1, expert_capacity=3)
                inputs = {"x": rows(rng, dtype, n, hidden),
                          "expert_idx": ids(rng, -1, experts, n, k)}
                shape = {"rows": (n,), "static": (1,), "smooth": (span[1] - span[0], hidden),
                         "shared": (1, hidden)}.get(scale)
                if scale is not None:
                    inputs["scale"] = ("F32", rng.uniform(0.5, 20, shape).astype(F32))
                if scale == "static":
                    inputs["offset"] = ("F32", np.array([-3.25], F32))
                yield name, inputs, attrs, {}


def finalize_cases():
    n, k, hidden, experts = 7, 3, 33, 5
    for dtype in ("BF16", "F16", "F32"):
        for given in ("scales", "scales x1 x2", "scales bias expert_idx", "x1 bias expert_idx",
                      "scales x1 x2 bias expert_idx"):
            name = f"moe_finalize_routing.{given.replace(' ', '_')}.{dtype}"
            rng = generator(name)
            inputs = {"expanded_x": rows(rng, dtype, n * k, hidden),
                      "expanded_row_idx": ids(rng, -1, n * k, n * k)}
            made = {"scales": ("F32", rng.normal(0, 1, (n, k)).astype(F32)),
                    "x1": rows(rng, dtype, n, hidden), "x2": rows(rng, dtype, n, hidden),
                    "bias": rows(rng, dtype, experts, hidden),
                    "expert_idx": ids(rng, 0, experts, n, k)}
            inputs.update({tensor: made[tensor] for tensor in given.split()})
            yield name, inputs, {"drop_pad_mode": 2}, {}


def swiglu_cases():
    experts, depth, width = 4, 70, 37
    counts = np.array([3, 0, 5, 1], np.int64)
    lists = {0: np.cumsum(counts), 1: counts,
             2: np.array([[0, 3], [2, 5], [3, 1], [0, 0]], np.int64)}
    for dtype in ("BF16", "I8"):
        for quant in (-1, 1):
            for kind, group_list in lists.items():
                name = f"grouped_matmul_swiglu.{dtype}.quant{quant}.{kind}"
                rng = generator(name)
                inputs = {"x": rows(rng, dtype, 11, depth),
                          "weight": rows(rng, dtype, experts, depth, 2 * width, deviation=0.2),
                          "group_list": ("I64", group_list)}
                if dtype == "I8":
                    inputs["x_scale"] = ("F32", rng.uniform(0.001, 0.02, 11).astype(F32))
                    inputs["weight_scale"] = ("F32", rng.uniform(
                        0.001, 0.02, (experts, 2 * width)).astype(F32))
                yield (name, inputs, {"group_list_type": kind, "quant_mode": quant},
                       SWIGLU if quant == -1 else SWIGLU_QUANT)


# A, M, BS, K1, token bytes and H of the cases on windows.
A, M, BS, K1, HS, H = 3, 2, 4, 3, 512, 21


def context(**fields) -> Context:
    """Dimensions and buffers one behind the other; fields change single values."""
    c = Context()
    values = dict(session_num=A, micro_batch_num=M, micro_batch_size=BS, selected_expert_num=K1,
                  expert_num=6, attn_to_ffn_token_size=HS, ffn_to_attn_token_size=HS,
                  schedule_mode=2, run_flag=1, micro_batch_id=M - 1,
                  attention_info_size=M * BS * K1 * 4, attention_data=512,
                  attention_data_size=M * BS * K1 * HS, ffn_info_size=A * M * (2 + BS * K1) * 4,
                  ffn_data=512, ffn_data_size=A * M * BS * K1 * HS,
                  layer_ids=0, layer_ids_size=4 * A, session_ids=4 * A, session_ids_size=4 * A,
                  micro_batch_ids=8 * A, micro_batch_ids_size=4 * A, expert_ids=12 * A,
                  expert_ids_size=4 * A * BS * K1)
    for field, value in {**values, **fields}.items():
        setattr(c, field, value)
    return c


def put(buffer: np.ndarray, offset: int, values) -> None:
    data = raw(np.array(values, np.int32))
    buffer[offset:offset + len(data)] = data


def batching_cases():
    for token_dtype in (0, 1, 2):
        for layer_num in (0, 2):
            for need_schedule in (0, 1):
                name = f"ffn_worker_batching.{token_dtype}.layers{layer_num}.{need_schedule}"
                rng = generator(name)
                c = context(polling_index=1, out_num=0 if need_schedule else 3)
                window = rng.integers(0, 256, c.ffn_data + c.ffn_data_size, dtype=np.uint8)
                control = np.zeros(12 * A + 4 * A * BS * K1, np.uint8)
                descriptors = rng.integers(-1, 6, (A * M, 2 + BS * K1)).astype(np.int32)
                descriptors[:, 0] = [0, 5, 7, 0, 1, 9]
                descriptors[:, 1] = [0, 1, 0, -1, 1, 2]
                put(window, 0, descriptors)
                if not need_schedule:
                    lanes = [4, 1, 2]  # (session 2, 0), (0, 1), (1, 0)
                    put(control, c.layer_ids, descriptors[lanes, 1])
                    put(control, c.session_ids, [2, 0, 1])
                    put(control, c.micro_batch_ids, [0, 1, 0])
                    put(control, c.expert_ids, descriptors[lanes, 2:])
                inputs = {"schedule_context": c.tensor(), "ffn_window": ("U8", window),
                          "ffn_control": ("U8", control)}
                yield name, inputs, {"expert_num": 8, "max_out_shape": [A, BS, K1, H],
                                     "token_dtype": token_dtype, "layer_num": layer_num,
                                     "need_schedule": need_schedule}, {}


def scheduler_cases():
    for policy, group in (("any", 1), ("groups", 2), ("groups", 3), ("all", 1)):
        for run_flag in (0, 1):
            for polling_index in range(M):
                name = f"ffn_worker_scheduler.{policy}{group}.{run_flag}.{polling_index}"
                rng = generator(name)
                c = context(polling_index=polling_index, run_flag=run_flag, out_num=2)
                window = np.zeros(c.ffn_data, np.uint8)
                descriptors = rng.integers(-1, 6, (A * M, 2 + BS * K1)).astype(np.int32)
                descriptors[:, 0] = [0, 5, 7, 0, 1, 9]
                put(window, 0, descriptors)
                control = rng.integers(0, 256, 12 * A + 4 * A * BS * K1, dtype=np.uint8)
                yield name, {"schedule_context": c.tensor(), "ffn_window": ("U8", window),
                             "ffn_control": ("U8", control)}, {"policy": policy,
                                                               "sync_group_size": group}, {}
    for num_tokens in (-1, 0, 2, BS):
        for num_set in (0, 2 * K1, BS * K1):
            name = f"attention_worker_scheduler.{num_tokens}.{num_set}"
            c = context()
            flags = np.zeros((M, BS * K1), np.int32)
            flags[0, :num_set] = 3
            window = np.zeros(c.attention_data, np.uint8)
            put(window, 0, flags)
            yield name, {"schedule_context": c.tensor(), "attention_window": ("U8", window)}, {
                "num_tokens": num_tokens}, {}


def combine_cases():
    for token_dtype in (0, 1):
        for need_schedule in (0, 1):
            for has_ids in (False, True):
                name = f"attention_worker_combine.{token_dtype}.{need_schedule}.{has_ids}"
                rng = generator(name)
                c = context()
                dtype = "BF16" if token_dtype == 1 else "F16"
                data = raw(rows(rng, dtype, c.attention_data_size // 2)[1])
                flags = raw(np.full(c.attention_data // 4, 3, np.int32))
                inputs = {"schedule_context": c.tensor(),
                          "attention_window": ("U8", np.concatenate([flags, data])),
                          "expert_scales": ("F32", rng.normal(0, 1, (3, 2)).astype(F32)),
                          "layer_id": ("I32", np.array([41], np.int32))}
                if has_ids:
                    inputs["expert_ids"] = ids(rng, -1, 8, 3, 2)
                yield name, inputs, {"hidden_size": H, "token_dtype": token_dtype,
                                     "need_schedule": need_schedule}, {}


def dispatch_cases():
    for dtype in ("BF16", "F16"):
        for mode in ("copy", "quant", "smooth"):
            for sync_flag in (0, 1):
                name = f"attention_to_ffn.{dtype}.{mode}.{sync_flag}"
                rng = generator(name)
                c = context()
                table = rng.integers(0, 4, (2, 6, 2, 2)).astype(np.int32)
                table[..., 1] = np.arange(12).reshape(6, 2)
                table[:, ::2, 1, 0] = -1
                inputs = {"schedule_context": c.tensor(),
                          "ffn_windows": ("U8", np.zeros((4, c.ffn_data + c.ffn_data_size),
                                                         np.uint8)),
                          "x": rows(rng, dtype, 3, H), "expert_ids": ids(rng, -1, 8, 3, 2),
                          "expert_rank_table": ("I32", table)}
                if mode == "smooth":
                    inputs["scales"] = ("F32", rng.uniform(0.5, 2, (2, 6, H)).astype(F32))
                if sync_flag == 0:
                    inputs["active_mask"] = ("BOOL", np.array([True, True, False]))
                yield name, inputs, {"session_id": 1, "micro_batch_id": 1, "layer_id": 1,
                                     "quant_mode": -1 if mode == "copy" else 1,
                                     "sync_flag": sync_flag, "round": 9}, {}


def return_cases():
    for dtype in ("BF16", "F16", "F32"):
        for token_dtype in (0, 1):
            name = f"ffn_to_attention.{dtype}.{token_dtype}"
            rng = generator(name)
            c = context()
            slots = rng.permutation(A * M * BS * K1)[:20].astype(np.int32)
            inputs = {"schedule_context": c.tensor(),
                      "attention_windows": ("U8", np.zeros(
                          (A, c.attention_data + c.attention_data_size), np.uint8)),
                      "x": rows(rng, dtype, 20, H),
                      "session_ids": ("I32", slots // (M * BS * K1)),
                      "micro_batch_ids": ("I32", slots // (BS * K1) % M),
                      "token_ids": ("I32", slots // K1 % BS),
                      "expert_offsets": ("I32", slots % K1)}
            if token_dtype == 1:
                inputs["actual_token_num"] = ("I64", np.array([17], np.int64))
                inputs["routing_weights"] = ("F32", rng.normal(0, 1, 20).astype(F32))
                inputs["rounds"] = ids(rng, 1, 100, A, M)
            yield name, inputs, {"token_dtype": token_dtype}, {}


def all_cases():
    for family in (gating_cases, init_routing_cases, finalize_cases, swiglu_cases, batching_cases,
                   scheduler_cases, combine_cases, dispatch_cases, return_cases):
        yield from family()


def difference(name: str, actual: np.ndarray, expected: np.ndarray, tolerance: dict) -> str:
    """What is wrong with one tensor, or nothing."""
    if actual.ndim != expected.ndim or len(actual) < len(expected):
        return f"{name}: shape {actual.shape}, expected {expected.shape}"
    actual = actual[:len(expected)]
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{name}: {actual.dtype} {actual.shape}, expected {expected.dtype} {expected.shape}"
    if not tolerance:
        wrong = np.frombuffer(actual.tobytes(), np.uint8) != np.frombuffer(
            expected.tobytes(), np.uint8)
        if not wrong.any():
            return ""
        place = int(np.argmax(wrong)) // actual.itemsize
        where = np.unravel_index(place, actual.shape)
        return f"{name}{list(map(int, where))} is {actual[where]}, expected {expected[where]}"
    if actual.dtype == np.uint16:
        actual, expected = st.from_bf16_bits(actual), st.from_bf16_bits(expected)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    bound = tolerance.get("relative", 0) * np.abs(b) + tolerance.get("steps", 0)
    bound = bound + tolerance.get("of_largest", 0) * np.nanmax(np.abs(b), initial=0)
    same = (np.abs(a - b) <= bound) | (np.isnan(a) & np.isnan(b))
    return "" if same.all() else f"{name}: off by {np.nanmax(np.abs(a - b)[~same])}"


def compare(actual_path: pathlib.Path, expected_path: pathlib.Path) -> list[str]:
    """Everything in which an operator's outputs differ from what is expected."""
    tolerance = json.loads(st.read_metadata(expected_path)["tolerance"])
    actual, expected = st.read(actual_path, False), st.read(expected_path, False)
    problems = []
    for name, want in expected.items():
        if name not in actual:
            problems += [f"{name} is missing"] if want.size else []
            continue
        problems.append(difference(name, actual[name], want, tolerance.get(name, {})))
    return [problem for problem in problems if problem]


def write_all(folder: pathlib.Path) -> list[str]:
    """Writes every case; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, inputs, attrs, tolerance in all_cases():
        operator = name.split(".")[0]
        st.write(folder / f"{name}.in.safetensors", inputs,
                 {"operator": operator, "attributes": json.dumps(attrs)})
        with np.errstate(all="ignore"):
            expected = routing_np.OPERATORS[operator](inputs, attrs)
        st.write(folder / f"{name}.expected.safetensors", expected,
                 {"tolerance": json.dumps(tolerance)})
        names.append(name)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the vectors")
    parser.add_argument("--check", metavar="AFD_OP", help="the tool to run every case through")
    parser.add_argument("--reference", action="store_true", help="check the reference operators")
    args = parser.parse_args()
    if args.check is None:
        print(f"{len(write_all(args.out))} cases")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or pathlib.Path(temporary)
        names = write_all(folder)
        if args.reference:
            # The schedulers have one implementation.
            names = [name for name in names if "_scheduler." not in name]
        return int(through_afd_op.check(args.check, folder, names, compare, args.reference) > 0)


if __name__ == "__main__":
    sys.exit(main())
