"""Files that were damaged: bytes changed, lost or put in at random, the same ones in every run."""

from random import Random

PIECES = (
    b"(", b")", b"'", b'"', b"[", b"]", b"{", b"}", b",", b":", b"-1", b"999999999999", b"\\", b"\\ud800", b"\n", b"**",
    b"1_0", b"1e999", b"True", b"null", b"|O", b"<U9", b"float32", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xed\xa0\x80",
)  # fmt: skip


def damaged(random: Random, data: bytes) -> bytes:
    """`data`, changed in one to four places."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] = random.randrange(256)
            case 2:
                del changed[at : at + random.randrange(1, 9)]
            case 3 | 4:
                changed[at : at + random.randrange(3)] = random.choice(PIECES)
            case _ if random.randrange(8) == 0:
                del changed[at:]
    return bytes(changed)
