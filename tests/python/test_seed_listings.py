# SPDX-License-Identifier: Apache-2.0
"""The calls that the operators' documents print, with the module's name exchanged.

The argument lists are those of the documents: of mla_prolog_v3 the listing of its call in eager
mode, of moe_init_routing_v3 the shapes of its two templates, of ffn_worker_batching the table of
its parameters with the example of group_list. Oracle: the NumPy operators of tests/golden, and
counting.
"""
import mla_cases
import mla_np
import numpy as np
import safetensors_np as st

import afd

# mla_prolog_v3, section on calling it: sizes and argument list.
MLA_SIZES = {"B": 8, "He": 7168, "Hcq": 1536, "Hckv": 512, "N": 32, "D": 128, "Dr": 64, "S": 2,
             "Nkv": 1, "BlockSize": 128, "BlockNum": 64}
MLA_RESULTS = ("query", "query_rope", "dequant_scale_q_nope", "query_norm",
               "dequant_scale_q_norm")


# Example: mla_prolog_v3: the call in eager mode, from Python
def test_mla_prolog_v3():
    n = MLA_SIZES
    random = np.random.default_rng(1)

    def rand(*shape):
        return afd.bf16(random.random(shape, np.float32))

    token_x = rand(n["B"], n["S"], n["He"])
    w_dq = rand(n["He"], n["Hcq"])
    w_uq_qr = rand(n["Hcq"], n["N"] * (n["D"] + n["Dr"]))
    w_uk = rand(n["N"], n["D"], n["Hckv"])
    w_dkv_kr = rand(n["He"], n["Hckv"] + n["Dr"])
    w_dq_cast, w_uq_qr_cast, w_dkv_kr_cast = (
        afd.bf16(mla_np.to_fractal_nz(np.asarray(w))) for w in (w_dq, w_uq_qr, w_dkv_kr))
    rmsnorm_gamma_cq, rmsnorm_gamma_ckv = rand(n["Hcq"]), rand(n["Hckv"])
    rope_sin, rope_cos = rand(n["B"], n["S"], n["Dr"]), rand(n["B"], n["S"], n["Dr"])
    cache_index = random.random((n["B"], n["S"])).astype(np.int64)
    kv_cache = rand(n["BlockNum"], n["BlockSize"], n["Nkv"], n["Hckv"])
    kr_cache = rand(n["BlockNum"], n["BlockSize"], n["Nkv"], n["Dr"])
    rmsnorm_epsilon_cq = rmsnorm_epsilon_ckv = 1.0e-5
    cache_mode = "PA_BSND"
    given = {"token_x": token_x, "weight_dq": w_dq_cast, "weight_uq_qr": w_uq_qr_cast,
             "weight_uk": w_uk, "weight_dkv_kr": w_dkv_kr_cast,
             "rmsnorm_gamma_cq": rmsnorm_gamma_cq, "rmsnorm_gamma_ckv": rmsnorm_gamma_ckv,
             "rope_sin": rope_sin, "rope_cos": rope_cos}
    words = {name: np.asarray(array).copy() for name, array in given.items()}
    caches = {"kv_cache": np.asarray(kv_cache).copy(), "kr_cache": np.asarray(kr_cache).copy()}

    query_mla, query_rope_mla, dequant_scale_q_nope_mla, query_norm_mla, dequant_scale_q_norm_mla = \
        afd.npu_mla_prolog_v3(token_x, w_dq_cast, w_uq_qr_cast, w_uk, w_dkv_kr_cast,
                              rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos, kv_cache,
                              kr_cache, cache_index=cache_index,
                              rmsnorm_epsilon_cq=rmsnorm_epsilon_cq,
                              rmsnorm_epsilon_ckv=rmsnorm_epsilon_ckv, cache_mode=cache_mode)

    assert (dequant_scale_q_nope_mla, query_norm_mla, dequant_scale_q_norm_mla) == (None,) * 3
    assert query_mla.shape == (n["B"], n["S"], n["N"], n["Hckv"])
    want = mla_np.mla_prolog_v3(
        {name: st.from_bf16_bits(bits) for name, bits in words.items()} | caches
        | {"cache_index": cache_index}, {
            "rmsnorm_epsilon_cq": 1e-5, "rmsnorm_epsilon_ckv": 1e-5, "cache_mode": "PA_BSND",
            "query_norm_flag": False, "weight_quant_mode": 0, "kv_cache_quant_mode": 0,
            "query_quant_mode": 0, "ckvkr_repo_mode": 0, "quant_scale_repo_mode": 0,
            "tile_size": 128, "qc_qr_scale": 1.0, "kc_scale": 1.0})
    for name, have in (("query", query_mla), ("query_rope", query_rope_mla),
                       ("kv_cache", kv_cache), ("kr_cache", kr_cache)):
        expected = want[name]
        if expected.dtype != np.uint16:
            expected = st.to_bf16_bits(expected)
        assert mla_cases.difference(np.asarray(have), expected.reshape(have.shape)) == "", name
    assert tuple(type(afd.mla_prolog_v3.results_of({}))._fields) == MLA_RESULTS


def counts_of(ids, first, last):
    keys, counts = np.unique(ids[(ids >= first) & (ids < last)], return_counts=True)
    pairs = np.zeros((last - first, 2), np.int64)
    pairs[:keys.size] = np.stack([keys, counts], axis=1)
    return pairs


# Example: moe_init_routing_v3: the low-latency template, from Python
def test_moe_init_routing_v3_low_latency():
    random = np.random.default_rng(2)
    x = afd.bf16(random.standard_normal((1, 7168)).astype(np.float32))
    expert_idx = random.permutation(256)[:8].astype(np.int32).reshape(1, 8)
    scale = random.random((256, 7168), np.float32) + np.float32(0.5)
    expanded_x, expanded_row_idx, expert_tokens_count_or_cumsum, expanded_scale = \
        afd.npu_moe_init_routing_v3(
            x, expert_idx, scale=scale, offset=None, active_num=8, expert_capacity=0,
            expert_num=256, drop_pad_mode=0, expert_tokens_num_type=2, expert_tokens_num_flag=True,
            quant_mode=1, active_expert_range=[0, 256], row_idx_type=1)
    order = np.argsort(expert_idx[0])
    np.testing.assert_array_equal(expanded_row_idx, order)
    np.testing.assert_array_equal(expert_tokens_count_or_cumsum, counts_of(expert_idx, 0, 256))
    scaled = x.float32() * scale[expert_idx[0][order]]
    np.testing.assert_array_equal(expanded_scale, np.abs(scaled).max(axis=1) / np.float32(127))
    np.testing.assert_array_equal(
        expanded_x, np.clip(np.rint(scaled / expanded_scale[:, None]), -127, 127))


# Example: moe_init_routing_v3: the large-batch template, from Python
def test_moe_init_routing_v3_large_batch():
    random = np.random.default_rng(3)
    x = random.standard_normal((384, 64)).astype(np.float16)
    expert_idx = random.integers(0, 256, (384, 8)).astype(np.int32)
    result = afd.npu_moe_init_routing_v3(
        x, expert_idx, active_num=384 * 8, expert_num=256, expert_tokens_num_type=1,
        expert_tokens_num_flag=True, quant_mode=-1, active_expert_range=[32, 64], row_idx_type=1)
    flat = expert_idx.reshape(-1)
    order = np.argsort(np.where((flat >= 32) & (flat < 64), flat, 256), kind="stable")
    num_rows = int(((flat >= 32) & (flat < 64)).sum())
    np.testing.assert_array_equal(result.expanded_row_idx[:num_rows], order[:num_rows])
    np.testing.assert_array_equal(result.expanded_x[:num_rows], x[order[:num_rows] // 8])
    np.testing.assert_array_equal(result.expert_tokens_count_or_cumsum,
                                  np.bincount(flat, minlength=256)[32:64])
    assert result.expanded_scale is None


# Example: ffn_worker_batching: group_list [[1, 20], [10, 40], [22, 15]], from Python
def test_ffn_worker_batching():
    sessions, batch, slots, hidden, experts = 3, 10, 3, 64, 24
    ids = np.random.default_rng(4).permutation(
        np.repeat([1, 10, 22, afd.MASKED_ID], [20, 40, 15, 15])).astype(np.int32)
    schedule_context = afd.ScheduleContext.create(
        session_num=sessions, micro_batch_num=1, micro_batch_size=batch, selected_expert_num=slots,
        expert_num=experts, attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
    window = np.zeros(schedule_context.ffn_window_bytes, np.uint8)
    control = np.zeros(schedule_context.ffn_control_bytes, np.uint8)
    rows = window[schedule_context.ffn.token_data_buf:].reshape(-1, 512)
    rows[:, :2 * hidden] = np.random.default_rng(5).integers(0, 256, (ids.size, 2 * hidden))
    descriptors = schedule_context.ffn_descriptors(window)
    descriptors[:, 0, 2:] = ids.reshape(sessions, -1)
    descriptors[:, 0, 0] = 1
    for need_schedule in (1, 0):  # The second takes the lists that the first wrote.
        (y, group_list, session_ids, micro_batch_ids, token_ids, expert_offsets, dynamic_scale,
         actual_token_num) = afd.npu_ffn_worker_batching(
            schedule_context, window, control, expert_num=experts,
            max_out_shape=[sessions, batch, slots, hidden], token_dtype=1,
            need_schedule=need_schedule, layer_num=0)
        assert dynamic_scale is None and actual_token_num.tolist() == [75]
        np.testing.assert_array_equal(group_list[:3], [[1, 20], [10, 40], [22, 15]])
        assert not group_list[3:].any()
        order = np.argsort(ids, kind="stable")[:75]
        np.testing.assert_array_equal(np.asarray(y)[:75].view(np.uint8), rows[order, :2 * hidden])
        np.testing.assert_array_equal(session_ids[:75], order // (batch * slots))
        np.testing.assert_array_equal(token_ids[:75], order // slots % batch)
        np.testing.assert_array_equal(expert_offsets[:75], order % slots)
        assert not micro_batch_ids[:75].any()
