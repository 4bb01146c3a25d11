"""Hostile JSON, TOML, TSV and FASTA, each with whether it must be refused (None: either way)."""

import random
from collections.abc import Callable

from formats import gzip_member

Files = dict[str, tuple[bytes, bool | None]]
DEEP = 100_000
LONG = b"c" * 60_000_000 + b"\n"


def json_files(good: bytes) -> Files:
    """In place of a JSON file of a run; the run's own is `good`."""
    return {
        "deep list": (b"[" * DEEP, True),
        "deep closed list": (b"[" * DEEP + b"]" * DEEP, True),
        "deep object": (b'{"a":' * DEEP, True),
        "deep inside": (good.rstrip()[:-1] + b',"x":' + b"[" * DEEP + b"]" * DEEP + b"}", True),
        "empty": (b"", True),
        "null": (b"null", True),
        "list": (b"[]", True),
        "text": (b'"' + b"x" * 1_000_000 + b'"', True),
        "key twice": (b'{"step": 1, "step": 2,' + good.lstrip()[1:], True),
        "bytes": (b'{"a": "\xff\xfe\x80"}', True),
        "lone surrogate": (rb'{"a": "\ud800"}', True),
        "beyond numbers": (b'{"step": 1e400}', True),
        "long number": (b'{"step": ' + b"9" * 10_000 + b"}", True),
        "nan": (b'{"step": NaN}', True),
        "cut": (good[: len(good) // 2], True),
        "twice": (good + good, True),
        "zeros": (bytes(4096), True),
        "followed by NUL": (good + b"\0 anything {{{", True),
        "marked": (b"\xef\xbb\xbf" + good, None),
        "many keys": (b"{" + b",".join(b'"%x":0' % i for i in range(80_000)) + b"}", True),
    }


def toml_files(good: bytes) -> Files:
    return {
        "deep list": (b"[data]\nseed = " + b"[" * DEEP, True),
        "deep closed list": (b"[data]\nseed = " + b"[" * DEEP + b"]" * DEEP, True),
        "deep table": (b"data = " + b"{a = " * DEEP, True),
        "deep key": (b"a." * DEEP + b"b = 1", True),
        "deep header": (b"[" + b"a." * DEEP + b"b]", True),
        "deep behind four quotes": (b'x = { k = """y"""", ' + b"a." * DEEP + b"a = 1 }", True),
        "deep behind five quotes": (b"x = { k = '''y''''', " + b"a." * DEEP + b"a = 1 }", True),
        "bytes": (b'[data]\ntrain = "\xff\xfe"', True),
        "empty name": (b'[data]\ntrain = [""]', True),
        "no text": (bytes(range(256)) * 16, True),
        "zeros": (bytes(4096), True),
        "key twice": (b"[data]\nlength = 3\nlength = 4\n", True),
        "beyond numbers": (b"[optimizer]\nrate = 1e400\n", True),
        "nan": (b"[optimizer]\nrate = nan\n", True),
        "long number": (b"[data]\nlength = " + b"9" * 10_000 + b"\n", True),
        "largest": (b"[model]\nlayers = 9223372036854775807\n", True),
        "huge width": (b"[model]\ndim = 4611686018427387904\nheads = 2\n", True),
        "huge product": (b"[model]\ndim = 4294967296\nff_dim = 4294967296\n", True),
        "empty table": (good + b"\n[x]\n", None),
        "negative": (b"[data]\nlength = -1\n", True),
        "date": (b"[data]\nlength = 1979-05-27\n", True),
        "new line": (b'[data]\n"len\\ngth" = 3\n', True),
        "escape": (b'[data]\ntask = "\\u001b[2J"\n', True),
        "long key": (b"x" * 1_000_000 + b" = 1", True),
        "long value": (b'[data]\ntask = "' + b"x" * 1_000_000 + b'"', True),
        "many keys": (b"".join(b"k%d = 0\n" % i for i in range(20_000)), True),
        "carriage returns": (good.replace(b"\n", b"\r\n"), None),
        "marked": (b"\xef\xbb\xbf" + good, None),
    }


def tsv_files(good: bytes) -> Files:
    return {
        "empty": (b"", True),
        "header alone": (b"text\tlabel\n", True),
        "other columns": (b"a\tb\nx\ty\n", True),
        "column twice": (b"text\tlabel\tlabel\nx\ty\tz\nx\tz\ty\n", None),
        "strange column": (b"te\\nxt\t\x1b[2J\nx\ty\n", True),
        "short row": (good + b"alone\n", True),
        "wide row": (good + b"\t" * 1_000_000 + b"\n", True),
        "zeros": (bytes(4096), True),
        "NUL": (good.replace(b"o", b"\0"), None),
        "latin": (good + b"x\tcaf\xe9\ttrain\n", True),
        "latin text": (good + b"caf\xe9\tcat\ttrain\n", None),
        "CR alone": (good.replace(b"\n", b"\r"), True),
        "CRLF": (good.replace(b"\n", b"\r\n"), None),
        "marked": (b"\xef\xbb\xbf" + good, None),
        "one class": (b"text\tlabel\nx\ta\ny\ta\n", None),
        "class for each": (
            b"text\tlabel\n" + b"".join(b"x\t%d\n" % i for i in range(20_000)),
            None,
        ),
        "long classes": (
            gzip_member(b"text\tlabel\n" + b"".join(b"x\t%d" % i + LONG for i in range(20))),
            True,
        ),
        "no line end": (good + b"x" * 50_000_000, True),
        "packed": (gzip_member(good), None),
    }


def fasta_files(good: bytes) -> Files:
    return {
        "empty": (b"", True),
        "blank": (b"\n \n\n", True),
        "headers alone": (b">a\n>b\n>c\n", True),
        "NUL": (good.replace(b"A", b"\0", 1), True),
        "zeros": (bytes(4096), True),
        "binary": (bytes(range(256)) * 16, True),
        "latin header": (b">caf\xe9\nMKV\n" + good, None),
        "no header": (b"MKVLAA\n", True),
        "letters": (b">a\nMK1V\n", True),
        "CR alone": (good.replace(b"\n", b"\r"), True),
        "CRLF": (good.replace(b"\n", b"\r\n"), None),
        "marked": (b"\xef\xbb\xbf" + good, None),
        "long line": (b">a\n" + b"M" * 50_000_000 + b"\n", None),
        "long header": (b">" + b"h" * 50_000_000 + b"\nMKV\n", None),
        "many stops": (b">a\n" + b"*" * 1_000_000 + b"\n" + good, None),
        "escape": (b">a\nMK\x1b[2JV\n", True),
        "equal names": (b">a\nMKV\n" * 1000, None),
        "packed": (gzip_member(good), None),
        "packed twice": (gzip_member(gzip_member(good)), True),
    }


def mutated(good: bytes, draw: random.Random) -> bytes:
    """A file with a few changes of the kinds that readers fall over."""
    data = bytearray(good)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data) + 1)
        change: Callable[[], None] = draw.choice(
            (
                lambda at=at: data.__setitem__(slice(at, at + 1), draw.randbytes(1)),
                lambda at=at: data.__setitem__(slice(at, at), draw.randbytes(draw.randint(1, 9))),
                lambda at=at: data.__delitem__(slice(at, at + draw.randint(1, 40))),
                lambda at=at: data.__setitem__(slice(at, at + 8), b"\xff" * 8),
                lambda at=at: data.__setitem__(slice(at, at), data[: draw.randint(0, 99)]),
            )
        )
        change()
    return bytes(data)
