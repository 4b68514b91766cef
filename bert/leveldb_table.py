"""LevelDB tables, which hold the index of a TensorFlow checkpoint.

A table ends in a footer of 48 bytes that points to the block of handles, whose entries point to
the blocks of entries. In a block each key gives only what differs from the key before it. After
each block come one byte for its compression and a masked CRC-32C of both.

No number of a file is trusted: each is compared with what is there, or with a limit below, before
memory is set aside for it.
"""

from collections.abc import Iterator

import google_crc32c
import numpy as np
import numpy.typing as npt

FOOTER_SIZE = 48
MAGIC = bytes.fromhex("57fb808b247547db")
TRAILER_SIZE = 5
# Far above what the index of a checkpoint needs.
MAX_KEY_BYTES = 1 << 10
MAX_VALUE_BYTES = 1 << 12


class DamagedError(Exception):
    """What is wrong with a file, without the name of the file."""


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table, in ascending order of the keys.

    Args:
        data: the whole file.

    Raises:
        DamagedError: while iterating, at the first block that is not as it should be.
    """
    footer = data[-FOOTER_SIZE:]
    if len(footer) < FOOTER_SIZE or not footer.endswith(MAGIC):
        raise DamagedError("does not end as the index of a checkpoint does")
    # The footer has two handles; the first, of the block of properties, is not needed.
    _, at = read_varint(footer, 0)
    _, at = read_varint(footer, at)
    handles = _block_entries(_block(data, *_handle(footer[at:])))
    last_key, last_end = None, 0
    for _, value in handles:
        offset, size = _handle(value)
        if offset < last_end:
            raise DamagedError(f"has a block at byte {offset} inside the block before it")
        last_end = offset + size
        for key, entry in _block_entries(_block(data, offset, size)):
            if last_key is not None and key <= last_key:
                raise DamagedError(f"has the key {key!r} out of order")
            last_key = key
            yield key, entry


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + TRAILER_SIZE > len(data):
        raise DamagedError(f"has a block up to byte {end + TRAILER_SIZE}, the file has {len(data)}")
    checksum = int.from_bytes(data[end + 1 : end + TRAILER_SIZE], "little")
    if masked_crc32c(data[offset : end + 1]) != checksum:
        raise DamagedError(f"has a wrong checksum of its block at byte {offset}")
    if data[end] != 0:
        raise DamagedError(f"has a compressed block at byte {offset}, which cannot be read")
    return data[offset:end]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; the block ends with its restart points, whose number is its last word."""
    end = len(block) - 4 * (1 + int.from_bytes(block[-4:], "little"))
    if len(block) < 4 or end < 0:
        raise DamagedError("has a block that is shorter than its list of restart points")
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + own + length > end:
            raise DamagedError("has an entry that does not fit into its block")
        if shared + own > MAX_KEY_BYTES or length > MAX_VALUE_BYTES:
            raise DamagedError(
                f"has an entry of over {MAX_KEY_BYTES} bytes for the key or {MAX_VALUE_BYTES} for "
                "the value"
            )
        key = key[:shared] + block[at : at + own]
        at += own + length
        yield key, block[at - length : at]


def _handle(data: bytes) -> tuple[int, int]:
    """Offset and size of a block."""
    offset, at = read_varint(data, 0)
    size, _ = read_varint(data, at)
    return offset, size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, of seven bits in each byte, that starts at ``at``; and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            if value >> 64:
                break
            return value, at
    raise DamagedError("has a number that is cut off or longer than 64 bits")


def masked_crc32c(data: bytes | npt.NDArray[np.uint8]) -> int:
    """The CRC-32C, rotated and shifted as LevelDB and TensorFlow store it."""
    checksum: int = google_crc32c.value(data)
    rotated = checksum >> 15 | (checksum << 17 & 0xFFFFFFFF)
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF
