"""The routing operators in NumPy, written from the seeds and the specification alone.

An operator is a function of (inputs, attrs): inputs maps a tensor's name to (safetensors dtype,
array), BF16 as uint16 words; the result maps the names of outputs and of tensors changed in place
the same way. Rows that an operator leaves untouched are cut off, so a result may be shorter than
the operator's output tensor. All float arithmetic is float32, one rounding per operation.
"""
import struct

import numpy as np

import safetensors_np as st

F32 = np.float32
MASKED = 2147483647


def widen(tensor: tuple[str, np.ndarray]) -> np.ndarray:
    """Values as float32."""
    dtype, array = tensor
    return st.from_bf16_bits(array) if dtype == "BF16" else array.astype(F32)


def narrow(dtype: str, values: np.ndarray) -> np.ndarray:
    """float32 values, rounded once to a stored dtype."""
    if dtype == "BF16":
        return st.to_bf16_bits(values)
    return values.astype(st.NUMPY_OF[dtype])


def raw(array: np.ndarray) -> np.ndarray:
    """The bytes of an array."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)


def quantise(v: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Dynamic quantisation of one row: int8 values and their scale."""
    if not np.all(np.isfinite(v)):
        return np.zeros(len(v), np.int8), F32(np.nan)
    scale = F32(np.abs(v).max(initial=0)) / F32(127)
    if scale == 0:
        return np.zeros(len(v), np.int8), scale
    return np.clip(np.rint(v / scale), -127, 127).astype(np.int8), scale


def moe_gating_top_k(inputs, attrs):
    logits = widen(inputs["x"])
    num_experts, top_k = logits.shape[1], attrs["k"]
    groups = attrs.get("n_group", 1)
    bias = widen(inputs["bias"]) if "bias" in inputs else np.zeros(num_experts, F32)
    mode = attrs.get("group_select_mode", 1 if "bias" in inputs else 0)
    weights = np.empty((len(logits), top_k), F32)
    picks = np.empty((len(logits), top_k), np.int32)
    for n, row in enumerate(logits):
        if attrs["norm_type"] == 1:
            scores = (1 / (1 + np.exp(-row.astype(np.float64)))).astype(F32)
        elif attrs["norm_type"] == 2:
            scores = np.sqrt(np.logaddexp(0, row.astype(np.float64))).astype(F32)
        else:
            powers = np.exp(row.astype(np.float64) - row.max(initial=-np.inf))
            scores = (powers / powers.sum()).astype(F32)
        choice = scores + bias
        if np.isnan(choice).any():
            picks[n], weights[n] = np.arange(top_k), np.nan
            continue
        best = -np.sort(-choice.reshape(groups, -1), axis=1)
        rank = best[:, 0] if mode == 0 else best[:, :2].sum(axis=1, dtype=F32)
        kept = np.argsort(-rank, kind="stable")[:attrs.get("topk_group", 1)]
        allowed = np.isin(np.arange(num_experts) // (num_experts // groups), kept)
        order = [e for e in np.argsort(-choice, kind="stable") if allowed[e]]
        picks[n] = order[:top_k]
        chosen = scores[picks[n]]
        if attrs.get("norm_topk_prob", False):
            total = F32(0)
            for value in chosen:
                total = total + value
            chosen = chosen / (total + F32(1e-20))
        weights[n] = chosen * F32(attrs.get("routed_scaling_factor", 1.0))
    return {"y": ("F32", weights), "expert_idx": ("I32", picks)}


def moe_init_routing_v3(inputs, attrs):
    dtype, x = inputs["x"]
    ids = inputs["expert_idx"][1]
    top_k, num_experts = ids.shape[1], attrs["expert_num"]
    start, end = attrs.get("active_expert_range") or (0, num_experts)
    drop_pad, quant = attrs.get("drop_pad_mode", 0) == 1, attrs.get("quant_mode", -1)
    flat = ids.reshape(-1)
    active = (flat >= start) & (flat < end)
    order = np.array([f for f in np.argsort(flat, kind="stable") if active[f]], np.int64)
    counts = np.array([(flat == e).sum() for e in range(start, end)], np.int64)

    def row_of(f):
        """The row of a slot, and its scale."""
        n = f // top_k
        if quant == -1:
            return x[n], inputs["scale"][1][n] if "scale" in inputs else F32(0)
        v = widen((dtype, x[n]))
        if quant == 0:
            t = v * inputs["scale"][1][0]
            return np.clip(np.rint(t + inputs["offset"][1][0]), -128, 127).astype(np.int8), F32(0)
        if "scale" in inputs:
            smooth = inputs["scale"][1]
            v = v * smooth[0 if len(smooth) == 1 else flat[f] - start]
        return quantise(v)

    index = np.full(len(flat), -1, np.int32)
    if drop_pad:
        capacity = attrs["expert_capacity"]
        rows = np.zeros((num_experts * capacity, x.shape[1]), np.int8 if quant != -1 else x.dtype)
        scales = np.zeros(len(rows), F32)
        taken = np.zeros(num_experts, int)
        for f in order:
            if taken[flat[f]] < capacity:
                index[f] = flat[f] * capacity + taken[flat[f]]
                rows[index[f]], scales[index[f]] = row_of(f)
                taken[flat[f]] += 1
        rows = rows.reshape(num_experts, capacity, -1)
    else:
        limit = attrs.get("active_num", -1)
        kept = order[:limit] if limit > 0 else order
        made = [row_of(f) for f in kept]
        rows = np.array([row for row, _ in made], np.int8 if quant != -1 else x.dtype)
        rows = rows.reshape(len(kept), x.shape[1])
        scales = np.array([scale for _, scale in made], F32)
        index[order] = np.arange(len(order))
        if attrs.get("row_idx_type", 0) == 1:
            index = order.astype(np.int32)
    out = {"expanded_x": ("I8" if quant != -1 else dtype, rows), "expanded_row_idx": ("I32", index)}
    if attrs.get("expert_tokens_num_flag", False):
        kind = attrs.get("expert_tokens_num_type", 0)
        if kind == 0:
            counts = np.cumsum(counts)
        elif kind == 2:
            pairs = [(e, c) for e, c in zip(range(start, end), counts) if c > 0]
            counts = np.zeros((num_experts, 2), np.int64)
            counts[:len(pairs)] = np.array(pairs, np.int64).reshape(-1, 2)
        out["expert_tokens_count_or_cumsum"] = ("I64", counts)
    if quant == 1 or (quant == -1 and "scale" in inputs):
        out["expanded_scale"] = ("F32", scales)
    return out


def moe_finalize_routing(inputs, attrs):
    del attrs  # The form of expanded_x says the mode.
    dtype, rows = inputs["expanded_x"]
    rows = widen((dtype, rows)).reshape(-1, rows.shape[-1])
    known = [n for n in ("x1", "x2", "scales", "expert_idx") if n in inputs]
    num_tokens = len(inputs[known[0]][1])
    index = inputs["expanded_row_idx"][1].reshape(num_tokens, -1)
    out = np.zeros((num_tokens, rows.shape[1]), F32)
    if "x1" in inputs:
        out = widen(inputs["x1"])
    if "x2" in inputs:
        out = out + widen(inputs["x2"])
    for n in range(num_tokens):
        for k in range(index.shape[1]):
            if index[n, k] < 0:
                continue
            row = rows[index[n, k]]
            if "bias" in inputs:
                row = row + widen(inputs["bias"])[inputs["expert_idx"][1][n, k]]
            if "scales" in inputs:
                row = widen(inputs["scales"])[n, k] * row
            out[n] = out[n] + row
    return {"out": (dtype, narrow(dtype, out))}


def grouped_matmul_swiglu(inputs, attrs):
    dtype, x = inputs["x"]
    weight = inputs["weight"][1]
    width = weight.shape[2] // 2
    groups, kind = inputs["group_list"][1], attrs.get("group_list_type", 0)
    if kind == 2:
        pairs = [(int(e), int(c)) for e, c in groups if c > 0]
    else:
        pairs = list(enumerate(np.diff(groups, prepend=0) if kind == 0 else groups))
    out, row = [], 0
    for expert, count in pairs:
        for i in range(row, row + count):
            if dtype == "I8":
                exact = x[i].astype(np.int64) @ weight[expert].astype(np.int64)
                sums = exact.astype(F32) * inputs["x_scale"][1][i]
                sums = sums * inputs["weight_scale"][1][expert]
            else:
                w = widen(("BF16", weight[expert])).astype(np.float64)
                sums = (widen(("BF16", x[i])).astype(np.float64) @ w).astype(F32)
            gate, up = st.round_bf16(sums[:width]), st.round_bf16(sums[width:])
            silu = (gate / (1 + np.exp(-gate.astype(np.float64)))).astype(F32)
            out.append(st.round_bf16(silu * up))
        row += count
    h = np.array(out, F32).reshape(len(out), width)
    if attrs.get("quant_mode", -1) == -1:
        return {"output": ("BF16", st.to_bf16_bits(h))}
    made = [quantise(v) for v in h]
    return {"output": ("I8", np.array([q for q, _ in made], np.int8).reshape(h.shape)),
            "output_scale": ("F32", np.array([s for _, s in made], F32))}


class Context:
    """The fields of a ScheduleContext, by their offsets in the interface."""
    FIELDS = {"session_num": (0, "I"), "micro_batch_num": (4, "I"), "micro_batch_size": (8, "I"),
              "selected_expert_num": (12, "I"), "expert_num": (16, "I"),
              "attn_to_ffn_token_size": (20, "I"), "ffn_to_attn_token_size": (24, "I"),
              "schedule_mode": (28, "i"), "run_flag": (128, "i"),
              "attention_info": (256, "Q"), "attention_info_size": (264, "Q"),
              "attention_data": (272, "Q"), "attention_data_size": (280, "Q"),
              "micro_batch_id": (288, "I"),
              "ffn_info": (384, "Q"), "ffn_info_size": (392, "Q"),
              "ffn_data": (400, "Q"), "ffn_data_size": (408, "Q"), "polling_index": (416, "Q"),
              "layer_ids": (512, "Q"), "layer_ids_size": (520, "Q"),
              "session_ids": (528, "Q"), "session_ids_size": (536, "Q"),
              "micro_batch_ids": (544, "Q"), "micro_batch_ids_size": (552, "Q"),
              "expert_ids": (560, "Q"), "expert_ids_size": (568, "Q"), "out_num": (576, "I")}

    def __init__(self, data: bytes = bytes(1024)):
        object.__setattr__(self, "data", bytearray(data))

    def __getattr__(self, name):
        offset, code = self.FIELDS[name]
        return struct.unpack_from("<" + code, self.data, offset)[0]

    def __setattr__(self, name, value):
        offset, code = self.FIELDS[name]
        struct.pack_into("<" + code, self.data, offset, value)

    def tensor(self):
        return ("I8", np.frombuffer(bytes(self.data), np.int8))


def words(buffer: np.ndarray, offset: int, count: int) -> np.ndarray:
    """int32 words of a byte buffer, as a copy."""
    return np.frombuffer(buffer.tobytes(), np.int32, count, offset).copy()


def ffn_worker_batching(inputs, attrs):
    c = Context(inputs["schedule_context"][1].tobytes())
    window, control = inputs["ffn_window"][1], inputs["ffn_control"][1].copy()
    slots = c.micro_batch_size * c.selected_expert_num
    hidden, experts = attrs["max_out_shape"][3], attrs["expert_num"]
    if attrs.get("need_schedule", 0) == 1:
        taken = scan(c, window, slots)
        c.out_num = len(taken)
        lists = {"session_ids": [t[0] for t in taken], "micro_batch_ids": [t[1] for t in taken],
                 "layer_ids": [t[2] for t in taken], "expert_ids": [i for t in taken for i in t[3]]}
        for name, values in lists.items():
            if getattr(c, name + "_size") > 0:
                at = getattr(c, name)
                data = raw(np.array(values, np.int32))
                control[at:at + len(data)] = data
    else:
        n = c.out_num
        layers = words(control, c.layer_ids, n) if attrs.get("layer_num", 0) > 0 else [0] * n
        ids = words(control, c.expert_ids, n * slots).reshape(n, slots)
        taken = list(zip(words(control, c.session_ids, n), words(control, c.micro_batch_ids, n),
                         layers, ids))
    layer_num = attrs.get("layer_num", 0)
    limit = experts // layer_num if layer_num > 0 else experts
    rows = []
    for session, m, layer, ids in taken:
        if layer_num > 0 and not 0 <= layer < layer_num:
            continue
        for slot in range(slots):
            if 0 <= ids[slot] < limit:
                key = layer * limit + ids[slot] if layer_num > 0 else ids[slot]
                rows.append((int(key), int(session), int(m), slot))
    rows.sort(key=lambda row: row[0])  # Stable.
    dtype = {0: "F16", 1: "BF16", 2: "I8"}[attrs.get("token_dtype", 0)]
    size = hidden * (1 if dtype == "I8" else 2)
    places = [c.ffn_data + ((s * c.micro_batch_num + m) * slots + i) * c.attn_to_ffn_token_size
              for _, s, m, i in rows]
    y = b"".join(window[p:p + size].tobytes() for p in places)
    group_list = np.zeros((experts, 2), np.int64)
    keys, counts = np.unique([row[0] for row in rows], return_counts=True)
    group_list[:len(keys), 0], group_list[:len(keys), 1] = keys, counts
    column = lambda values: ("I32", np.array(values, np.int32))
    out = {"y": (dtype, np.frombuffer(y, st.NUMPY_OF[dtype]).reshape(len(rows), hidden)),
           "group_list": ("I64", group_list), "session_ids": column([r[1] for r in rows]),
           "micro_batch_ids": column([r[2] for r in rows]),
           "token_ids": column([r[3] // c.selected_expert_num for r in rows]),
           "expert_offsets": column([r[3] % c.selected_expert_num for r in rows]),
           "actual_token_num": ("I64", np.array([len(rows)])),
           "schedule_context": c.tensor(), "ffn_control": ("U8", control)}
    if dtype == "I8":
        scales = b"".join(window[p + size:p + size + 4].tobytes() for p in places)
        out["dynamic_scale"] = ("F32", np.frombuffer(scales, F32))
    return out


def scan(c, window, slots):
    """The ready sessions of the first micro-batch that has one: (session, m, layer, ids)."""
    for d in range(c.micro_batch_num if c.run_flag else 0):
        m = (c.polling_index + d) % c.micro_batch_num
        taken = []
        for session in range(c.session_num):
            at = c.ffn_info + (session * c.micro_batch_num + m) * (2 + slots) * 4
            descriptor = words(window, at, 2 + slots)
            if descriptor[0] != 0:
                taken.append((session, m, int(descriptor[1]), descriptor[2:]))
        if taken:
            c.polling_index = (m + 1) % c.micro_batch_num
            return taken
    return []


def ffn_worker_scheduler(inputs, attrs):
    """Stateless: every non-zero flag is ready, and at most one descriptor of a session is taken."""
    c = Context(inputs["schedule_context"][1].tobytes())
    window, control = inputs["ffn_window"][1], inputs["ffn_control"][1].copy()
    policy, slots = attrs.get("policy", "any"), c.micro_batch_size * c.selected_expert_num
    order = [(c.polling_index + d) % c.micro_batch_num for d in range(c.micro_batch_num)]
    choice = {}
    for session in range(c.session_num):
        for m in order[:1] if policy == "all" else order:
            at = c.ffn_info + (session * c.micro_batch_num + m) * (2 + slots) * 4
            descriptor = words(window, at, 2 + slots)
            if descriptor[0] != 0:
                choice[session] = (session, m, int(descriptor[1]), descriptor[2:])
                break
    group = attrs.get("sync_group_size", 1) if policy == "groups" else 1
    taken = []
    for begin in range(0, c.session_num, group):
        sessions = range(begin, min(begin + group, c.session_num))
        if all(session in choice for session in sessions):
            taken += [choice[session] for session in sessions]
    if c.run_flag == 0:
        taken = []
    elif policy == "all":
        c.polling_index = (c.polling_index + 1) % c.micro_batch_num
    c.out_num = len(taken)
    columns = {"session_ids": [t[0] for t in taken], "micro_batch_ids": [t[1] for t in taken],
               "layer_ids": [t[2] for t in taken], "expert_ids": [i for t in taken for i in t[3]]}
    for name, values in columns.items():
        if getattr(c, name + "_size") > 0:
            data = raw(np.array(values, np.int32))
            control[getattr(c, name):getattr(c, name) + len(data)] = data
    return {"schedule_context": c.tensor(), "ffn_control": ("U8", control)}


def attention_worker_scheduler(inputs, attrs):
    c = Context(inputs["schedule_context"][1].tobytes())
    num_tokens = attrs.get("num_tokens", -1)
    num_tokens = c.micro_batch_size if num_tokens < 0 else num_tokens
    m = (c.micro_batch_id + 1) % c.micro_batch_num
    lane = c.micro_batch_size * c.selected_expert_num
    flags = words(inputs["attention_window"][1], c.attention_info + m * lane * 4,
                  num_tokens * c.selected_expert_num)
    is_taken = bool(c.run_flag and (flags != 0).all())
    if is_taken:
        c.micro_batch_id = m
    return {"schedule_context": c.tensor(),
            "taken": ("I32", np.array([m if is_taken else -1], np.int32))}


def attention_worker_combine(inputs, attrs):
    c = Context(inputs["schedule_context"][1].tobytes())
    window, scales = inputs["attention_window"][1], inputs["expert_scales"][1]
    num_tokens, top_k = scales.shape
    slots, hidden = c.selected_expert_num, attrs["hidden_size"]
    used = np.ones((num_tokens, slots), bool)
    if "expert_ids" in inputs:
        ids = inputs["expert_ids"][1]
        used[:, :top_k] = (ids >= 0) & (ids < c.expert_num)
    if attrs.get("need_schedule", 0) == 1:
        m = (c.micro_batch_id + 1) % c.micro_batch_num
        at = c.attention_info + m * c.micro_batch_size * slots * 4
        flags = words(window, at, num_tokens * slots).reshape(num_tokens, slots)
        if c.run_flag == 0 or not np.all(flags[used] != 0):
            return {"actual_token_num": ("I64", np.array([0])), "schedule_context": c.tensor()}
        c.micro_batch_id = m
    dtype = "BF16" if attrs.get("token_dtype", 0) == 1 else "F16"
    y = np.zeros((num_tokens, hidden), F32)
    for t in range(num_tokens):
        for k in range(slots):
            place = (c.micro_batch_id * c.micro_batch_size + t) * slots + k
            at = c.attention_data + place * c.ffn_to_attn_token_size
            if used[t, k]:
                row = np.frombuffer(window[at:at + 2 * hidden].tobytes(), st.NUMPY_OF[dtype])
                weight = scales[t, k] if k < top_k else F32(1)
                y[t] = y[t] + widen((dtype, row)) * weight
    return {"y": (dtype, narrow(dtype, y)), "next_layer_id": ("I32", inputs["layer_id"][1] + 1),
            "actual_token_num": ("I64", np.array([num_tokens])), "schedule_context": c.tensor()}


def attention_to_ffn(inputs, attrs):
    c = Context(inputs["schedule_context"][1].tobytes())
    windows = inputs["ffn_windows"][1].copy()
    dtype, x = inputs["x"]
    ids, table = inputs["expert_ids"][1], inputs["expert_rank_table"][1][attrs["layer_id"]]
    slots = c.selected_expert_num
    num_routed = len(table) - (slots - ids.shape[1])
    lane = attrs["session_id"] * c.micro_batch_num + attrs["micro_batch_id"]
    per_lane = c.micro_batch_size * slots
    descriptors = np.full((len(windows), per_lane), MASKED, np.int32)
    ranks = np.full((len(x), slots), -1, np.int32)
    for t in range(len(x)):
        for k in range(slots):
            expert = ids[t, k] if k < ids.shape[1] else num_routed + k - ids.shape[1]
            if k < ids.shape[1] and not 0 <= expert < len(table):
                continue
            if "active_mask" in inputs and not inputs["active_mask"][1][t]:
                continue
            replicas = [r for r in table[expert] if r[0] >= 0]
            rank, local_id = replicas[attrs["session_id"] % len(replicas)]
            ranks[t, k], descriptors[rank, t * slots + k] = rank, local_id
            row = raw(x[t])
            if attrs.get("quant_mode", -1) == 1:
                v = widen((dtype, x[t]))
                if "scales" in inputs:
                    v = v * inputs["scales"][1][attrs["layer_id"], expert]
                q, scale = quantise(v)
                row = np.concatenate([raw(q), raw(np.array([scale], F32))])
            at = c.ffn_data + (lane * per_lane + t * slots + k) * c.attn_to_ffn_token_size
            windows[rank, at:at + len(row)] = row
    for rank, local_ids in enumerate(descriptors):
        if attrs.get("sync_flag", 1) == 1 or (ranks == rank).any():
            head = np.array([attrs.get("round", 1), attrs["layer_id"]], np.int32)
            data = raw(np.concatenate([head, local_ids]))
            at = c.ffn_info + lane * (2 + per_lane) * 4
            windows[rank, at:at + len(data)] = data
    return {"ffn_windows": ("U8", windows), "slot_ranks": ("I32", ranks)}


def ffn_to_attention(inputs, attrs):
    c = Context(inputs["schedule_context"][1].tobytes())
    windows = inputs["attention_windows"][1].copy()
    values = widen(inputs["x"])
    num_rows = inputs["actual_token_num"][1][0] if "actual_token_num" in inputs else len(values)
    dtype = "BF16" if attrs.get("token_dtype", 0) == 1 else "F16"
    for i in range(num_rows):
        session, m, t, k = (int(inputs[name][1][i]) for name in
                            ("session_ids", "micro_batch_ids", "token_ids", "expert_offsets"))
        row = raw(narrow(dtype, values[i]))
        if "routing_weights" in inputs:
            row = np.concatenate([row, raw(inputs["routing_weights"][1][i:i + 1])])
        slot = (m * c.micro_batch_size + t) * c.selected_expert_num + k
        at = c.attention_data + slot * c.ffn_to_attn_token_size
        windows[session, at:at + len(row)] = row
        flag = inputs["rounds"][1][session, m] if "rounds" in inputs else 1
        at = c.attention_info + slot * 4
        windows[session, at:at + 4] = raw(np.array([flag], np.int32))
    return {"attention_windows": ("U8", windows)}


OPERATORS = {f.__name__: f for f in (
    moe_gating_top_k, moe_init_routing_v3, moe_finalize_routing, grouped_matmul_swiglu,
    ffn_worker_batching, ffn_worker_scheduler, attention_worker_scheduler,
    attention_worker_combine, attention_to_ffn, ffn_to_attention)}
