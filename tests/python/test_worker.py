# SPDX-License-Identifier: Apache-2.0
"""What afd.FfnWorker takes from its author, without an afdd.

Method: a worker over memory of its own instead of segments that afdd handed over. A live one is the
business of test_live_worker.py.
"""
import numpy as np
import pytest

import afd
from afd._messages import messages

HIDDEN = 16
SIZES = {"session_num": 1, "micro_batch_num": 1, "micro_batch_size": 4, "selected_expert_num": 2,
         "expert_num": 17, "attn_to_ffn_token_size": 512, "ffn_to_attn_token_size": 512}


def worker_of(**geometry):
    """Rank 0 of 2, with 16 routed experts in a layer and a shared one."""
    # pylint: disable=protected-access
    made = afd.FfnWorker.__new__(afd.FfnWorker)
    made.rank = 0
    made.context = made._attention_context = afd.ScheduleContext.create(**SIZES)
    made.welcome = messages("control", "Welcome")["Welcome"](
        geometry={"num_ffn_workers": 2, "shared_experts": 1, **geometry})
    made.attention_windows = [np.zeros(made.context.attention_window_bytes, np.uint8)]
    made._result_flags = [made.context.result_flags(made.attention_windows[0])]
    made._counters = np.zeros(112, np.uint64)
    made._is_held = np.zeros((0, 0), bool)
    return made


def batch_of(num_rows):
    """Row i belongs to slot 0 of token i, round 1."""
    zeros = np.zeros(num_rows, np.int32)
    return afd.Batch(afd.bf16(np.zeros((num_rows, HIDDEN), np.float32)), [(0, num_rows)], zeros,
                     zeros, np.arange(num_rows, dtype=np.int32), zeros, np.ones((1, 1), np.int32))


def rows_of(*shape):
    return afd.bf16(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


# Goal: rows that are not those of the batch do not become somebody's results. Oracle: no flag is
# set, so that the session waits on; the class, its parameter and its text. Also where a predecessor
# has given back some of the rows.
@pytest.mark.parametrize("has_predecessor", [False, True])
@pytest.mark.parametrize("rows, text", [
    (rows_of(3, HIDDEN // 2), r"rows is bf16 \[3, 8\]; it must be bf16 \[3, 16\]"),
    (rows_of(3, 2 * HIDDEN), r"rows is bf16 \[3, 32\]"),
    (rows_of(2, HIDDEN), r"rows is bf16 \[2, 16\]"),
    (rows_of(4, HIDDEN), r"rows is bf16 \[4, 16\]"),
    (rows_of(3 * HIDDEN), r"rows is bf16 \[48\]"),
    (np.zeros((3, HIDDEN), np.float32), r"rows is fp32 \[3, 16\]"),
    (np.zeros((3, HIDDEN), np.float16), r"rows is fp16 \[3, 16\]"),
    (np.zeros((3, HIDDEN), np.uint16), r"bits of bf16 are afd.bf16\(array\)")])
def test_rows_of_another_shape_or_type_are_refused(rows, text, has_predecessor):
    worker = worker_of()
    flags = worker._result_flags[0]  # pylint: disable=protected-access
    flags[0, 1, 0] = has_predecessor
    before = flags.copy()
    with pytest.raises(afd.InvalidArgument, match=text) as error:
        worker.give_back(batch_of(3), rows)
    assert error.value.parameter == "rows"
    np.testing.assert_array_equal(flags, before)


# Oracle: NumPy; also of rows that are not contiguous, and what a predecessor gave back stays.
@pytest.mark.parametrize("has_predecessor", [False, True])
def test_rows_go_to_the_slots_of_the_batch(has_predecessor):
    worker, wide = worker_of(), rows_of(3, 2 * HIDDEN)
    flags = worker._result_flags[0]  # pylint: disable=protected-access
    flags[0, 1, 0] = has_predecessor
    worker.give_back(batch_of(3), wide[:, :HIDDEN])
    assert flags[0, :, 0].tolist() == [1, 1, 1, 0]
    begin = worker.context.attention.token_data_buf
    places = worker.attention_windows[0][begin:].reshape(-1, 512)[::2, :2 * HIDDEN]
    expected = np.asarray(wide[:, :HIDDEN]).copy()
    if has_predecessor:
        expected[1] = 0
    np.testing.assert_array_equal(places[:3].copy().view(np.uint16), expected)
    # Where afdctl status finds them: docs/wire.md.
    num_rows = 2 if has_predecessor else 3
    assert worker._counters[:4].tolist() == [num_rows, 0, 0, num_rows]


@pytest.mark.parametrize("num_routed, geometry, text", [
    ([3], {}, r"num_routed is 3 for layer 0; a layer of this instance has 17 or 16 routed experts"),
    ([0, -1], {}, "num_routed is -1 for layer 1"),
    ([16], {"shared_experts": 2}, "num_routed is 16 for layer 0; a layer of this instance has 17 ")])
def test_experts_that_the_instance_does_not_have_are_refused(num_routed, geometry, text):
    with pytest.raises(afd.InvalidArgument, match=text) as error:
        worker_of(**geometry).held_experts(num_routed)
    assert error.value.parameter == "num_routed"


def test_a_placement_tells_how_many_layers_there_are():
    worker = worker_of()
    worker.welcome.experts.num_replicas.extend([1] * 18)  # A dense layer, and one of 17 experts.
    worker.welcome.experts.ranks.extend([0] * 18)
    assert len(worker.held_experts([0, 16])) == 18
    for num_routed in ([16], [0, 16, 16], [0, 0]):
        with pytest.raises(afd.InvalidArgument, match="the placement of this instance has 18"):
            worker.held_experts(num_routed)


def test_a_worker_that_does_not_know_its_experts_is_not_ready():
    with pytest.raises(afd.FailedPrecondition, match=r"call held_experts\(\)"):
        worker_of().ready()


@pytest.mark.parametrize("rank", [-1, 2 ** 32, 1.5, "0"])
def test_a_rank_that_cannot_be_is_refused(rank):
    with pytest.raises(afd.InvalidArgument, match="it must be a number from 0 on") as error:
        afd.FfnWorker(path="/tmp/nobody.control.sock", rank=rank)
    assert error.value.parameter == "rank"
