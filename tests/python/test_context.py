# SPDX-License-Identifier: Apache-2.0
"""ScheduleContext and segments.

Oracle of the layout: the offsets of docs/wire.md, written out; of the processes: NumPy.
"""
import errno
import fcntl
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

import afd

OFFSETS = {("common", "session_num"): (0, 4), ("common", "micro_batch_num"): (4, 4),
           ("common", "micro_batch_size"): (8, 4), ("common", "selected_expert_num"): (12, 4),
           ("common", "expert_num"): (16, 4), ("common", "attn_to_ffn_token_size"): (20, 4),
           ("common", "ffn_to_attn_token_size"): (24, 4), ("common", "schedule_mode"): (28, 4),
           ("control", "run_flag"): (128, 4), ("attention", "token_info_buf"): (256, 8),
           ("attention", "token_data_buf_size"): (280, 8), ("attention", "micro_batch_id"): (288, 4),
           ("ffn", "token_info_buf"): (384, 8), ("ffn", "token_data_buf"): (400, 8),
           ("ffn", "polling_index"): (416, 8), ("ffn", "layer_ids_buf"): (512, 8),
           ("ffn", "session_ids_buf"): (528, 8), ("ffn", "micro_batch_ids_buf"): (544, 8),
           ("ffn", "expert_ids_buf"): (560, 8), ("ffn", "out_num"): (576, 4)}
SIZES = {"session_num": 2, "micro_batch_num": 3, "micro_batch_size": 4, "selected_expert_num": 5,
         "expert_num": 6, "attn_to_ffn_token_size": 512, "ffn_to_attn_token_size": 1024}


@pytest.mark.parametrize("field", OFFSETS)
def test_every_field_is_where_the_wire_has_it(field):
    memory = np.zeros(2048, np.uint8)
    context = afd.ScheduleContext(memory)
    area, name = field
    offset, size = OFFSETS[field]
    setattr(getattr(context, area), name, 0x01020304)
    assert memory[offset:offset + 4].tolist() == [4, 3, 2, 1]
    assert memory.sum() == 10
    memory[offset:offset + size] = 0
    assert getattr(getattr(context, area), name) == 0


def test_initial_values_and_places():
    context = afd.ScheduleContext.create(**SIZES)
    assert (context.control.run_flag, context.attention.micro_batch_id) == (1, 2)
    assert context.ffn.token_info_buf_size == 4 * 2 * 3 * (2 + 20)
    assert context.ffn.token_data_buf == 1024 and context.attention.token_data_buf == 512
    assert context.ffn_window_bytes == 1024 + 2 * 3 * 20 * 512
    assert context.attention_window_bytes == 512 + 3 * 20 * 1024
    assert context.ffn_control_bytes == 4 * (3 * 2 + 2 * 20)
    assert repr(context) == "<ScheduleContext A=2 M=3 BS=4 K1=5>"


def test_memory_that_does_not_hold_a_context_is_refused():
    for memory, text in ((np.zeros(1023, np.uint8), "at least 1024 contiguous bytes"),
                         (np.zeros(2050, np.uint8)[1:], "no multiple of 8"),
                         (np.zeros(1024, np.int16), "at least 1024 contiguous bytes")):
        with pytest.raises(afd.InvalidArgument, match=text):
            afd.ScheduleContext(memory)
    with pytest.raises(afd.InvalidArgument, match="memory is read-only"):
        afd.ScheduleContext.create(**SIZES, memory=np.frombuffer(bytes(1024), np.uint8))


# Oracle: the limits of docs/specification.md, and those of an instance's geometry.
@pytest.mark.parametrize("name, value, text", [
    ("session_num", 0, "session_num is 0; allowed are 1 to 1024"),
    ("session_num", -1, "session_num is -1; allowed are 1 to 1024"),
    ("session_num", 1025, "session_num is 1025"),
    ("micro_batch_num", 65, "micro_batch_num is 65; allowed are 1 to 64"),
    ("micro_batch_size", 2 ** 31, "micro_batch_size is 2147483648; allowed are 1 to 2147483647"),
    ("selected_expert_num", 69, "selected_expert_num is 69; allowed are 1 to 68"),
    ("expert_num", 0, "expert_num is 0; allowed are 1 to 2147483647"),
    ("attn_to_ffn_token_size", 1, "attn_to_ffn_token_size is 1; it must be a positive multiple of"),
    ("ffn_to_attn_token_size", 0, "ffn_to_attn_token_size is 0; allowed are 1 to"),
    ("schedule_mode", 3, "schedule_mode is 3; allowed are 0 to 2"),
    ("micro_batch_size", 2 ** 31 - 1, "rows exceeds 70368744177664 bytes; lower one of them")])
def test_numbers_that_no_instance_can_have_are_refused(name, value, text):
    with pytest.raises(afd.InvalidArgument, match=text) as error:
        afd.ScheduleContext.create(**{**SIZES, "selected_expert_num": 64, name: value})
    assert error.value.parameter == name


# Goal: a live instance can be watched without being able to disturb it. Oracle: what is read; a
# store raises, and does not end the process.
def test_read_only_memory_is_read_and_cannot_be_written():
    name = f"/afd-pytest-watched{os.getpid()}"
    made = afd.ScheduleContext.create(**SIZES, memory=afd.segment(name, create=4096))
    try:
        seen = afd.segment(name, writable=False)
        assert not seen.flags.writeable
        with pytest.raises(ValueError):
            seen.flags.writeable = True
        watched = afd.ScheduleContext(seen)
        made.ffn.out_num = 7
        assert (watched.common.session_num, watched.ffn.out_num) == (2, 7)
        assert repr(watched) == repr(made)
        assert watched.ffn_window_bytes == made.ffn_window_bytes
        assert watched.common.reserved == bytes(96)
        with pytest.raises(afd.FailedPrecondition, match="run_flag cannot be set") as error:
            watched.control.run_flag = 0
        assert error.value.parameter == "run_flag" and made.control.run_flag == 1
        with pytest.raises(AttributeError):
            _ = watched.control.nothing
        with pytest.raises(afd.InvalidArgument, match="writable is False"):
            afd.segment(name + "x", create=4096, writable=False)
    finally:
        afd.unlink_segment(name)


def test_segments_are_shared_between_processes():
    name = f"/afd-pytest{os.getpid()}"
    mine = afd.segment(name, create=4096)
    try:
        with pytest.raises(FileExistsError):
            afd.segment(name, create=4096)
        subprocess.run([sys.executable, "-c",
                        f"import afd; s = afd.segment({name!r}); s[7] = s[8] + 1"], check=True)
        assert mine[7] == 1 and mine.size == 4096
    finally:
        afd.unlink_segment(name)
    with pytest.raises(afd.NotFound, match="there is no segment " + name):
        afd.segment(name)
    with pytest.raises(afd.NotFound, match="there is no segment " + name) as error:
        afd.unlink_segment(name)
    assert error.value.parameter == "name"


@pytest.mark.parametrize("name", ["/../etc/passwd", "..", "/.", "", "/", "a\0b"])
@pytest.mark.parametrize("use", [afd.segment, afd.unlink_segment])
def test_a_name_that_no_segment_can_have_is_refused(use, name):
    with pytest.raises(afd.InvalidArgument, match="one word after a slash") as error:
        use(name)
    assert error.value.parameter == "name"


# Goal: what could not be made leaves no name, which the next try would find taken. Method: there is
# no memory, or no place for it in the process. Oracle: /dev/shm.
@pytest.mark.parametrize("module, function", [(os, "posix_fallocate"), (mmap, "mmap")])
def test_a_segment_that_cannot_be_made_leaves_nothing(monkeypatch, module, function):
    def refuse(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    name = f"/afd-pytest-none{os.getpid()}"
    monkeypatch.setattr(module, function, refuse)
    with pytest.raises(afd.ResourceExhausted, match=f"segment {name} of 4096 bytes cannot be "
                                                    "mapped: No space left on device") as error:
        afd.segment(name, create=4096)
    assert error.value.parameter == "create"
    assert not os.path.lexists("/dev/shm" + name)
    monkeypatch.undo()
    afd.segment(name, create=4096)
    afd.unlink_segment(name)
    for create in (-1, 2 ** 63, "4096", 4.5):
        with pytest.raises(afd.InvalidArgument, match="it must be a number of bytes below") as error:
            afd.segment(name, create=create)
        assert error.value.parameter == "create"
    assert not os.path.lexists("/dev/shm" + name)


def test_a_link_is_followed_only_to_a_sealed_memory_file():
    """As the daemon makes its segments: a memory file, and a link to it in /dev/shm."""
    name = f"afd-pytest-sealed{os.getpid()}"
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, 4096)
    os.symlink(f"/proc/{os.getpid()}/fd/{handle}", "/dev/shm/" + name)
    try:
        with pytest.raises(afd.InvalidArgument, match="is no sealed memory file of this user"):
            afd.segment("/" + name)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS,
                    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        mine = afd.segment("/" + name)
        mine[5] = 6
        assert mine.size == 4096 and os.pread(handle, 6, 0) == bytes([0] * 5 + [6])
    finally:
        afd.unlink_segment("/" + name)
        os.close(handle)


def test_a_chain_of_operators_sends_rows_there_and_back():
    """Two sessions and two FFN workers in one process: y = the sum of what the experts return."""
    sizes = {**SIZES, "selected_expert_num": 2, "expert_num": 4}
    context = afd.ScheduleContext.create(**sizes)
    ffn = [np.zeros(context.ffn_window_bytes, np.uint8) for _ in range(2)]
    attention = [np.zeros(context.attention_window_bytes, np.uint8) for _ in range(2)]
    control = np.zeros(context.ffn_control_bytes, np.uint8)
    table = np.array([[[[0, 0]], [[0, 1]], [[1, 0]], [[1, 1]]]], np.int32)
    x = [afd.bf16(np.full((4, 16), session + 1, np.float32)) for session in range(2)]
    ids = np.array([[0, 2], [1, 3], [2, 3], [0, 1]], np.int32)
    for session in range(2):
        sent = afd.attention_to_ffn(context, ffn, x[session], ids, table, session_id=session,
                                    micro_batch_id=0, layer_id=0)
        np.testing.assert_array_equal(sent.slot_ranks, ids // 2)
    for rank in range(2):
        worker = afd.ScheduleContext.create(**sizes)
        batch = afd.ffn_worker_batching(worker, ffn[rank], control, expert_num=2,
                                        max_out_shape=[2, 4, 2, 16], token_dtype=1, need_schedule=1)
        assert batch.actual_token_num[0] == 8 and batch.group_list.tolist() == [[0, 4], [1, 4]]
        # Expert e of rank r multiplies by 1 + 2 r + e.
        factors = 1 + 2 * rank + (np.arange(batch.y.shape[0]) >= 4)
        y = afd.bf16(batch.y.float32() * factors[:, None].astype(np.float32))
        afd.ffn_to_attention(context, attention, y, batch.session_ids, batch.micro_batch_ids,
                             batch.token_ids, batch.expert_offsets, batch.actual_token_num,
                             token_dtype=1)
    for session in range(2):
        combined = afd.attention_worker_combine(
            context_at(context, 2), attention[session], np.ones((4, 2), np.float32), ids,
            np.array([7], np.int32), hidden_size=16, token_dtype=1, need_schedule=1)
        assert (combined.actual_token_num[0], combined.next_layer_id[0]) == (4, 8)
        want = (session + 1) * (1 + ids).sum(axis=1)
        np.testing.assert_array_equal(combined.y.float32(), np.repeat(want[:, None], 16, axis=1))


def context_at(context, micro_batch_id):
    """A copy whose next micro-batch is the one after that."""
    copy = afd.ScheduleContext(np.asarray(context).copy())
    copy.attention.micro_batch_id = micro_batch_id
    return copy
