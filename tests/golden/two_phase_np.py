"""The two-phase dispatch in NumPy, written from its seed and the specification alone, and its cases.

    two_phase_np.py --out DIR            writes NAME.in.safetensors and NAME.expected.safetensors
    two_phase_np.py --check AFD_OP       runs every case through `afd-op run` and compares all bytes
                    [--reference]        the reference operators instead of the fast ones

An operator is a function of (inputs, attributes); inputs and results map a tensor's name to
(safetensors dtype, array), BF16 as uint16 words. The input file's metadata hold "operator" and
"attributes" (JSON). Seeds are fixed, and every row is random, so that a row in the wrong place
shows. All results are exact: copies, integers, and fp32 sums whose order is specified.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

import safetensors_np as st
import through_afd_op

F32 = np.float32


def widen(tensor: tuple[str, np.ndarray]) -> np.ndarray:
    dtype, array = tensor
    return st.from_bf16_bits(array) if dtype == "BF16" else array.astype(F32)


def narrow(dtype: str, values: np.ndarray) -> np.ndarray:
    return st.to_bf16_bits(values) if dtype == "BF16" else values.astype(st.NUMPY_OF[dtype])


def quantise(v: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Dynamic quantisation of one row: int8 values and their scale."""
    if not np.all(np.isfinite(v)):
        return np.zeros(len(v), np.int8), F32(np.nan)
    scale = F32(np.abs(v).max(initial=0)) / F32(127)
    if scale == 0:
        return np.zeros(len(v), np.int8), scale
    return np.clip(np.rint(v / scale), -127, 127).astype(np.int8), scale


class Routing:
    """Logical expert, rank and local id of every slot (token, k) of one sender; -1: masked."""

    def __init__(self, inputs, attrs):
        ids = inputs["expert_ids"][1]
        table = inputs["expert_rank_table"][1][attrs.get("layer_id", 0)]
        shared = attrs.get("shared_expert_num", 0)
        routed = len(table) - shared
        # A pick of a shared expert is one like any other, beside the slot that every token has.
        experts = np.concatenate([np.where((ids >= 0) & (ids < len(table)), ids, -1),
                                  np.tile(np.arange(routed, routed + shared), (len(ids), 1))], 1)
        if "active_mask" in inputs:
            experts[~inputs["active_mask"][1]] = -1
        chosen = np.full((len(table) + 1, 2), -1)
        for expert, replicas in enumerate(table):
            present = [pair for pair in replicas.tolist() if pair[0] >= 0]
            chosen[expert] = present[attrs.get("session_id", 0) % len(present)]
        self.width = ids.shape[1] + shared
        self.experts = experts.reshape(-1).astype(int)
        self.places = chosen[self.experts]  # Expert -1 is the row behind the table.
        self.shape = (attrs["num_ranks"], attrs["num_local_experts"])
        size = max(1, attrs.get("block_size", 8192) * self.width)
        self.blocks = [range(first, min(first + size, len(self.experts)))
                       for first in range(0, len(self.experts), size)]


def two_phase_layout(inputs, attrs):
    routing = Routing(inputs, attrs)
    indices = np.full(len(routing.experts), -1, np.int32)
    counts = np.zeros(routing.shape, np.int32)
    for block in routing.blocks:
        sent = [(*routing.places[slot], slot) for slot in block if routing.experts[slot] >= 0]
        for place, (rank, local, slot) in enumerate(sorted(sent)):
            indices[block.start + place] = slot
            counts[rank, local] += 1
    flat = counts.reshape(-1).astype(np.int64)
    return {"sorted_indices": ("I32", indices), "send_counts": ("I32", counts),
            "send_offsets": ("I64", (np.cumsum(flat) - flat).reshape(routing.shape))}


def two_phase_offsets(inputs, attrs):
    counts = inputs["send_counts"][1].astype(np.int64)
    by_rank = counts.transpose(1, 2, 0)  # Rank, local expert, sender: the order of the rows.
    flat = by_rank.reshape(len(by_rank), -1)
    first = np.cumsum(flat, axis=1) - flat
    total = flat.sum(axis=1)
    if attrs.get("one_buffer", False):
        first = first + (np.cumsum(total) - total)[:, None]
    return {"base": ("I64", first.reshape(by_rank.shape).transpose(2, 0, 1)),
            "recv_counts": ("I64", counts.sum(axis=2).T), "recv_total": ("I64", total),
            "group_list": ("I64", by_rank.sum(axis=2))}


def walk(inputs, attrs):
    """(slot, rank, row) of the slots of the blocks asked for; advances a copy of done."""
    routing = Routing(inputs, attrs)
    first = attrs.get("first_block", 0)
    num_blocks = attrs.get("num_blocks", -1)
    blocks = routing.blocks[first:] if num_blocks < 0 else routing.blocks[first:first + num_blocks]
    done = inputs["done"][1].copy() if "done" in inputs else np.zeros(routing.shape, np.int64)
    sent = []
    for block in blocks:
        for slot in inputs["sorted_indices"][1][block.start:block.stop]:
            if slot >= 0:
                rank, local = routing.places[slot]
                sent.append((int(slot), int(inputs["base"][1][rank, local] + done[rank, local])))
                done[rank, local] += 1
    return routing, blocks, sent, {"done": ("I64", done)} if "done" in inputs else {}


def two_phase_payload(inputs, attrs):
    routing, _, sent, result = walk(inputs, attrs)
    dtype, rows = inputs["recv_x"][0], inputs["recv_x"][1].copy()
    scales = inputs["recv_scale"][1].copy() if "recv_scale" in inputs else None
    for slot, row in sent:
        token = slot // routing.width
        if attrs.get("quant_mode", -1) == -1:
            rows[row] = inputs["x"][1][token]
            continue
        v = widen(inputs["x"])[token]
        if "scales" in inputs:
            v = v * inputs["scales"][1][attrs.get("layer_id", 0), routing.experts[slot]]
        rows[row], scales[row] = quantise(v)
    result["recv_x"] = (dtype, rows)
    if scales is not None:
        result["recv_scale"] = ("F32", scales)
    return result


def two_phase_combine(inputs, attrs):
    """Only for all blocks at once or from the first one: y ends with the last token written."""
    routing, blocks, sent, result = walk(inputs, attrs)
    rows = widen(inputs["recv_y"])
    weights, top_k = inputs["expert_scales"][1], inputs["expert_scales"][1].shape[1]
    row_of_slot = dict(sent)
    last = blocks[-1].stop // max(routing.width, 1) if blocks else 0
    sums = np.zeros((last, rows.shape[1]), F32)
    for slot in range(last * routing.width):
        token, k = divmod(slot, routing.width)
        if slot in row_of_slot:
            weight = weights[token, k] if k < top_k else F32(1)
            sums[token] = sums[token] + rows[row_of_slot[slot]] * weight
    dtype = inputs["recv_y"][0]
    return {**result, "y": (dtype, narrow(dtype, sums))}


OPERATORS = {function.__name__: function for function in (
    two_phase_layout, two_phase_offsets, two_phase_payload, two_phase_combine)}

# senders, tokens, K, S, E, ranks, replicas, H
SIZES = {"none": (1, 0, 2, 0, 3, 2, 1, 5), "one": (1, 1, 1, 0, 1, 1, 1, 1),
         "few": (3, 13, 3, 1, 7, 2, 2, 21), "dense": (1, 17, 0, 1, 0, 3, 3, 8),
         "many": (2, 101, 4, 2, 29, 5, 3, 33)}


def make_table(rng, experts: int, ranks: int, replicas: int) -> tuple[np.ndarray, int]:
    """Two layers; the second is used. Local ids are dealt out at random."""
    table = np.full((2, experts, replicas, 2), -1, np.int32)
    free = [list(rng.permutation(2 * experts * replicas)) for _ in range(ranks)]
    for expert in range(experts):
        chosen = rng.permutation(ranks)[:rng.integers(1, min(ranks, replicas) + 1)]
        for i, rank in enumerate(chosen):
            table[1, expert, i] = rank, free[rank].pop()
    return table, int(table[..., 1].max(initial=0)) + 1


def dispatch_cases(size: str, block_size: int, variant: str, dtype: str):
    """Both phases and the way back of every sender, one case an operator call."""
    suffix = f"{size}.block{block_size}.{variant}.{dtype}"
    rng = np.random.default_rng([ord(c) for c in suffix])
    senders, tokens, k, shared, experts, ranks, replicas, hidden = SIZES[size]
    table, local = make_table(rng, experts + shared, ranks, replicas)
    attrs = {"num_ranks": ranks, "num_local_experts": local, "shared_expert_num": shared,
             "layer_id": 1, "block_size": block_size}
    layouts, counts = [], []
    for sender in range(senders):
        # One below the experts, the shared ones, and one above.
        ids = rng.integers(-1, experts + shared + 1, (tokens, k), dtype=np.int32)
        inputs = {"expert_ids": ("I32", ids), "expert_rank_table": ("I32", table)}
        masked = dict(inputs)
        if variant != "copy":
            masked["active_mask"] = ("BOOL", rng.random(tokens) < 0.7)
        of_sender = {**attrs, "session_id": sender}
        name = f"two_phase_layout.{suffix}.{sender}"
        yield name, masked, of_sender
        layout = two_phase_layout(masked, of_sender)
        layouts.append((of_sender, {**inputs, "sorted_indices": layout["sorted_indices"],
                                    "send_counts": layout["send_counts"]}))
        counts.append(layout["send_counts"][1])
    exchange = {"send_counts": ("I32", np.stack(counts))}
    for one_buffer in (False, True):
        yield (f"two_phase_offsets.{suffix}.{int(one_buffer)}", exchange,
               {"one_buffer": one_buffer})
    grants = two_phase_offsets(exchange, {"one_buffer": True})
    num_rows = int(grants["recv_total"][1].sum())
    quantised = variant in ("quant", "smooth")
    buffers = {"recv_x": ("I8" if quantised else dtype,
                          np.zeros((num_rows, hidden),
                                   np.int8 if quantised else st.NUMPY_OF[dtype]))}
    if quantised:
        buffers["recv_scale"] = ("F32", np.zeros(num_rows, F32))
    for sender, (of_sender, inputs) in enumerate(layouts):
        inputs = {**inputs, "base": ("I64", grants["base"][1][sender])}
        x = (dtype, narrow(dtype, rng.normal(0, 1, (tokens, hidden)).astype(F32)))
        sending = {**inputs, "x": x, **buffers}
        of_payload = {**of_sender, "quant_mode": 1 if quantised else -1}
        if variant == "smooth":
            sending["scales"] = ("F32", rng.uniform(
                0.5, 2, (2, experts + shared, hidden)).astype(F32))
        yield f"two_phase_payload.{suffix}.{sender}", sending, of_payload
        result = two_phase_payload(sending, of_payload)
        buffers = {name: result[name] for name in buffers}
        yield from way_back(f"two_phase_combine.{suffix}.{sender}", rng, inputs, of_sender, dtype,
                            (num_rows, hidden), (tokens, k))


def way_back(name, rng, inputs, attrs, dtype, rows, weights):
    if dtype == "F32":
        return
    back = {**inputs, "recv_y": (dtype, narrow(dtype, rng.normal(0, 1, rows).astype(F32))),
            "expert_scales": ("F32", rng.normal(0, 1, weights).astype(F32))}
    yield name, back, attrs
    if weights[0] > attrs["block_size"]:
        shape = (attrs["num_ranks"], attrs["num_local_experts"])
        yield (f"{name}.first_block", {**back, "done": ("I64", np.zeros(shape, np.int64))},
               {**attrs, "num_blocks": 1})


def all_cases():
    for size in SIZES:
        for block_size in (1, 7, 8192):
            for variant, dtype in (("copy", "F32"), ("mask", "F16"), ("quant", "BF16"),
                                   ("smooth", "F16")):
                yield from dispatch_cases(size, block_size, variant, dtype)


def write_all(folder: pathlib.Path) -> list[str]:
    """Writes every case; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, inputs, attrs in all_cases():
        operator = name.split(".")[0]
        st.write(folder / f"{name}.in.safetensors", inputs,
                 {"operator": operator, "attributes": json.dumps(attrs)})
        st.write(folder / f"{name}.expected.safetensors", OPERATORS[operator](inputs, attrs))
        names.append(name)
    return names


def compare(actual_path: pathlib.Path, expected_path: pathlib.Path) -> list[str]:
    """Everything in which an operator's outputs differ from what is expected."""
    actual, expected = st.read(actual_path, False), st.read(expected_path, False)
    problems = []
    for name, want in expected.items():
        have = actual.get(name)
        if want.size == 0:
            continue
        # Tokens of later blocks are untouched and not compared.
        if have is None or have.dtype != want.dtype or have.shape[1:] != want.shape[1:]:
            problems.append(f"{name} is missing or of another shape")
        elif have[:len(want)].tobytes() != want.tobytes():
            problems.append(f"{name} differs")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the vectors")
    parser.add_argument("--check", metavar="AFD_OP", help="the tool to run every case through")
    parser.add_argument("--reference", action="store_true", help="check the reference operators")
    args = parser.parse_args()
    if args.check is None and args.out is None:
        parser.error("--out or --check is needed")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or pathlib.Path(temporary)
        if args.check is None:
            print(f"{len(write_all(folder))} cases")
            return 0
        names = write_all(folder)
        return int(through_afd_op.check(args.check, folder, names, compare, args.reference) > 0)


if __name__ == "__main__":
    sys.exit(main())
