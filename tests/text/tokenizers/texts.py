"""Texts for comparing real tokenizers: many scripts, code, whitespace, and random strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tests.text.tokenizers.strings import strings

SENTENCES = (
    "All human beings are born free and equal in dignity and rights.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits; ça, c'est l'idée.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, Übergröße.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Todos los seres humanos nacen libres e iguales… ¿verdad? ¡Sí!",
    "İnsanlar hür, haysiyet ve haklar bakımından eşit doğarlar. IĞDIR ığdır",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。カタカナｶﾀｶﾅ",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့်လည်းကောင်း၊",
    "མི་རིགས་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌།",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι· ΣΟΦΟΣ σοφός",
    "ყველა ადამიანი იბადება თავისუფალი. Բոլոր մարդիկ ծնվում են ազատ",
    "ሰው ሁሉ ነጻና በክብርና በመብት እኩል ሆኖ ይወለዳል።",
    "def f(x: int) -> str:\n    if x % 2 == 0:\n\t\treturn f'{x:>8}'  # even\n    return ''.join(y for y in z)\n",
    "for (let i = 0; i < 10; i++) { a[i] = b?.c ?? 'd'; }\r\n\r\n/* ... */ <div class=\"x\">&nbsp;</div>",
    "SELECT * FROM t WHERE id IN (1, 22, 333, 4444, 55555) AND name != 'O''Brien';",
    "https://example.org/a-b_c?d=e&f=%20#g user@host.example 192.168.0.1 C:\\Users\\x",
    "1234567890 3.14159 1,000,000 0xDEADBEEF 1e-10 ½ ² Ⅷ ٣٤٥ १२३ 1st 2nd",
    "I'm you're WE'LL they've it's he'd don't can't DON'T 'tis rock'n'roll",
    "🙂👍🏽👩‍👩‍👧‍👦🇩🇪🇫🇷 ❤️ ☃ ✓ → ∑∫√ ﷽ 𝕳𝖊𝖑𝖑𝖔 ＡＢＣ ﬁ ﬂ ㍿ ①",
    "e\u0301 a\u0308 o\u0302\u0323 \u1112\u1161\u11ab Z͑ͫ̓a̴l͝go \u0644\u0627 क्ष",
    "hello , world ! it 's \" quoted \" ( text ) [ x ] { y } ... ?!",
)  # fmt: skip
PLANES = "".join(chr(plane << 16 | 0x1234) for plane in range(1, 17))
SPACES = (" ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", "\u200b")


def texts(count: int, special: Sequence[str] = (), seed: int = 0) -> list[str]:
    """`count` texts, some with the spellings of special tokens."""
    random = np.random.default_rng(seed)
    hard = strings(count)
    texts: list[str] = ["", *SENTENCES, *(" " * n + "a" for n in range(1, 80))]
    texts += ["a" + " " * n for n in range(40)] + [f"a{chr(10) * n}b" for n in range(1, 40)]
    while len(texts) < count:
        kind = len(texts) % 8
        sentence = SENTENCES[random.integers(len(SENTENCES))]
        other = SENTENCES[random.integers(len(SENTENCES))]
        start, end = sorted(random.integers(0, len(sentence) + 1, 2))
        if kind == 0:
            space = SPACES[random.integers(len(SPACES))] * int(random.integers(1, 50))
            texts.append(sentence[start:end] + space + other[: random.integers(20)])
        elif kind == 1 and special:
            names = [special[i] for i in random.integers(0, len(special), 3)]
            texts.append(f"{names[0]}{sentence[start:end]} {names[1]} {names[2]}{other[:5]}")
        elif kind == 2:
            letters = list(PLANES + other)
            texts.append("".join(random.choice(letters, random.integers(1, 20))))
        elif kind == 3:
            words = [*sentence.split(), *other.split()]
            random.shuffle(words)
            texts.append(str(random.choice(["", " ", "\n", ", "])).join(words[:20]))
        elif kind == 4:
            texts.append(sentence[start:end].swapcase() + other[start:end])
        else:
            texts.append(hard[len(texts)])
    return texts[:count]
