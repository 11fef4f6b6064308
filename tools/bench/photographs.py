"""Writes an ImageFolder of photographs as ImageNet's are: 500x375, JPEG at quality 90 with 4:2:0 chroma, 30 to 100 KB.

  photographs.py FOLDER COUNT

They are windows, at random and scaled down, of the detailed photographs in Debian's lomiri-wallpapers-16.04: one class for each of them.
"""

import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("PIL")
from PIL import Image

PHOTOGRAPHS = "/usr/share/backgrounds"
DETAILED = (
    "Dragonfly_by_Bolly",
    "Picture_0B_by_freespace",
    "Picture_1A_by_freespace",
    "aitzgorri_by_Aitzol_Berasategi",
    "analogpattern_by_Peter_Nerlich",
    "life_by_Aitzol_Berasategi",
    "picosdeeuropa_by_Aitzol_Berasategi",
)
SIZE = (500, 375)


def window(image, chance):
    """From half of what fits up to all of it, and never scaled up."""
    largest = min(image.width / SIZE[0], image.height / SIZE[1])
    scale = chance.uniform(max(1, largest / 2), largest)
    width, height = (int(scale * edge) for edge in SIZE)
    left, top = chance.randint(0, image.width - width), chance.randint(0, image.height - height)
    box = (left, top, left + width, top + height)
    return image.resize(SIZE, Image.Resampling.LANCZOS, box=box, reducing_gap=2)


def main():
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(0)
    for i, name in enumerate(DETAILED):
        with Image.open(f"{PHOTOGRAPHS}/{name}.jpg") as file:
            image = file.convert("RGB")
        (folder / name).mkdir(parents=True)
        for number in range(i, count, len(DETAILED)):
            path = folder / name / f"{number:06}.jpg"
            window(image, chance).save(path, quality=90, subsampling="4:2:0")


if __name__ == "__main__":
    main()
