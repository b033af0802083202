# SPDX-License-Identifier: Apache-2.0
"""Calls that once were taken, aborted, allocated first, or were refused with a misleading message.

A table: the call, the parameter that is named, the whole message. Fast path and reference say the
same.
"""
import numpy as np
import pytest

import afd

SIZES = {"session_num": 2, "micro_batch_num": 2, "micro_batch_size": 4, "selected_expert_num": 3,
         "expert_num": 8, "attn_to_ffn_token_size": 512, "ffn_to_attn_token_size": 512}


def context(*fields, **sizes):
    """Fields are (area, name, value), set behind the checks of create()."""
    made = afd.ScheduleContext.create(**{**SIZES, **sizes})
    for area, name, value in fields:
        setattr(getattr(made, area), name, value)
    return made


def ones(*shape):
    return afd.bf16(np.ones(shape, np.float32))


def batching(*fields, **changed):
    segments = context()
    given = {"expert_num": 8, "max_out_shape": [2, 4, 3, 16], "token_dtype": 1, **changed}
    return afd.ffn_worker_batching, {
        "schedule_context": context(*fields),
        "ffn_window": np.zeros(segments.ffn_window_bytes, np.uint8),
        "ffn_control": np.zeros(segments.ffn_control_bytes, np.uint8), **given}


def combine(**changed):
    made = context()
    return afd.attention_worker_combine, {
        "schedule_context": made,
        "attention_window": np.zeros(made.attention_window_bytes, np.uint8),
        "expert_scales": np.ones((1, 2), np.float32), "layer_id": np.zeros(1, np.int32),
        "hidden_size": 8, "token_dtype": 1, **changed}


def returning(**changed):
    made = context()
    return afd.ffn_to_attention, {
        "schedule_context": made,
        "attention_windows": np.zeros((2, made.attention_window_bytes), np.uint8),
        "x": ones(2, 8), "session_ids": np.zeros(2, np.int32),
        "micro_batch_ids": np.zeros(2, np.int32), "token_ids": np.zeros(2, np.int32),
        "expert_offsets": np.arange(2, dtype=np.int32), "token_dtype": 1, **changed}


def prolog(**changed):
    tokens, hidden, rank, latent, heads, plain, rope = 3, 32, 16, 32, 2, 16, 8
    return afd.mla_prolog_v3, {
        "token_x": ones(tokens, hidden), "weight_dq": ones(hidden, rank),
        "weight_uq_qr": ones(rank, heads * (plain + rope)), "weight_uk": ones(heads, plain, latent),
        "weight_dkv_kr": ones(hidden, latent + rope), "rmsnorm_gamma_cq": ones(rank),
        "rmsnorm_gamma_ckv": ones(latent), "rope_sin": ones(tokens, rope),
        "rope_cos": ones(tokens, rope), "kv_cache": ones(2, 16, 1, latent),
        "kr_cache": ones(2, 16, 1, rope), "cache_index": np.arange(tokens, dtype=np.int64),
        **changed}


def per_tile(**changed):
    return prolog(**{
        "weight_quant_mode": 1, "kv_cache_quant_mode": 3, "ckvkr_repo_mode": 1,
        "quant_scale_repo_mode": 1, "weight_uq_qr": np.ones((16, 48), np.int8),
        "dequant_scale_w_uq_qr": np.ones((1, 48), np.float32), "tile_size": 32, "kr_cache": None,
        "kv_cache": np.zeros((2, 16, 1, 32 + 2 * 8 + 4), np.int8), **changed})


IDS = np.array([[0, 1], [2, 0]], np.int32)


def table(*places):
    """[1, 3, 1, 2], of one layer: (rank, local id) of each expert."""
    return np.array(places, np.int32).reshape(1, 3, 1, 2)


TABLE = table((0, 0), (0, 1), (1, 0))


def dispatch(**changed):
    made = context(selected_expert_num=2, expert_num=3)
    return afd.attention_to_ffn, {
        "schedule_context": made, "ffn_windows": np.zeros((2, made.ffn_window_bytes), np.uint8),
        "x": ones(2, 16), "expert_ids": IDS, "expert_rank_table": TABLE, "session_id": 0,
        "micro_batch_id": 0, "layer_id": 0, **changed}


def payload(**changed):
    sizes = {"expert_rank_table": TABLE, "num_ranks": 2, "num_local_experts": 2}
    laid = afd.two_phase_layout(IDS, **sizes)
    base = afd.two_phase_offsets(laid.send_counts[None], one_buffer=True).base[0]
    for name, place, value in changed.pop("at", []):
        {"base": base, "send_counts": laid.send_counts}[name][place] = value
    return afd.two_phase_payload, {
        "x": ones(2, 8), "expert_ids": IDS, "sorted_indices": laid.sorted_indices,
        "send_counts": laid.send_counts, "base": base, "recv_x": ones(4, 8), **sizes, **changed}


def scheduling(**changed):
    made = context()
    return afd.ffn_worker_scheduler, {
        "schedule_context": made, "ffn_window": np.zeros(made.ffn_window_bytes, np.uint8),
        "ffn_control": np.zeros(made.ffn_control_bytes, np.uint8), **changed}


def routing(**changed):
    return afd.moe_init_routing_v3, {"x": np.ones((2, 4), np.float32),
                                     "expert_idx": np.zeros((2, 1), np.int32), "expert_num": 2,
                                     **changed}


CASES = [
    (batching(("common", "attn_to_ffn_token_size", 600)), "attn_to_ffn_token_size",
     "attn_to_ffn_token_size is 600; it must be a positive multiple of 512"),
    (batching(("common", "schedule_mode", 7)), "schedule_mode",
     "schedule_mode is 7; allowed are 0, 1, 2"),
    (batching(("ffn", "polling_index", 99), need_schedule=1), "polling_index",
     "polling_index is 99; it must be below micro_batch_num, 2"),
    (batching(("ffn", "token_data_buf_size", 100)), "token_data_buf_size",
     "token_data_buf_size is 100; the dimensions need 24576"),
    (batching(max_out_shape=[3, 4, 3, 16]), "max_out_shape",
     "max_out_shape[0] is 3; it must equal the context's session_num, 2"),
    (batching(max_out_shape=[2, 4, 3, 0]), "max_out_shape",
     "max_out_shape must be {A, BS, K1, H}, all positive"),
    (batching(("common", "selected_expert_num", 69), max_out_shape=[2, 4, 69, 16]),
     "selected_expert_num", "selected_expert_num is 69; allowed are 1 ... 68"),
    (batching(expert_num=0), "expert_num", "expert_num is 0; allowed are 1 to 2147483647"),
    (combine(layer_id=np.array([2 ** 31 - 1], np.int32)), "layer_id",
     "layer_id is 2147483647; allowed are 0 to 2147483646, so that there is a next one"),
    (combine(hidden_size=2 ** 31 - 1), "ffn_to_attn_token_size",
     "ffn_to_attn_token_size is 512; a row needs 4294967294 bytes"),
    (combine(attention_window=np.zeros(100, np.uint8)), "attention_window",
     "token_data_buf is 512; with its 12288 bytes it ends beyond the 100 bytes of "
     "attention_window"),
    (returning(session_ids=np.array([-1, 0], np.int32)), "session_ids",
     "session_ids[0] is -1; it must be 0 or more and below session_num, 2"),
    (returning(rounds=np.zeros((2, 2), np.int32)), "rounds",
     "rounds[0] is 0, the flag of a slot that nobody has written; allowed are all other values"),
    (returning(expert_offsets=np.zeros(2, np.int32)), "expert_offsets",
     "expert_offsets has slot 0 twice for session 0, micro-batch 0, token 0; each slot takes one "
     "row"),
    (prolog(weight_dq=ones(33, 16)), "weight_dq",
     "weight_dq has shape [33, 16]; it must be [He, Hcq] | [ceil(Hcq/c0), ceil(He/16), 16, c0] "
     "with He = 32 (token_x), Hcq = 16, ceil(Hcq/c0) = 1, ceil(He/16) = 2, c0 = 16"),
    (prolog(rmsnorm_gamma_cq=ones(15)), "rmsnorm_gamma_cq",
     "rmsnorm_gamma_cq has shape [15]; it must be [Hcq] with Hcq = 16"),
    (prolog(cache_mode="TND", token_x=ones(1, 3, 32), rope_sin=ones(1, 3, 8),
            rope_cos=ones(1, 3, 8)), "cache_mode",
     "cache_mode is TND; it needs token_x [T, He], not [B, S, He]"),
    (prolog(cache_mode="x" * 3000), "cache_mode",
     f'cache_mode is "{"x" * 60}..."; allowed are PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND, '
     "TND"),
    (prolog(weight_quant_mode=2 ** 62), "weight_quant_mode",
     "weight_quant_mode is 4611686018427387904; allowed are 0, 1, 2"),
    (per_tile(cache_mode="PA_NZ"), "cache_mode",
     "cache_mode is PA_NZ; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, BSND, TND"),
    (per_tile(tile_size=7), "tile_size", "tile_size is 7; it must divide Hckv, which is 32"),
    (dispatch(expert_rank_table=table((0, 0), (0, 0), (1, 0))), "expert_rank_table",
     "expert_rank_table[0, 1, 0] is (0, 0), the place of expert 0"),
    # The way back would await, or sum, slots that were not sent.
    (dispatch(schedule_context=context(selected_expert_num=2, expert_num=8)), "expert_rank_table",
     "expert_rank_table has 3 experts a layer; it must be the context's expert_num, 8"),
    (dispatch(ffn_windows=np.zeros((2, 40001), np.uint8)), "ffn_windows",
     "ffn_windows has windows of 40001 bytes one behind the other; their size must be a multiple of "
     "4, so that each has its flags aligned"),
    (dispatch(ffn_windows=np.zeros(40001, np.uint8)[1:].reshape(1, 40000)), "ffn_windows",
     "ffn_windows begins at an address that is no multiple of 4; copy it to aligned memory first"),
    # Before memory is.
    (payload(num_ranks=5000, memory_max=1), "num_ranks",
     "num_ranks is 5000; allowed are 1 to 1024"),
    (payload(sorted_indices=np.array([0, 0, 1, 2], np.int32)), "sorted_indices",
     "sorted_indices[1] is 0 behind 0; slots ascend by place of their expert, then by number, and "
     "none is listed twice"),
    (payload(at=[("send_counts", (1, 1), -3)]), "send_counts",
     "send_counts[1, 1] is -3; it must not be negative"),
    (payload(at=[("base", (0, 1), 0)]), "base",
     "base[0, 1] is 0; the grant at base[0, 0], 2 rows from 0, overlaps it"),
    (routing(active_expert_range=[0] * 2000), "active_expert_range",
     "active_expert_range is [0, 0, 0, 0, 0, 0, 0, 0, ...]; it must have 2 elements, or none for "
     "all experts"),
    ((afd.moe_gating_top_k, {"x": np.zeros((1, 4), np.float32), "k": 5}), "k",
     "k is 5; x has 4 experts"),
    ((afd.moe_gating_top_k, {"x": np.zeros((1, 4), np.float32), "k": 1, "norm_type": 3}),
     "norm_type", "norm_type is 3; allowed are 0, 1, 2"),
    ((afd.grouped_matmul_swiglu, {
        "x": np.zeros((2, 4), np.int8), "weight": np.zeros((1, 4, 2), np.int8),
        "group_list": np.array([2], np.int64), "x_scale": np.ones(2, np.float32),
        "weight_scale": np.zeros((1, 2, 0), np.int64)}), "x",
     "x has dtype int8; weight_scale [E, 2*I] is needed"),
]


@pytest.mark.parametrize("call, parameter, text", CASES)
@pytest.mark.parametrize("reference", [False, True])
def test_the_message_says_what_is_wrong(call, parameter, text, reference):
    operator, arguments = call
    with pytest.raises(afd.InvalidArgument) as error:
        operator(**arguments, reference=reference)
    assert str(error.value) == f"{operator.__name__}: {text}"
    assert error.value.parameter == parameter


@pytest.mark.parametrize("make", [batching, combine, returning, prolog, per_tile, dispatch, payload,
                                  routing, scheduling])
def test_the_calls_are_right_but_for_what_is_changed(make):
    operator, arguments = make()
    operator(**arguments)


def test_as_many_slots_as_windows_hold_are_batched():
    made = context(selected_expert_num=68)
    operator, arguments = batching(
        schedule_context=made, ffn_window=np.zeros(made.ffn_window_bytes, np.uint8),
        ffn_control=np.zeros(made.ffn_control_bytes, np.uint8), max_out_shape=[2, 4, 68, 16])
    assert operator(**arguments).actual_token_num.tolist() == [0]


# One line, whatever the input holds. There is no reference of a scheduler.
def test_a_message_has_no_line_break_of_the_input():
    operator, arguments = scheduling(policy="a\nb\tc\x7f")
    with pytest.raises(afd.InvalidArgument) as error:
        operator(**arguments)
    assert str(error.value) == (
        'ffn_worker_scheduler: policy is "a b c "; allowed are any, groups, all')
    assert error.value.parameter == "policy"


def test_a_message_does_not_repeat_the_whole_input():
    for name in ("k" * 3000, "\N{SNOWMAN}" * 3000):
        with pytest.raises(afd.InvalidArgument) as error:
            afd.moe_gating_top_k(np.zeros((1, 4), np.float32), k=1, **{name: 1})
        assert len(str(error.value)) < 300
        with pytest.raises(afd.NotFound) as error:
            afd.record(name)
        assert len(str(error.value)) < 500


# Which slots are sent and which are read is one rule on both sides: ids in [0, E+S).
def test_dispatch_and_combine_mask_the_same_ids():
    ids = np.array([[0, 2], [1, 3], [-1, 1]], np.int32)
    made = context(selected_expert_num=2, expert_num=3, micro_batch_num=1)
    windows = np.zeros((2, made.ffn_window_bytes), np.uint8)
    sent = afd.attention_to_ffn(made, windows, ones(3, 16), ids, TABLE, session_id=0,
                                micro_batch_id=0, layer_id=0)
    attention = np.zeros(made.attention_window_bytes, np.uint8)
    made.result_flags(attention)[0, :3][sent.slot_ranks >= 0] = 1
    taken = afd.attention_worker_combine(made, attention, np.ones((3, 2), np.float32), ids,
                                         np.zeros(1, np.int32), hidden_size=16, token_dtype=1,
                                         need_schedule=1)
    assert taken.actual_token_num.tolist() == [3]
