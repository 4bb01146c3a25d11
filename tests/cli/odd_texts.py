"""Texts on which tokenizers disagree: marks, scripts, spaces, symbols, control characters."""

import random
import unicodedata

PLAIN = (
    "Hello world",
    "It's the dog's; they'll, we've, I'm, you'RE, she'd",
    "naïve café Ångström Übermäßig İstanbul ΣΊΣΥΦΟΣ ﬁne ǅ ẞ",
    "1234567890 3.14159 ٣٤٥ ½ ² Ⅻ ৪২ 𝟘𝟙 １２３",
    "tabs\tand\nfeeds\r\n\r\n  two  spaces   three",
    "日本語のテキスト 中文字符 한국어 문장 ㍿",
    "العربية مع تشكيل: كِتَابٌ עברית עִבְרִית",
    "family 👨‍👩‍👧‍👦 flag 🇩🇪 wave 👋🏽 heart ❤️",
    "[CLS] [MASK] [SEP] [UNK] [PAD] <s> </s> <mask> <|endoftext|> <|begin_of_text|> <0x41>",
    "[MASK]word [ MASK ] [mask] x[SEP]y <mask>  <mask> <|endoftext|><|endoftext|>",
    "a\u0300\u0316\u0315b e\u0301 \u0344 q\u0307\u0323 \u1100\u1161\u11a8 \uac01",
    "\u2581under \u2581\u2581 Ġbyte Ċ ## ##ing #ing",
    "https://example.org/a_b?c=d&e=f#g {x: [1, 2]} a+b=c $5 ^ ` | ~ <>",
    "zero\u200bwidth\u200djoin\ufeffbom\u00adsoft\u2060word \u202etlr\u202c",
    "\x00nul\x01\x02\x1b[31m\x7f\x80\x85\x9f del \ufffd \ufffe \uffff \ue000 \U000f0000",
    "\u00a0\u1680\u2000\u2009\u2028\u2029\u202f\u205f\u3000spaces\u3000 ",
    "ſ'ſ 'S 'T 'Re 'vE 'lL 'D ''s 'ſt ’s ʼs",
    "\U00011938\u11935 \U00011935\U00011930 \u0898\u0301 \u1abf\u08d3 \u1c89 \ua7cb",
    "don't do not ' quote ' . , ! ? n't 's",
    " ",
    "",
    "\n",
    " \n ",
    "'",
    "''''",
)

RANGES = (
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0x00, 0x1F),
    (0x80, 0x24F),
    (0x250, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0x11FF),
    (0x1A00, 0x1FFF),
    (0x2000, 0x2BFF),
    (0x3000, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA640, 0xABFF),
    (0xAC00, 0xD7FF),
    (0xE000, 0xFFFF),
    (0x10000, 0x11FFF),
    (0x16000, 0x1FFFF),
    (0x20000, 0x323AF),
    (0xE0000, 0xE01EF),
)
SPACES = " \t\n\r\x0b\x0c\x85\u00a0\u2009\u2028\u3000"
PIECES = ("'s", "'LL", " the", "ing", "12345", "\r\n", "  ", "[MASK]", "<mask>", "<|endoftext|>")


def letters(random: random.Random, count: int) -> str:
    """Of one script, or of many."""
    ranges = RANGES if random.random() < 0.3 else [random.choice(RANGES)]
    text = ""
    for _ in range(count):
        first, last = random.choice(ranges)
        text += chr(random.randint(first, last))
    return text


def one_text(random: random.Random) -> str:
    text = ""
    for _ in range(random.randint(1, 8)):
        kind = random.random()
        if kind < 0.35:
            text += letters(random, random.randint(1, 12))
        elif kind < 0.5:
            text += "".join(random.choices(SPACES, k=random.randint(1, 4)))
        elif kind < 0.65:
            text += random.choice(PIECES)
        elif kind < 0.75:  # a letter with a heap of marks
            marks = [chr(random.randint(0x300, 0x36F)) for _ in range(random.randint(1, 9))]
            text += random.choice("aeioucnAEZ가ä") + "".join(marks)
        else:
            text += random.choice(random.choice(PLAIN).split(" "))
    return text


def odd_texts(count: int = 1200) -> list[str]:
    """The same ones each time; no surrogates, which are no characters."""
    source = random.Random(17)
    texts = list(PLAIN)
    texts += [unicodedata.normalize(form, text) for text in PLAIN for form in ("NFC", "NFD")]
    texts += [
        "x" * 3000,
        "é" * 150,
        "ab" * 50 + "c",
        "ab" * 50,
        "中" * 400,
        "\u0301" * 500,
        " " * 700,
    ]
    texts += ["a" + "\u0301\u0316" * 300, "'s" * 200, "\n \n" * 100, "9" * 1000]
    while len(texts) < count:
        text = one_text(source)
        if not any(0xD800 <= ord(c) <= 0xDFFF for c in text):
            texts.append(text)
    return texts
