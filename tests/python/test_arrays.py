# SPDX-License-Identifier: Apache-2.0
"""Arrays go in and come out without a copy, whoever made them.

Oracle: addresses, and the values of NumPy's own arithmetic.
"""
import ctypes
import gc
import weakref

import numpy as np
import pytest

import afd
from afd import _native


class DlTensor(ctypes.Structure):
    """What a capsule holds (dlpack.h, version 0), read without the code under test."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def dl_tensor(capsule):
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DlTensor.from_address(pointer_of(capsule, b"dltensor"))


class OnlyDlpack:
    """A tensor of another library: nothing but the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class OnlyInterface:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


def test_views_point_into_the_memory_that_was_given():
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    bits = afd.bf16(plain)
    for array in (plain, OnlyDlpack(plain), OnlyInterface(plain)):
        view = _native.view_of("x", array)
        assert (view.data, view.dtype, view.shape, view.strides) == (
            plain.ctypes.data, 2, (3, 4), (4, 1))
    for array in (bits, OnlyDlpack(bits)):
        view = _native.view_of("x", array)
        assert (view.data, view.dtype, view.shape) == (bits.ctypes.data, 0, (3, 4))


def test_bf16_that_may_not_be_written_or_is_not_whole_is_not_exported():
    read_only = np.zeros(4, np.uint16)
    read_only.setflags(write=False)
    with pytest.raises(BufferError, match="read-only"):
        afd.bf16(read_only).__dlpack__()
    odd = np.zeros(3, np.dtype([("a", "u1"), ("b", "<u2")]))["b"]
    with pytest.raises(BufferError, match="odd number of bytes"):
        afd.bf16(odd).__dlpack__()


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32", "int64", "uint8"])
def test_every_dtype_comes_through_dlpack(dtype):
    array = np.zeros((2, 3), dtype)
    assert _native.view_of("x", OnlyDlpack(array)).dtype == _native.view_of("x", array).dtype


def test_an_in_place_tensor_of_another_library_is_written_where_it_is():
    context = afd.ScheduleContext.create(
        session_num=1, micro_batch_num=2, micro_batch_size=3, selected_expert_num=2, expert_num=4,
        attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
    window = np.zeros(context.ffn_window_bytes, np.uint8)
    control = np.zeros(context.ffn_control_bytes, np.uint8)
    context.ffn_descriptors(window)[0, 1, 0] = 5
    afd.ffn_worker_scheduler(context, OnlyDlpack(window), OnlyDlpack(control))
    assert context.ffn.out_num == 1
    assert [list(each) for each in context.taken(control)] == [[0], [1]]


def test_outputs_can_be_the_callers_own_memory():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    ids = np.array([[1], [0]], np.int32)
    mine = np.full((2, 4), -1, np.float32)
    result = afd.moe_init_routing_v3(x, ids, expert_num=2, out={"expanded_x": mine})
    assert result.expanded_x is mine
    np.testing.assert_array_equal(mine, x[[1, 0]])
    with pytest.raises(afd.InvalidArgument, match=r"out\['expanded_x'\] must be contiguous, "
                                                  r"writable fp32 \[2, 4\]") as refused:
        afd.moe_init_routing_v3(x, ids, expert_num=2, out={"expanded_x": mine[:1]})
    assert refused.value.parameter == "expanded_x"


# Goal: no operator overwrites what it has yet to read. Oracle: the message; memory as it was.
@pytest.mark.parametrize("give", [lambda array: array, OnlyDlpack, OnlyInterface])
def test_outputs_share_memory_with_nothing_else(give):
    rows = np.arange(24 * 16, dtype=np.float32).reshape(24, 16)
    x, ids = rows[:8], np.zeros((8, 1), np.int32)

    def route(**out):
        return afd.moe_init_routing_v3(give(x), ids, expert_num=2, out=out)

    before = rows.copy()
    for first in (0, 7):
        with pytest.raises(afd.InvalidArgument, match="expanded_x shares memory with x; give it "
                                                      "memory of its own") as refused:
            route(expanded_x=give(rows[first:first + 8]))
        assert refused.value.parameter == "expanded_x"
    np.testing.assert_array_equal(rows, before)
    neighbours = rows[8:16]
    route(expanded_x=give(neighbours), expanded_row_idx=give(rows[16].view(np.int32)[:8]))
    np.testing.assert_array_equal(neighbours, x)

    both = np.zeros((8, 2), np.float32)
    with pytest.raises(afd.InvalidArgument, match="expert_idx shares memory with y; ") as refused:
        afd.moe_gating_top_k(x, k=2, out={"y": give(both), "expert_idx": give(both.view(np.int32))})
    assert refused.value.parameter == "expert_idx"
    logits = np.eye(4, dtype=np.float32)
    with pytest.raises(afd.InvalidArgument, match="y shares memory with x; ") as refused:
        afd.moe_gating_top_k(logits, k=4, out={"y": logits})
    assert refused.value.parameter == "y"


def test_an_output_does_not_share_memory_with_what_is_in_place():
    context = afd.ScheduleContext.create(
        session_num=1, micro_batch_num=2, micro_batch_size=3, selected_expert_num=2, expert_num=4,
        attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
    window = np.zeros(context.attention_window_bytes, np.uint8)
    with pytest.raises(afd.InvalidArgument, match="taken shares memory with schedule_context; "):
        afd.attention_worker_scheduler(context, window,
                                       out={"taken": np.asarray(context).view(np.int32)[:1]})
    assert afd.attention_worker_scheduler(context, window).taken == [-1]


# Goal: what is written is neither read nor written as something else. Method: one window for two
# workers, the second given by its last bytes too; rows sent to where they are read. Oracle: the
# message, and memory as it was; windows side by side in one array are taken.
def test_what_is_in_place_shares_memory_with_nothing_else():
    context = afd.ScheduleContext.create(
        session_num=1, micro_batch_num=1, micro_batch_size=2, selected_expert_num=1, expert_num=2,
        attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
    size = context.ffn_window_bytes
    memory = np.full(2 * size, 7, np.uint8)
    table = np.array([[[[0, 0]], [[1, 0]]]], np.int32)

    def send(*windows):
        return afd.attention_to_ffn(context, list(windows), afd.bf16(np.ones((2, 4), np.float32)),
                                    np.array([[0], [1]], np.int32), table, session_id=0,
                                    micro_batch_id=0, layer_id=0)

    for second in (memory[:size], memory[size - 4:2 * size - 4]):
        for windows in ((memory[:size], second), (second, memory[:size])):
            with pytest.raises(afd.InvalidArgument, match=r"ffn_windows\[1\] shares memory with "
                                                          r"ffn_windows\[0\]; give it memory of "
                                                          "its own") as refused:
                send(*windows)
            assert refused.value.parameter == "ffn_windows"
    assert (memory == 7).all()
    assert send(memory[:size], memory[size:]).slot_ranks.tolist() == [[0], [1]]

    y = np.arange(8, dtype=np.float32).reshape(2, 4)
    ids, sizes = np.array([[1], [0]], np.int32), {"num_ranks": 2, "num_local_experts": 1}
    laid = afd.two_phase_layout(ids, table, **sizes)
    base = afd.two_phase_offsets(laid.send_counts[None], one_buffer=True).base[0]

    def pay(recv_x, **changed):
        return afd.two_phase_payload(y, ids, table, sorted_indices=laid.sorted_indices,
                                     send_counts=laid.send_counts, recv_x=recv_x,
                                     **{"base": base, **sizes, **changed})

    for name, other, changed in (("recv_x", "x", {"recv_x": y}),
                                 ("done", "base", {"recv_x": np.zeros_like(y), "done": base})):
        with pytest.raises(afd.InvalidArgument, match=f"{name} shares memory with {other}; give it "
                                                      "memory of its own") as refused:
            pay(**changed)
        assert refused.value.parameter == name
    np.testing.assert_array_equal(y.ravel(), np.arange(8))
    sent = np.zeros_like(y)
    pay(sent)
    np.testing.assert_array_equal(sent, y[::-1])


def test_a_context_may_lie_in_its_control_segment():
    context = afd.ScheduleContext.create(
        session_num=1, micro_batch_num=1, micro_batch_size=1, selected_expert_num=1, expert_num=1,
        attn_to_ffn_token_size=512, ffn_to_attn_token_size=512)
    segment = np.zeros(1024 + context.ffn_control_bytes, np.uint8)
    segment[:1024] = np.asarray(context).view(np.uint8)
    inside = afd.ScheduleContext(segment)
    window = np.zeros(context.ffn_window_bytes, np.uint8)
    context.ffn_descriptors(window)[0, 0, 0] = 5
    for name in ("layer_ids_buf", "session_ids_buf", "micro_batch_ids_buf", "expert_ids_buf"):
        setattr(inside.ffn, name, getattr(context.ffn, name) + 1024)
    afd.ffn_worker_scheduler(inside, window, segment)
    assert inside.ffn.out_num == 1


# Goal: memory that a kernel may not write to as such is refused for outputs as for inputs. Oracle:
# the message; memory as it was.
def test_an_output_that_is_not_aligned_is_refused():
    x, ids = np.ones((2, 4), np.float32), np.array([[1], [0]], np.int32)
    memory = np.zeros(33, np.uint8)
    with pytest.raises(afd.InvalidArgument, match="expanded_x begins at an address that is no "
                                                  "multiple of 4; give it aligned memory") as refused:
        afd.moe_init_routing_v3(x, ids, expert_num=2,
                                out={"expanded_x": memory[1:].view(np.float32).reshape(2, 4)})
    assert refused.value.parameter == "expanded_x"
    assert not memory.any()


# Goal: where there is one element, nobody steps to the next; NumPy keeps the stride of what such an
# array was cut from.
@pytest.mark.parametrize("give", [lambda array: array, OnlyDlpack, OnlyInterface])
def test_the_stride_of_an_axis_of_one_element_says_nothing(give):
    row = np.zeros((3, 8), np.float32)[1:2, 4:]
    assert row.strides == (32, 4)
    assert _native.view_of("x", give(row)).strides == (4, 1)
    column = np.zeros((3, 8), np.float32)[:, :1]
    assert _native.view_of("x", give(column)).strides == (8, 1)
    x, ids = np.arange(4, dtype=np.float32).reshape(1, 4), np.zeros((1, 1), np.int32)
    result = afd.moe_init_routing_v3(x, ids, expert_num=2, out={"expanded_x": row})
    assert result.expanded_x is row
    np.testing.assert_array_equal(row, x)


def test_the_callers_own_memory_does_not_count_against_the_limit():
    x, ids = np.ones((64, 1024), np.float32), np.zeros((64, 1), np.int32)
    mine = np.zeros((64, 1024), np.float32)
    with pytest.raises(afd.ResourceExhausted, match=r"expanded_x \[64, 1024\] 262144, "):
        afd.moe_init_routing_v3(x, ids, expert_num=2, memory_max=10000)
    result = afd.moe_init_routing_v3(x, ids, expert_num=2, memory_max=10000,
                                     out={"expanded_x": mine})
    assert result.expanded_x is mine and mine.min() == 1
    with pytest.raises(afd.ResourceExhausted, match="expanded_x"):
        afd.moe_init_routing_v3(x, ids, expert_num=2, memory_max=10000, out={"expanded_x": None})


@pytest.mark.parametrize("factor", [1e39, -1e39])
def test_a_number_that_fp32_does_not_hold_is_refused(factor):
    with pytest.raises(afd.InvalidArgument, match=r"routed_scaling_factor is -?1e\+39; it must be "
                                                  r"a number of at most 3.4028e38 in") as refused:
        afd.moe_gating_top_k(np.ones((2, 8), np.float32), k=2, routed_scaling_factor=factor)
    assert refused.value.parameter == "routed_scaling_factor"


def test_an_array_without_axes_is_a_number_as_an_attribute():
    x, ids = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([[1], [0]], np.int32)
    plain = afd.moe_init_routing_v3(x, ids, expert_num=2, active_expert_range=[0, 2])
    arrays = afd.moe_init_routing_v3(
        x, ids, expert_num=np.array(2), active_expert_range=np.array([0, 2]),
        expert_tokens_num_flag=np.array(False), num_threads=np.array(1, np.uint8))
    np.testing.assert_array_equal(plain.expanded_x, arrays.expanded_x)
    with pytest.raises(afd.InvalidArgument, match="quant_mode is 5; allowed are -1, 0, 1"):
        afd.moe_init_routing_v3(x, ids, expert_num=2, quant_mode=np.array(5))


def test_bf16_is_rounded_half_to_even_and_back_exactly():
    random = np.random.default_rng(1)
    bits = random.integers(0, 2 ** 32, 100_000, np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.isfinite(numbers)].astype(np.float64)
    numbers = numbers[np.abs(numbers) < 1e38]
    made = afd.bf16(numbers.astype(np.float32)).float32().astype(np.float64)
    # No neighbour among the bf16 numbers is nearer.
    near = np.asarray(afd.bf16(numbers.astype(np.float32))).astype(np.int64)
    finite = np.isfinite(made)
    for step in (-1, 1):
        other = afd.bf16(((near + step) & 0xFFFF).astype(np.uint16)).float32().astype(np.float64)
        usable = finite & np.isfinite(other) & (near & 0x7FFF != 0)
        distance = np.abs(made - numbers)[usable]
        assert (distance <= np.abs(other - numbers)[usable]).all()
    assert afd.bf16(np.float32([1 + 2 ** -8])).float32()[0] == 1.0
    assert afd.bf16(np.float32([1 + 3 * 2 ** -8])).float32()[0] == 1 + 2 ** -6
    assert np.isnan(afd.bf16(np.float32([np.nan])).float32()).all()


# Goal: numbers that fp32 does not hold are rounded once, not first to fp32. Oracle: the middle
# between two neighbours, the even one of which is right, and what lies next to it on either side.
@pytest.mark.parametrize("dtype", ["f8", "g", "i8", "u8", "i4", ">f8", "f4"])
def test_bf16_of_wide_numbers_is_rounded_once(dtype):
    is_whole = np.dtype(dtype).kind in "iu"
    largest = {"i8": 62, "u8": 63, "i4": 30}.get(dtype, 120)
    exponents = np.arange(26 if is_whole else -120, largest)
    low = (exponents + 127).astype(np.uint16) << 7 | np.arange(len(exponents), dtype=np.uint16) % 128
    middle = np.ldexp(1 + (low % 128 + 0.5) / 128, exponents).astype(np.longdouble)
    step = 1 if is_whole else np.spacing(middle.astype(dtype)).astype(np.longdouble)
    even = low + low % 2
    signs = (0, 0x8000) if dtype != "u8" else (0,)
    for sign in signs:
        for numbers, wanted in ((middle - step, low), (middle, even), (middle + step, low + 1)):
            made = afd.bf16((-numbers if sign else numbers).astype(dtype))
            np.testing.assert_array_equal(np.asarray(made), wanted | sign)


def test_bf16_of_what_is_beyond_fp32_is_infinite_or_zero_and_says_nothing():
    numbers = np.float64([1e300, -1e300, 1e-300, -1e-300, np.inf, 3.4e38,
                          np.nextafter(2.0, 0) * 2.0 ** 127])
    with np.errstate(all="raise"):
        made = np.asarray(afd.bf16(numbers))
    assert made.tolist() == [0x7F80, 0xFF80, 0, 0x8000, 0x7F80, 0x7F80, 0x7F80]
    assert np.isnan(afd.bf16(np.float64([np.nan])).float32()).all()


def test_bf16_takes_bits_in_either_byte_order():
    bits = np.array([0x3F80, 0xC000], np.uint16)
    made = afd.bf16(bits.astype(">u2"))
    assert made.dtype == np.uint16 and made.float32().tolist() == [1, -2]
    assert np.shares_memory(afd.bf16(bits), bits)


def test_bf16_of_a_single_number_is_an_array_without_axes():
    for value in (np.float64(1.5), 1.5, np.float32(1.5), np.uint16(0x3FC0), np.array(1.5)):
        made = afd.bf16(value)
        assert isinstance(made, afd.BFloat16) and made.shape == ()
        assert made.float32().dtype == np.float32 and made.float32() == 1.5


def test_bf16_results_are_bf16_for_other_libraries():
    x = afd.bf16(np.eye(2, dtype=np.float32))
    result = afd.moe_init_routing_v3(x, np.array([[0], [0]], np.int32), expert_num=1).expanded_x
    assert isinstance(result, afd.BFloat16)
    np.testing.assert_array_equal(result.float32(), np.eye(2))
    capsule = result.__dlpack__()
    tensor = dl_tensor(capsule)
    assert (tensor.code, tensor.bits, tensor.lanes, tensor.data) == (4, 16, 1, result.ctypes.data)
    assert list(tensor.device) == [1, 0] and tensor.byte_offset == 0
    assert tensor.shape[:tensor.ndim] == [2, 2] and tensor.strides[:tensor.ndim] == [2, 1]


def test_what_became_of_bf16_is_no_longer_bf16():
    numbers = afd.bf16(np.eye(2, dtype=np.float32)).astype(np.int32)
    view = _native.view_of("x", numbers)
    assert (view.dtype, view.strides) == (4, (2, 1))
    assert dl_tensor(numbers.__dlpack__()).bits == 32


def test_an_exported_array_lives_as_long_as_its_consumer():
    array = afd.bf16(np.ones(3, np.float32))
    alive = weakref.ref(array)
    capsule = array.__dlpack__()
    del array
    gc.collect()
    assert alive() is not None
    # A consumer renames the capsule, and calls the deleter at the end.
    managed = dl_tensor(capsule)
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    rename(capsule, b"used_dltensor")
    del capsule
    gc.collect()
    assert alive() is not None
    managed.deleter(ctypes.addressof(managed))
    gc.collect()
    assert alive() is None


def test_a_capsule_that_nobody_takes_is_given_back():
    array = afd.bf16(np.ones(3, np.float32))
    alive = weakref.ref(array)
    array.__dlpack__()
    del array
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("value, text", [
    ([[1, 2]], r"x is a list; give a NumPy array, or anything with __dlpack__"),
    (np.zeros((2, 2), np.float64), "x has dtype float64; operators take bf16, fp16, fp32, "),
    (np.zeros((2, 2), np.uint16), r"x has dtype uint16; .*; bits of bf16 are afd.bf16\(array\)"),
    (np.zeros((2, 4), np.float32)[:, ::2], "x is not contiguous; copy it first"),
    (np.zeros((2, 4), np.float32)[::-1], "x is not contiguous; copy it first"),
    (np.broadcast_to(np.float32(1), (2, 4)), "x is not contiguous; copy it first"),
    (np.zeros((1, 1, 1, 1, 1), np.float32), "x has 5 dimensions; operators take at most 4"),
    (np.float32(3).reshape(()), r"x is a scalar; it must have the shape \[N, H\]"),
])
def test_what_is_no_tensor_is_refused(value, text):
    with pytest.raises(afd.InvalidArgument, match=text) as refused:
        afd.moe_init_routing_v3(value, np.zeros((2, 1), np.int32), expert_num=1)
    assert refused.value.parameter == "x"


def test_a_tensor_that_cannot_be_exported_is_refused_in_its_librarys_words():
    class NeedsGradient(OnlyDlpack):  # What PyTorch says of such a tensor.
        def __dlpack__(self, **_kwargs):
            raise BufferError("Can't export tensors that require gradient")

    with pytest.raises(afd.InvalidArgument, match="x cannot be exported: Can't export tensors that "
                                                  "require gradient") as refused:
        afd.moe_init_routing_v3(NeedsGradient(np.zeros((2, 2), np.float32)),
                                np.zeros((2, 1), np.int32), expert_num=1)
    assert refused.value.parameter == "x"


def test_what_is_read_only_is_not_written():
    context = np.zeros(1024, np.int8)
    context.flags.writeable = False
    with pytest.raises(afd.InvalidArgument, match="schedule_context is read-only; it is written "
                                                  "in place"):
        afd.ffn_worker_scheduler(context, np.zeros(1, np.uint8), np.zeros(1, np.uint8))
