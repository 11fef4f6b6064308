"""ImageDecoder beside Pillow's convert("RGB"), which torchvision's ImageFolder uses."""

import io
import os
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

from PIL import Image

from image_files import bmps, other_formats, photograph, png, png_chunk, pngs, pnms, random_jpeg, refused, saved, tiffs

PROGRAM = os.path.abspath(sys.argv.pop(1))
SIZES = [(1, 1), (7, 5), (33, 20)]


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

    def test_jpeg_with_a_trailer_in_place_of_its_end_is_as_in_pillow(self):
        trailers = [
            bytes(1),
            bytes(2),
            bytes(9000),
            bytes(100000),
            b"a trailer",
            b"\xff\xd0",
            b"\xff\xe1\xf0\x00" + bytes(99),
        ]
        trailers += [random.randbytes(50).replace(b"\xff", b"") for _ in range(5)] + [b"\xff\xd8\xff\xe0", b"\xff" * 90]
        files = [random_jpeg()[:-cut] + trailer for trailer in trailers * 4 for cut in (2, 2, 2, 7, 100)]
        read = 0
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            image = pillows(file)
            read += image is not None
            if image is None:
                self.assertIsInstance(found, str)
            else:
                self.assertEqual(found, (image.size, image.tobytes()))
        print(f"with a trailer: {read} of {len(files)} are read, and the same", flush=True)
        self.assertGreater(read, len(files) // 3)

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

    def test_pnm(self):
        self.check_same([file for size in SIZES for file in pnms(size)])

    def test_bmp(self):
        self.check_same([file for size in SIZES for file in bmps(size)])

    def test_tiff(self):
        self.check_same([file for size in SIZES[1:] for file in tiffs(size)])

    def test_what_would_be_read_otherwise_is_refused(self):
        files = [file for size in SIZES[1:] for file in refused(size)]
        for file, found in zip(files, self.decoded([(file, None) for file in files])):
            self.assertIsNotNone(pillows(file))
            self.assertIn("of a kind that is read as Pillow reads it, found one of", found)


if __name__ == "__main__":
    unittest.main()
