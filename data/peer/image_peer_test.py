"""ImageDecoder beside Pillow's convert("RGB"), which torchvision's ImageFolder uses."""

import io
import itertools
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings
import zlib

from PIL import Image

PROGRAM = os.path.abspath(sys.argv.pop(1))
SAMPLES = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I;16": 2}
SIZES = [(1, 1), (7, 5), (33, 20)]


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


def other_formats(size):
    for mode in ("RGB", "RGBA"):
        for options in ({"quality": 20}, {"quality": 90}, {"lossless": True}, {"lossless": True, "exact": True}):
            yield saved(noise(mode, size), "WEBP", **options)
    for mode in ("1", "L", "RGB"):
        yield saved(noise(mode, size), "PPM")
    for mode in ("1", "L", "P", "RGB"):
        yield saved(noise(mode, size), "BMP")
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


def refused(size):
    """What Pillow reads and ImageDecoder does not."""
    for kind, mode in (("BMP", "RGBA"), ("TIFF", "RGBA"), ("TIFF", "CMYK"), ("TIFF", "P")):
        yield saved(noise(mode, size), kind)


def pillows(file):
    """The image, or None where Pillow refuses it."""
    try:
        return Image.open(io.BytesIO(file)).convert("RGB")
    except Exception:
        return None


def random_part(image):
    (width, height) = image.size
    right, lower = random.randint(1, width), random.randint(1, height)
    return random.randrange(right), random.randrange(lower), right, lower


class ImagePeerTest(unittest.TestCase):
    def setUp(self):
        random.seed(1)
        warnings.simplefilter("ignore")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def decoded(self, files_and_boxes):
        """(size, pixels) or an error's message for each file and its part, which is Pillow's box or None for the whole."""
        lines, sizes = [], []
        for number, (file, box) in enumerate(files_and_boxes):
            path = os.path.join(self.folder, str(number))
            with open(path, "wb") as out:
                out.write(file)
            lines.append(path if box is None else f"{path} {box[1]} {box[0]} {box[3] - box[1]} {box[2] - box[0]}")
            sizes.append(box and (box[3] - box[1]) * (box[2] - box[0]))
        run = subprocess.run([PROGRAM, "decode"], input="\n".join(lines).encode(), check=True, capture_output=True)
        self.assertEqual(run.stderr, b"")
        results = io.BytesIO(run.stdout)
        for pixels in sizes:
            line = results.readline().decode().strip()
            if not line.replace(" ", "").isdigit():
                yield line
                continue
            height, width = map(int, line.split())
            yield (width, height), results.read(3 * (height * width if pixels is None else pixels))
        self.assertEqual(results.read(), b"")

    def check_same(self, files, parts=0):
        images = [pillows(file) for file in files]
        boxes = [None] + [random_part] * parts
        wanted = [(file, image, box and box(image)) for file, image in zip(files, images) for box in boxes]
        for found, (_, image, box) in zip(self.decoded([(file, box) for file, _, box in wanted]), wanted):
            self.assertEqual(found[0], image.size, found)
            self.assertTrue(found[1] == image.crop(box or (0, 0, *image.size)).tobytes(), (image.size, box))
        print(f"{len(files)} files, {len(wanted)} parts are the same", flush=True)

    def test_jpeg_that_pillow_writes(self):
        self.check_same([random_jpeg() for _ in range(300)], parts=5)

    def test_jpeg_of_other_kinds(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "jpegs", folder], check=True)
            files = [open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))]
        self.check_same(files, parts=5)

    def test_progressive_jpeg_that_lacks_scans_is_smoothed_almost_alike(self):
        files = []
        for _ in range(100):
            file = saved(
                photograph("RGB", [random.randint(20, 100), random.randint(20, 100)]), "JPEG", progressive=True
            )
            scans = [i for i in range(len(file)) if file.startswith(b"\xff\xda", i)]
            files.append(file[: random.choice(scans[1:])] + b"\xff\xd9")
        same = 0
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            differences = [abs(a - b) for a, b in zip(pillows(file).tobytes(), found[1], strict=True)]
            self.assertLess(sum(differences) / len(differences), 10)
            same += not any(differences)
        print(f"lacking scans: {same} of {len(files)} are the same", flush=True)

    def test_jpeg_with_exif_orientation_is_not_turned(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        self.check_same([saved(photograph("RGB", (30, 20)), "JPEG", exif=exif)])

    def test_truncated_jpeg_is_an_error_as_in_pillow(self):
        files = [file[: random.randint(4, len(file) - 1)] for file in (random_jpeg() for _ in range(200))]
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            self.assertIsNone(pillows(file))
            self.assertIn("it is truncated", found)

    def test_damaged_jpeg_is_as_in_pillow_or_refused(self):
        files = []
        for _ in range(500):
            file = bytearray(random_jpeg())
            for _ in range(random.choice([1, 2, 10])):
                file[random.randrange(file.find(b"\xff\xda"), len(file) - 2)] = random.choice(
                    [0, 0xFF, random.randrange(256)]
                )
            files.append(bytes(file))
        outcomes = {"the same": 0, "refused by both": 0, "refused by C++": 0}
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            image = pillows(file)
            if image is None:
                self.assertIsInstance(found, str)
                outcomes["refused by both"] += 1
            elif isinstance(found, str):  # for its markers, after which libjpeg may find its way back into the data
                self.assertRegex(found, "it is (damaged|truncated)$")
                outcomes["refused by C++"] += 1
            else:
                self.assertEqual(found, (image.size, image.tobytes()))
                outcomes["the same"] += 1
        print(f"damaged: {outcomes}", flush=True)
        self.assertGreater(min(outcomes.values()), 20)

    def test_png(self):
        self.check_same([file for size in SIZES for file in pngs(size)], parts=2)

    def test_png_with_a_wrong_checksum_before_its_data_is_an_error_as_in_pillow(self):
        file = png((3, 2), 8, 2, 0)
        for name in (b"teSt", b"tEXt", b"gAMA"):
            changed = file[:33] + png_chunk(name, b"a\0bc")[:-1] + b"?" + file[33:]
            self.assertIsNone(pillows(changed))
            self.assertEqual(list(self.decoded([(changed, None)])), [f"libpng: {name.decode()}: CRC error"])

    def test_other_formats(self):
        self.check_same([file for size in SIZES[1:] for file in other_formats(size)], parts=2)

    def test_what_would_be_read_otherwise_is_refused(self):
        files = [file for size in SIZES[1:] for file in refused(size)]
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            self.assertIsNotNone(pillows(file))
            self.assertIn("of a kind that is read as Pillow reads it, found one of", found)


if __name__ == "__main__":
    unittest.main()
