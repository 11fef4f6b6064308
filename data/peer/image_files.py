"""Image files of every kind, with random pixels, for image_peer_test.py."""

import io
import itertools
import random
import struct
import zlib

from PIL import Image

SAMPLES = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "I;16": 2}


def noise(mode, size):
    """An image of random pixels."""
    width, height = size
    if mode == "1":
        return Image.frombytes("1", size, random.randbytes((width + 7) // 8 * height))
    image = Image.frombytes(mode, size, random.randbytes(width * height * SAMPLES[mode]))
    if mode == "P":
        image.putpalette(random.randbytes(768))
    return image


def photograph(mode, size):
    """Smooth colours with some noise."""
    smooth = noise(mode, [max(1, length // 8) for length in size]).resize(size, Image.BICUBIC)
    return Image.blend(smooth, noise(mode, size), random.choice([0, 0.1, 0.5]))


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def random_jpeg():
    mode = random.choice(["RGB", "RGB", "RGB", "L", "CMYK"])
    options = {
        "quality": random.choice([5, 50, 75, 90, 95, 100]),
        "progressive": mode != "CMYK" and random.random() < 0.3,
    }
    if mode == "RGB":
        options["keep_rgb"] = random.random() < 0.1
        options["subsampling"] = 0 if options["keep_rgb"] else random.choice([0, 1, 2])
    if random.random() < 0.3:
        options["restart_marker_blocks"] = random.randint(1, 9)
    size = [random.choice([random.randint(1, 40), random.randint(1, 300)]) for _ in range(2)]
    return saved(photograph(mode, size), "JPEG", **options)


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(size, bits, colors, interlaced):
    """A PNG file of a kind, which Pillow may not write, with random pixels."""
    width, height = size
    row = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colors] * bits
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for left, top, across, down in passes if interlaced else [(0, 0, 1, 1)]:
        columns, rows = len(range(left, width, across)), len(range(top, height, down))
        for _ in range(rows if columns else 0):
            data += bytes([random.randrange(5)]) + random.randbytes((columns * row + 7) // 8)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colors, 0, 0, interlaced))
    palette = png_chunk(b"PLTE", random.randbytes(3 * min(200, 1 << bits))) + png_chunk(b"tRNS", random.randbytes(2))
    rest = png_chunk(b"IDAT", zlib.compress(data)) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + (palette if colors == 3 else b"") + rest


def pngs(size):
    for mode in ("1", "L", "P", "LA", "RGB", "RGBA", "I;16"):
        yield saved(noise(mode, size), "PNG", optimize=True)
    for colors, bits in [
        *itertools.product([0], [1, 2, 4, 8, 16]),
        *itertools.product([3], [1, 2, 4, 8]),
        *itertools.product([2, 4, 6], [8, 16]),
    ]:
        yield png(size, bits, colors, 0)
        yield png(size, bits, colors, 1)


def pnms(size):
    width, height = size
    for kind, most in itertools.product(b"23", (1, 15, 100, 255, 256, 1000, 65535)):
        count = width * height * (3 if kind == b"3"[0] else 1)
        samples = [random.randint(0, most) for _ in range(count)]
        header = b"P%c # %%\n%d#x\n %d\n# comment\n%d\n" % (kind, width, height, most)
        yield header + b"".join(b"%d%s" % (sample, random.choice([b" ", b"\n", b" # 1 2\n"])) for sample in samples)
        packed_samples = struct.pack(f">{count}{'H' if most > 255 else 'B'}", *samples)
        yield header.replace(b"P%c" % kind, b"P%c" % (kind + 3)) + packed_samples
    for space in (b"", b" ", b"\n# 1\n"):
        yield b"P1\n%d %d\n" % size + space.join(random.choice([b"0", b"1"]) for _ in range(width * height))


def other_formats(size):
    for mode in ("RGB", "RGBA"):
        for options in ({"quality": 20}, {"quality": 90}, {"lossless": True}, {"lossless": True, "exact": True}):
            yield saved(noise(mode, size), "WEBP", **options)
    for mode in ("1", "L", "RGB"):
        yield saved(noise(mode, size), "PPM")
    for mode in ("1", "L", "LA", "RGB", "I;16"):
        for compression in (
            None,
            "tiff_lzw",
            "tiff_adobe_deflate",
            "packbits",
            "jpeg" if mode in ("L", "RGB") else None,
        ):
            yield saved(noise(mode, size), "TIFF", compression=compression)
    yield saved(noise("1", size), "TIFF", compression="group4")


def packbits(data):
    """Runs of at most 100 bytes that are stored as they are."""
    parts = [data[i : i + 100] for i in range(0, len(data), 100)]
    return b"".join(bytes([len(part) - 1]) + part for part in parts)


def packed(row_bytes):
    """PackBits of each row of `row_bytes` bytes."""
    return lambda data: b"".join(packbits(data[i : i + row_bytes]) for i in range(0, len(data), row_bytes))


def tiff(
    size, photometric=2, bits=8, samples=3, *, order="<", deflate=False, pack=False, planes=False, tile=None, **tags
):
    """A TIFF file of a kind, which Pillow may not write, with random pixels. `tags` are further entries, such as t274=[6]."""
    width, height = size
    across, down = tile or (width, 3)
    stored = 1 if planes else samples
    row_bytes = (across * stored * bits + 7) // 8
    blocks = []
    for _ in range(samples if planes else 1):
        for top, _ in itertools.product(range(0, height, down), range(0, width, across)):
            blocks.append(random.randbytes(row_bytes * (down if tile else min(down, height - top))))
    compress = zlib.compress if deflate else packed(row_bytes) if pack else bytes
    blocks = [compress(block) for block in blocks]
    entries = {256: [width], 257: [height], 258: [bits] * samples, 259: [8 if deflate else 32773 if pack else 1]}
    entries |= {262: [photometric], 277: [samples], 284: [2 if planes else 1]}
    entries |= {322: [across], 323: [down]} if tile else {278: [down]}
    entries |= {int(tag[1:]): values for tag, values in tags.items()}
    offsets, sizes = (324, 325) if tile else (273, 279)
    entries |= {offsets: [0] * len(blocks), sizes: [len(block) for block in blocks]}
    if photometric == 3:
        entries[320] = [random.randrange(65536) for _ in range(3 << bits)]
    at = 8 + 2 + 12 * len(entries) + 4
    far = {}
    for tag, values in sorted(entries.items()):
        letter = "I" if tag in (offsets, sizes) else "H"
        if len(values) * struct.calcsize(letter) > 4:
            far[tag] = at
            at += len(values) * struct.calcsize(letter)
    entries[offsets] = [at + sum(map(len, blocks[:i])) for i in range(len(blocks))]
    directory, rest = struct.pack(order + "H", len(entries)), b""
    for tag, values in sorted(entries.items()):
        letter = "I" if tag in (offsets, sizes) else "H"
        packed_values = struct.pack(f"{order}{len(values)}{letter}", *values)
        directory += struct.pack(order + "HHI", tag, 4 if letter == "I" else 3, len(values))
        directory += struct.pack(order + "I", far[tag]) if tag in far else packed_values.ljust(4, b"\0")
        rest += packed_values if tag in far else b""
    start = b"II*\0\x08\0\0\0" if order == "<" else b"MM\0*\0\0\0\x08"
    return start + directory + bytes(4) + rest + b"".join(blocks)


TIFF_KINDS = [  # photometric interpretation, bits, samples, extra samples
    *itertools.product([0, 1], [1, 2, 4, 8], [1], [None]),
    *itertools.product([1], [16], [1], [None]),
    *itertools.product([3], [1, 2, 4, 8], [1], [None]),
    *itertools.product([1, 3], [8], [2], [[0], [2]]),
    *itertools.product([2], [8, 16], [3], [None]),
    *itertools.product([2], [8, 16], [4], [None, [0], [1], [2]]),
    *itertools.product([2], [8], [5], [[0, 0], [1, 0], [2, 0]]),
    (2, 8, 6, [2, 0, 0]),
    *itertools.product([5], [8, 16], [4], [None]),
    (5, 8, 5, [0]),
    (6, 8, 3, None),
]


def tiffs(size):
    layouts = [{}, {"tile": (16, 16)}, {"tile": (64, 32)}]
    for photometric, bits, samples, extra in TIFF_KINDS:
        for layout, order, how in itertools.product(layouts, "<>", [{}, {"deflate": True}, {"pack": True}]):
            if photometric == 6 and how:
                continue
            tags = {"t338": extra} if extra else {}
            yield tiff(size, photometric, bits, samples, order=order, **layout, **how, **tags)
            if how == {"deflate": True} and bits >= 8:
                yield tiff(size, photometric, bits, samples, order=order, **layout, **how, **tags, t317=[2])
        if (photometric, bits, samples, extra) in [(2, 8, 3, None), (2, 8, 4, [2]), (5, 8, 4, None)]:
            for layout, how in itertools.product(layouts, [{}, {"deflate": True}]):
                yield tiff(size, photometric, bits, samples, planes=True, **layout, **how, **tags)
    for orientation in range(1, 9):
        yield tiff(size, t274=[orientation])
        yield tiff(size, t274=[orientation], tile=(16, 32), deflate=True)
        yield saved(noise("1", size), "TIFF", compression="group4", tiffinfo={274: orientation})
        yield saved(noise("RGB", size), "TIFF", compression="jpeg", tiffinfo={274: orientation})
    for mode in ("P", "RGBA", "CMYK", "YCbCr"):
        for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "lzma", "zstd"):
            yield saved(noise(mode, size), "TIFF", compression=compression)
    pages = [noise("RGB", size) for _ in range(2)]
    yield saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])


def bmp(size, bits, *, header=40, down=False, compression=0, masks=(), colors=None):
    """A BMP file of a kind, which Pillow may not write, with random pixels. With compression 1 it is one run a row."""
    width, height = size
    data = random.randbytes((width * bits + 31) // 32 * 4 * height)
    if compression == 1:
        data = bytes([width, 7, 0, 0]) * height + b"\0\1"
    count = colors or (1 << bits if bits <= 8 else 0)
    palette = b"".join(random.randbytes(3) + (b"\0" if header > 12 else b"") for _ in range(count))
    fields = struct.pack("<IHHHH", 12, width, height, 1, bits)
    if header > 12:
        fields = struct.pack("<IiiHHII", header, width, -height if down else height, 1, bits, compression, len(data))
        fields += struct.pack("<IIII", 0, 0, colors or 0, 0) + struct.pack(f"<{len(masks)}I", *masks)
        fields = fields.ljust(header, b"\0")
    start = 14 + len(fields) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + fields + palette + data


def bmps(size):
    for bits, header in itertools.product([1, 4, 8, 16, 24, 32], [12, 40, 108, 124]):
        yield bmp(size, bits, header=header)
        if header > 12:
            yield bmp(size, bits, header=header, down=True)
    yield bmp(size, 8, colors=10)
    yield bmp(size, 4, colors=5)
    for masks in ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)):
        yield bmp(size, 16, compression=3, masks=masks)
    for masks in ((0xFF0000, 0xFF00, 0xFF), (0xFF000000, 0xFF0000, 0xFF00), (0xFF000000, 0xFF00, 0xFF)):
        yield bmp(size, 32, compression=3, masks=masks)
    for masks in ((0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0xFF, 0xFF00, 0xFF0000, 0xFF000000), (0, 0, 0, 0)):
        yield bmp(size, 32, compression=3, masks=masks, header=124)
        yield bmp(size, 32, compression=3, masks=masks, header=56)
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield saved(noise(mode, size), "BMP")


def refused(size):
    """Yields files that Pillow reads and ImageDecoder does not."""
    yield bmp(size, 8, compression=1)
    yield tiff(size, 1, 32, 1, t339=[3])
