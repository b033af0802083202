# SPDX-License-Identifier: Apache-2.0
"""What is wrong is said with parameter, value and what is allowed; and nothing is allocated first."""
import resource

import numpy as np
import pytest

import afd

X = np.zeros((3, 4), np.float32)
IDS = np.zeros((3, 2), np.int32)


def refused(kind=afd.InvalidArgument, operator=None, **arguments):
    with pytest.raises(kind) as error:
        (operator or afd.moe_init_routing_v3)(**{"x": X, "expert_idx": IDS, "expert_num": 4,
                                                 **arguments} if operator is None else arguments)
    return str(error.value), error.value.parameter


def test_names_values_and_kinds():
    assert refused(quant_mode=5) == (
        "moe_init_routing_v3: quant_mode is 5; allowed are -1, 0, 1", "quant_mode")
    assert refused(expert_num="four") == (
        'moe_init_routing_v3: expert_num is "four"; it must be an integer from -2^63 to 2^63 - 1',
        "expert_num")
    nested = 1
    for _ in range(50):
        nested = [nested]
    assert refused(expert_num=nested) == (
        "moe_init_routing_v3: expert_num is a list of lists or objects; it must be an integer from "
        "-2^63 to 2^63 - 1", "expert_num")
    text, parameter = refused(expert_num=2 ** 63)
    assert "expert_num is 9223372036854775808; it must be an integer" in text
    assert refused(expert_idx=IDS[:, :1].astype(np.int64)) == (
        "moe_init_routing_v3: expert_idx has dtype int64; allowed are int32", "expert_idx")
    assert refused(expert_idx=IDS[:2]) == (
        "moe_init_routing_v3: expert_idx has shape [2, 2]; it must be [N, K] with N = 3 (x)",
        "expert_idx")
    assert refused(scale=np.ones(2, np.float64))[1] == "scale"
    assert refused(numeric_class="vax")[0].startswith("numeric_class is vax; allowed are portable")
    for value, kind in ((3, "int"), (b"avx2", "bytes"), (["avx2"], "list")):
        text, parameter = refused(numeric_class=value)
        assert text.startswith(f"numeric_class is a {kind}; it must be a string, one of portable")
        assert parameter == "numeric_class"
    assert refused(num_threads=5000) == ("num_threads is 5000; allowed are 0 to 1024",
                                         "num_threads")
    assert refused(operator=afd.mla_prolog_v3, token_x=X, qc_qr_scale=float("nan")) == (
        "qc_qr_scale is nan; it must be a finite number", "qc_qr_scale")


def test_one_class_for_each_code_and_the_builtin_ones():
    assert issubclass(afd.InvalidArgument, ValueError)
    assert issubclass(afd.ResourceExhausted, MemoryError)
    with pytest.raises(LookupError, match="there is no operator moe_init.*; did you mean "
                                          "moe_init_routing_v3"):
        afd.record("moe_init_routing")


def test_an_argument_that_there_is_not_gets_a_suggestion():
    known = ("x, expert_idx, scale, offset, active_num, expert_capacity, expert_num, drop_pad_mode, "
             "expert_tokens_num_type, expert_tokens_num_flag, quant_mode, active_expert_range, "
             "row_idx_type, reference, num_threads, numeric_class, memory_max, out")
    for name, meant in (("expert_nmu", "expert_num"), ("expert_indx", "expert_idx"),
                        ("refrence", "reference"), ("numeric_clas", "numeric_class")):
        assert refused(**{name: IDS}) == (
            f"moe_init_routing_v3: there is no argument {name}; there are {known}; did you mean "
            f"{meant}?", name)
    assert refused(zzzzzz=1) == (
        f"moe_init_routing_v3: there is no argument zzzzzz; there are {known}", "zzzzzz")


def test_a_name_that_the_module_has_not_gets_a_suggestion():
    for name, meant in (("moe_init_routing_v2", "moe_init_routing_v3"), ("Clinet", "Client"),
                        ("moe_gating_topk", "moe_gating_top_k"),
                        ("npu_mla_prolog_v2", "npu_mla_prolog_v3"),
                        ("numeric_class", "numeric_classes")):
        with pytest.raises(AttributeError) as error:
            getattr(afd, name)
        assert str(error.value) == (f"module 'afd' has no attribute '{name}'; did you mean "
                                    f"{meant}?")
    with pytest.raises(AttributeError) as error:
        afd.zzzzzz  # pylint: disable=pointless-statement
    assert str(error.value) == "module 'afd' has no attribute 'zzzzzz'"
    assert not hasattr(afd, "__nothing__")


def test_an_attribute_without_a_default_is_asked_for():
    for call, name in ((lambda: afd.moe_init_routing_v3(X, IDS), "expert_num"),
                       (lambda: afd.moe_gating_top_k(X), "k")):
        with pytest.raises(afd.InvalidArgument,
                           match=f"attribute {name} is missing; it has no default") as error:
            call()
        assert error.value.parameter == name


def test_tensors_by_place_and_by_name():
    with pytest.raises(ValueError, match="moe_init_routing_v3: x is given twice"):
        afd.moe_init_routing_v3(X, IDS, x=X, expert_num=4)
    with pytest.raises(ValueError, match="5 arguments without a name are given; only tensors are, "
                                         "of which there are 4"):
        afd.moe_init_routing_v3(X, IDS, None, None, 4)
    with pytest.raises(ValueError, match=r"expert_idx is missing; it must be \[N, K\]"):
        afd.moe_init_routing_v3(X, expert_num=4)


def context(**changed):
    made = afd.ScheduleContext.create(**{
        "session_num": 2, "micro_batch_num": 2, "micro_batch_size": 4, "selected_expert_num": 3,
        "expert_num": 8, "attn_to_ffn_token_size": 512, "ffn_to_attn_token_size": 512, **changed})
    return made, np.zeros(made.ffn_window_bytes, np.uint8), np.zeros(made.ffn_control_bytes,
                                                                     np.uint8)


HUGE = [
    (lambda: afd.ffn_worker_batching(*context(), expert_num=2 ** 31 - 1,
                                     max_out_shape=[2, 4, 3, 8]),
     r"ffn_worker_batching: expert_num is 2147483647; outputs and workspace need \d+ bytes \(.*"
     r"group_list \[2147483647, 2\] 34359738352", afd.ResourceExhausted, "expert_num"),
    (lambda: afd.ffn_worker_batching(*context(), expert_num=8,
                                     max_out_shape=[2 ** 40, 4, 3, 8]),
     r"max_out_shape\[0\] is 1099511627776", afd.InvalidArgument, "max_out_shape"),
    (lambda: afd.ffn_worker_batching(*context(), expert_num=8,
                                     max_out_shape=[2, 4, 3, 2 ** 62]),
     "attn_to_ffn_token_size is 512; a row of H 4611686018427387904 does not fit",
     afd.InvalidArgument, "attn_to_ffn_token_size"),
    (lambda: afd.moe_init_routing_v3(X, IDS, expert_num=2 ** 31 - 1, expert_tokens_num_flag=True,
                                     memory_max=2 ** 32),
     r"^moe_init_routing_v3: expert_num is 2147483647; outputs and workspace need \d+ bytes \(.*\); "
     "memory_max is 4294967296$", afd.ResourceExhausted, "expert_num"),
    (lambda: afd.moe_init_routing_v3(np.zeros((3, 4096), np.float32), IDS, expert_num=4,
                                     drop_pad_mode=1, expert_capacity=2 ** 28),
     r"expert_capacity is 268435456; .*expanded_x \[4, 268435456, 4096\] 17592186044416",
     afd.ResourceExhausted, "expert_capacity"),
    (lambda: afd.moe_init_routing_v3(np.zeros((0, 2 ** 40), np.float32), np.zeros((0, 2), np.int32),
                                     expert_num=4, drop_pad_mode=1, expert_capacity=2 ** 28),
     r"x has shape \[0, 1099511627776\]; expanded_x would have shape "
     r"\[4, 268435456, 1099511627776\]; no memory is as large", afd.InvalidArgument, "x"),
    (lambda: afd.attention_worker_combine(
        context()[0], np.zeros(20000, np.uint8), np.zeros((4, 2), np.float32), None,
        np.zeros(1, np.int32), hidden_size=2 ** 31 - 1),
     "ffn_to_attn_token_size is 512; a row needs 4294967294 bytes", afd.InvalidArgument,
     "ffn_to_attn_token_size"),
    (lambda: afd.two_phase_layout(np.zeros((1, 1), np.int32), np.zeros((1, 1, 1, 2), np.int32),
                                  num_ranks=2 ** 20, num_local_experts=1, layer_id=0),
     "num_ranks is 1048576; allowed are 1 to 1024", afd.InvalidArgument, "num_ranks"),
    # Nothing of it is in memory, and all of it would be gone through.
    (lambda: afd.two_phase_layout(np.zeros((2 ** 60, 0), np.int32),
                                  np.zeros((1, 1, 1, 2), np.int32), num_ranks=1,
                                  num_local_experts=1, num_threads=2),
     "at most 2147483647 of both are allowed", afd.InvalidArgument, "expert_ids"),
    (lambda: afd.ffn_to_attention(context()[0], np.zeros((2 ** 31, 0), np.uint8), *[None] * 5),
     "attention_windows has 2147483648 windows; at most 1024 are allowed", afd.InvalidArgument,
     "attention_windows"),
]


@pytest.mark.parametrize("call, text, kind, parameter", HUGE)
def test_no_size_allocates_before_it_is_judged(call, text, kind, parameter):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kind, match=text) as error:
        call()
    assert error.value.parameter == parameter
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_memory_max_is_the_limit_of_outputs_and_workspace():
    x = np.zeros((1000, 256), np.float32)
    ids = np.zeros((1000, 4), np.int32)
    with pytest.raises(MemoryError, match=r"moe_init_routing_v3: x has shape \[1000, 256\]; outputs "
                                          r"and workspace need \d+ bytes \(workspace \d+, "
                                          r"expanded_x \[4000, 256\] 4096000, expanded_row_idx "
                                          r"\[4000\] 16000\); memory_max is 1000000"):
        afd.moe_init_routing_v3(x, ids, expert_num=4, memory_max=1_000_000)
    assert afd.moe_init_routing_v3(x, ids, expert_num=4, memory_max=10_000_000)


def test_a_byte_that_is_no_bool_is_refused():
    mask = np.array([1, 2, 0], np.uint8).view(np.bool_)
    ids = np.zeros((3, 1), np.int32)
    with pytest.raises(ValueError, match=r"active_mask\[1\] is the byte 2; a bool is 0 or 1"):
        afd.two_phase_layout(ids, np.zeros((1, 1, 1, 2), np.int32), mask, num_ranks=1,
                             num_local_experts=1, layer_id=0)


def test_segments_of_another_dtype_or_rank_are_refused():
    made, window, control = context()
    with pytest.raises(ValueError, match="ffn_window has dtype int32; allowed are uint8"):
        afd.ffn_worker_scheduler(made, window.view(np.int32), control)
    with pytest.raises(ValueError, match=r"ffn_control has shape \[\d+, 1\]; it must be "
                                         r"\[any size\]"):
        afd.ffn_worker_scheduler(made, window, control[:, None])
    with pytest.raises(ValueError, match=r"schedule_context has shape \[512\]; it must be \[1024\]"):
        afd.ffn_worker_scheduler(np.zeros(512, np.int8), window, control)
