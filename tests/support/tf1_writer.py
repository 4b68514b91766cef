"""A small writer of TensorFlow's V2 checkpoints that shares no code with the reader in bert.

It can lie: entries, header and compression of the table may be forged.
"""

POLYNOMIAL = 0x82F63B78
MAGIC = bytes.fromhex("57fb808b247547db")


def crc_table():
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (POLYNOMIAL if value & 1 else 0) for value in table]
    return table


TABLE = crc_table()


def masked(data):
    """The checksum a byte at a time, written from RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def sized(tag, data):
    return bytes([tag]) + varint(len(data)) + data


def packed_block(pairs):
    """Prefix-compressed entries, a restart point every third, then the list of these."""
    out, restarts, last = b"", [], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % 3 == 0:
            restarts.append(len(out))
        else:
            while key[: shared + 1] == last[: shared + 1] and shared < len(last):
                shared += 1
        own = key[shared:]
        out += varint(shared) + varint(len(own)) + varint(len(value)) + own + value
        last = key
    return out + b"".join(n.to_bytes(4, "little") for n in (*restarts, len(restarts)))


def write_table(file, pairs, per_block=10, compression=0):
    """Write a table; returns the spans of its blocks, trailers left out."""
    data, handles, spans = b"", [], []

    def add(block):
        nonlocal data
        spans.append((len(data), len(block)))
        handle = varint(len(data)) + varint(len(block))
        block += bytes([compression])
        data += block + masked(block)
        return handle

    for first in range(0, len(pairs), per_block):
        chosen = pairs[first : first + per_block]
        handles.append((chosen[-1][0] + b"~", add(packed_block(chosen))))
    footer = add(packed_block([])) + add(packed_block(handles))
    file.write_bytes(data + footer.ljust(40, b"\0") + MAGIC)
    return spans


def write_checkpoint(prefix, tensors, shards=1, forged=None, header=None, **table):
    """Write name -> array. ``forged``: name -> fields of its entry that are not to be true."""
    types = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "uint8": 4}
    contents = [bytearray(b"unused") for _ in range(shards)]
    pairs = [(b"", header if header is not None else b"\x08" + varint(shards) + b"\x1a\2\x08\1")]
    for number, name in enumerate(sorted(tensors)):
        raw, shard = tensors[name].tobytes(), number % shards
        entry = {
            "dtype": types[str(tensors[name].dtype)],
            "shape": tensors[name].shape,
            "shard": shard,
            "offset": len(contents[shard]),
            "size": len(raw),
            **(forged or {}).get(name, {}),
        }
        contents[shard] += raw
        shape = b"".join(sized(0x12, b"\x08" + varint(size)) for size in entry["shape"])
        value = b"\x08" + varint(entry["dtype"]) + sized(0x12, shape)
        for tag, field in ((0x18, "shard"), (0x20, "offset"), (0x28, "size")):
            value += bytes([tag]) + varint(entry[field])
        pairs.append((name.encode(), value + b"\x35" + masked(raw)))
    for shard, content in enumerate(contents):
        file = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")
        file.write_bytes(content)
    return write_table(prefix.with_name(f"{prefix.name}.index"), pairs, **table)
