# SPDX-License-Identifier: Apache-2.0
"""ScheduleContext: the 1024 bytes of every control segment, field by field; and segments."""
import ctypes
import errno
import fcntl
import math
import mmap
import os

import numpy as np

from afd._errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted

BYTES = 1024
FLAG_EMPTY = 0
MASKED_ID = 2147483647
# As schedule/layout/geometry.h has them; others from 1 on.
_LIMITS = {"session_num": (1, 1024), "micro_batch_num": (1, 64), "selected_expert_num": (1, 68),
           "schedule_mode": (0, 2)}
_ROW_ALIGN = 512
_WINDOW_BYTES_MAX = 2 ** 46


def _fields(*names: str, reserved: int = 0) -> list[tuple]:
    kinds = {"u4": ctypes.c_uint32, "i4": ctypes.c_int32, "u8": ctypes.c_uint64}
    fields = [(name[3:], kinds[name[:2]]) for name in names]
    return fields + [("reserved", ctypes.c_int8 * reserved)]


class CommonArea(ctypes.Structure):
    """Dimensions: A, M, BS, K1, experts, and the bytes of a row's place each way."""
    _fields_ = _fields("u4 session_num", "u4 micro_batch_num", "u4 micro_batch_size",
                       "u4 selected_expert_num", "u4 expert_num", "u4 attn_to_ffn_token_size",
                       "u4 ffn_to_attn_token_size", "i4 schedule_mode", reserved=96)


class ControlArea(ctypes.Structure):
    """run_flag: 0 ends every loop."""
    _fields_ = _fields("i4 run_flag", reserved=124)


class AttentionArea(ctypes.Structure):
    """Byte offsets into the session's window, and the micro-batch combined last."""
    _fields_ = _fields("u8 token_info_buf", "u8 token_info_buf_size", "u8 token_data_buf",
                       "u8 token_data_buf_size", "u4 micro_batch_id", reserved=92)


class FfnArea(ctypes.Structure):
    """Byte offsets into the rank's window (token_*) and control segment (*_ids_buf)."""
    _fields_ = _fields("u8 token_info_buf", "u8 token_info_buf_size", "u8 token_data_buf",
                       "u8 token_data_buf_size", "u8 polling_index", reserved=88) + [
        (name + suffix, ctypes.c_uint64)
        for name in ("layer_ids_buf", "session_ids_buf", "micro_batch_ids_buf", "expert_ids_buf")
        for suffix in ("", "_size")] + [
        ("out_num", ctypes.c_uint32), ("reserved2", ctypes.c_int8 * 60)]


class _Areas(ctypes.Structure):
    _fields_ = [("common", CommonArea), ("control", ControlArea), ("attention", AttentionArea),
                ("ffn", FfnArea), ("reserved", ctypes.c_int8 * 384)]


assert ctypes.sizeof(_Areas) == BYTES and _Areas.ffn.offset == 384 and FfnArea.out_num.offset == 192


class _ReadOnlyArea:
    """An area over memory that may not be written: a store there would end the process."""

    def __init__(self, area: ctypes.Structure, memory: np.ndarray):
        super().__setattr__("_area", area)
        super().__setattr__("_memory", memory)  # The area is a bare address.

    def __getattr__(self, name: str):
        value = getattr(self._area, name)
        return value if isinstance(value, int) else bytes(value)

    def __setattr__(self, name: str, _value) -> None:
        raise FailedPrecondition(f"{name} cannot be set: the memory of this context is read-only",
                                 name)


class ScheduleContext:
    """The 1024 bytes with their fields by area: context.common.session_num, context.ffn.out_num.

    Over memory of one's own, all zero, or over the start of `memory` (a control segment), where
    fields are read and written in place; to set one in read-only memory raises FailedPrecondition.
    Operators take it as schedule_context.
    """

    def __init__(self, memory=None):
        array = np.zeros(BYTES, np.int8) if memory is None else np.asarray(memory)
        if not array.flags.c_contiguous or array.nbytes < BYTES or array.itemsize != 1:
            raise InvalidArgument(f"memory is {array.dtype} {list(array.shape)}; it must be at "
                                  f"least {BYTES} contiguous bytes", "memory")
        self._bytes = array.reshape(-1)[:BYTES].view(np.int8)
        if self._bytes.ctypes.data % 8 != 0:
            raise InvalidArgument("memory begins at an address that is no multiple of 8", "memory")
        # from_buffer() refuses memory that is read-only.
        self._areas = (_Areas.from_buffer(self._bytes) if self._bytes.flags.writeable else
                       _Areas.from_address(self._bytes.ctypes.data))

    def _area(self, name: str):
        area = getattr(self._areas, name)
        return area if self._bytes.flags.writeable else _ReadOnlyArea(area, self._bytes)

    common = property(lambda self: self._area("common"))
    control = property(lambda self: self._area("control"))
    attention = property(lambda self: self._area("attention"))
    ffn = property(lambda self: self._area("ffn"))

    @property
    def __array_interface__(self):
        return self._bytes.__array_interface__

    def __repr__(self) -> str:
        c = self.common
        return (f"<ScheduleContext A={c.session_num} M={c.micro_batch_num} "
                f"BS={c.micro_batch_size} K1={c.selected_expert_num}>")

    @classmethod
    def create(cls, *, session_num: int, micro_batch_num: int, micro_batch_size: int,
               selected_expert_num: int, expert_num: int, attn_to_ffn_token_size: int,
               ffn_to_attn_token_size: int, schedule_mode: int = 2,
               memory=None) -> "ScheduleContext":
        """A context with its initial values. Windows begin with the flags, rows follow at the next
        multiple of 512; the FFN's lists follow each other in ffn_control from byte 0.

        Errors: InvalidArgument: a number that no instance can have (docs/wire.md), or read-only
        memory.
        """
        context = cls(memory)
        if not context._bytes.flags.writeable:
            raise InvalidArgument("memory is read-only", "memory")
        sizes = {"session_num": session_num, "micro_batch_num": micro_batch_num,
                 "micro_batch_size": micro_batch_size, "selected_expert_num": selected_expert_num,
                 "expert_num": expert_num, "attn_to_ffn_token_size": attn_to_ffn_token_size,
                 "ffn_to_attn_token_size": ffn_to_attn_token_size, "schedule_mode": schedule_mode}
        _check_sizes(sizes)
        ctypes.memset(ctypes.addressof(context._areas), 0, BYTES)
        for name, value in sizes.items():
            setattr(context.common, name, value)
        context.control.run_flag = 1
        context.attention.micro_batch_id = micro_batch_num - 1
        slots = micro_batch_size * selected_expert_num
        _place(context.attention, 4 * micro_batch_num * slots,
               micro_batch_num * slots * ffn_to_attn_token_size)
        lanes = session_num * micro_batch_num
        _place(context.ffn, 4 * lanes * (2 + slots), lanes * slots * attn_to_ffn_token_size)
        offset = 0
        for name, each in (("layer_ids_buf", 1), ("session_ids_buf", 1),
                           ("micro_batch_ids_buf", 1), ("expert_ids_buf", slots)):
            setattr(context.ffn, name, offset)
            setattr(context.ffn, name + "_size", 4 * session_num * each)
            offset += 4 * session_num * each
        return context

    @property
    def ffn_window_bytes(self) -> int:
        """What ffn_window needs."""
        return self.ffn.token_data_buf + self.ffn.token_data_buf_size

    @property
    def ffn_control_bytes(self) -> int:
        """What ffn_control needs."""
        return self.ffn.expert_ids_buf + self.ffn.expert_ids_buf_size

    @property
    def attention_window_bytes(self) -> int:
        """What attention_window needs."""
        return self.attention.token_data_buf + self.attention.token_data_buf_size

    def ffn_descriptors(self, ffn_window) -> np.ndarray:
        """int32 [A, M, 2 + BS*K1] in the window: flag, layer_id, ids. A view."""
        c, f = self.common, self.ffn
        return _words(ffn_window, f.token_info_buf, (
            c.session_num, c.micro_batch_num, 2 + c.micro_batch_size * c.selected_expert_num))

    def result_flags(self, attention_window) -> np.ndarray:
        """int32 [M, BS, K1] in the window. A view."""
        c = self.common
        return _words(attention_window, self.attention.token_info_buf, (
            c.micro_batch_num, c.micro_batch_size, c.selected_expert_num))

    def taken(self, ffn_control) -> tuple[np.ndarray, np.ndarray]:
        """Sessions and micro-batches of the descriptors in the scheduler's lists. Copies."""
        lists = (self.ffn.session_ids_buf, self.ffn.micro_batch_ids_buf)
        return tuple(_words(ffn_control, offset, (self.ffn.out_num,)).copy() for offset in lists)


def _check_sizes(sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        low, high = _LIMITS.get(name, (1, 2 ** 31 - 1))
        if not low <= value <= high:
            raise InvalidArgument(f"{name} is {value}; allowed are {low} to {high}", name)
        if name.endswith("_token_size") and value % _ROW_ALIGN != 0:
            raise InvalidArgument(f"{name} is {value}; it must be a positive multiple of "
                                  f"{_ROW_ALIGN}", name)
    num_rows = math.prod(sizes[name] for name in ("session_num", "micro_batch_num",
                                                  "micro_batch_size", "selected_expert_num"))
    num_bytes = num_rows * max(sizes["attn_to_ffn_token_size"], sizes["ffn_to_attn_token_size"])
    if num_bytes > _WINDOW_BYTES_MAX:
        raise InvalidArgument(
            f"a window of session_num {sizes['session_num']} * micro_batch_num "
            f"{sizes['micro_batch_num']} * micro_batch_size {sizes['micro_batch_size']} * "
            f"selected_expert_num {sizes['selected_expert_num']} rows exceeds {_WINDOW_BYTES_MAX} "
            "bytes; lower one of them", "micro_batch_size")


def _place(area, info_bytes: int, data_bytes: int) -> None:
    area.token_info_buf, area.token_info_buf_size = 0, info_bytes
    area.token_data_buf = -(-info_bytes // 512) * 512
    area.token_data_buf_size = data_bytes


def _words(segment, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(segment).reshape(-1).view(np.uint8)
    size = 4 * int(np.prod(shape))
    if offset + size > array.size:
        raise InvalidArgument(f"the context says {size} bytes at {offset}; the segment has "
                              f"{array.size}", "segment")
    return array[offset:offset + size].view(np.int32).reshape(shape)


def segment(name: str, *, create: int = 0, writable: bool = True) -> np.ndarray:
    """Shared memory of that name ("/afd-...") as uint8 [size]; `create`: new, zeros, of that size.

    With writable=False the memory itself is read-only: to watch an instance that serves. It stays
    mapped as long as the array or a view of it lives; unlink_segment() takes the name. The daemon's
    segments are links to memory files; such a link is followed only to one of this user that is
    sealed, so that nobody can shorten what is mapped. Errors: FileExistsError: `create`, and the
    name is taken; NotFound; InvalidArgument: also `create` without `writable`; ResourceExhausted:
    no memory, and no name.
    """
    path = _path_of(name)
    if not isinstance(create, (int, np.integer)) or not 0 <= create < 2 ** 63:
        raise InvalidArgument(f"create is {create!r}; it must be a number of bytes below 2^63",
                              "create")
    if create and not writable:
        raise InvalidArgument("writable is False; a segment that is made here is written here, too",
                              "writable")
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
    flags |= os.O_CREAT | os.O_EXCL if create else 0
    try:
        handle = _open(path, flags)
    except FileNotFoundError:
        raise NotFound(f"there is no segment {name}", "name") from None
    try:
        if create:
            os.posix_fallocate(handle, 0, create)
        elif os.path.islink(path) and not _is_sealed(handle):
            raise InvalidArgument(f"segment {name} is no sealed memory file of this user: it could "
                                  "be shortened while it is in use", "name")
        if os.fstat(handle).st_size == 0:
            raise InvalidArgument(f"segment {name} has no bytes", "name")
        return _map(handle, is_writable=writable)
    except BaseException as error:
        if create:
            os.unlink(path)
        if isinstance(error, OSError):
            raise ResourceExhausted(f"segment {name}{f' of {create} bytes' if create else ''} "
                                    f"cannot be mapped: {error.strerror}",
                                    "create" if create else "name") from error
        raise
    finally:
        os.close(handle)


def map_descriptor(handle: int, name: str, *, is_writable: bool) -> np.ndarray:
    """The segment that afdd handed over as a descriptor, which may be closed then. uint8 [size]."""
    if not _is_sealed(handle):
        raise InvalidArgument(f"segment {name} is no sealed memory file of this user: it could be "
                              "shortened while it is in use", "name")
    return _map(handle, is_writable=is_writable)


def _map(handle: int, *, is_writable: bool) -> np.ndarray:
    access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
    return np.frombuffer(mmap.mmap(handle, 0, access=access), np.uint8)


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return os.open(path, flags)


def _is_sealed(handle: int) -> bool:
    wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    try:
        seals = fcntl.fcntl(handle, fcntl.F_GET_SEALS)
    except OSError:  # No memory file.
        return False
    return os.fstat(handle).st_uid == os.geteuid() and seals & wanted == wanted


def unlink_segment(name: str) -> None:
    """Takes a segment's name away; who has it mapped keeps it. Errors: NotFound, InvalidArgument."""
    try:
        os.unlink(_path_of(name))
    except FileNotFoundError:
        raise NotFound(f"there is no segment {name}", "name") from None


def _path_of(name: str) -> str:
    plain = name.removeprefix("/")
    if plain in ("", ".", "..") or "/" in plain or "\0" in plain:
        raise InvalidArgument(f"name is {name!r}; a segment's name is one word after a slash",
                              "name")
    return "/dev/shm/" + plain
