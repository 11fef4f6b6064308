"""Suite image_loader: images a second from a folder of JPEGs to batches ready to train on, beside torchvision's ImageFolder in a DataLoader."""

import os
import pathlib
import statistics
import sys

from measuring import PROGRESS, install, lines_of, machine

MARKS = ("<!-- measured image_loader: begin -->", "<!-- measured image_loader: end -->")
IMAGES, WORKERS, BATCH = 768, 2, 64
# In one process and round; the first is not counted.
EPOCHS = 4
# Python's settings, and whether they give the pixels that ours gives.
SETTINGS = {"defaults": True, "prefetch_4": True, "tensors": False}
PACKAGE, ONE_OF_IT = "lomiri-wallpapers-16.04", "/usr/share/backgrounds/life_by_Aitzol_Berasategi.jpg"


def add_arguments(parser):
    parser.add_argument(
        "--data", metavar="DIR", help="an ImageFolder of your own, instead of photographs from a package"
    )


def check_arguments(arguments, parser):
    pass


def photographs(programs, folder):
    if not os.path.exists(ONE_OF_IT):
        install(PACKAGE)
    lines_of([programs["python"], programs["photographs"], f"{folder}/images", str(IMAGES)])
    return f"{folder}/images"


def describe(folder):
    sizes = [path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    return f"{len(sizes)} files, {statistics.mean(sizes) / 1e3:.0f} kB on average"


def ours(programs, folder):
    """The lines of the epochs, and what of memory is to be known, sampled at every batch as the peer's is."""
    command = [programs["image_loader"], f"--data={folder}", f"--workers={WORKERS}", f"--batch_size={BATCH}"]
    lines = lines_of([*command, f"--epochs={EPOCHS}"])
    resident = lines[-1]["rss_bytes_by_batch"]
    half = len(resident) // 2
    return lines, {"max_resident_bytes": max(resident), "growth_bytes": max(resident[half:]) - max(resident[:half])}


def python(programs, setting, folder):
    command = [programs["python"], programs["image_loader_python"], setting, folder]
    *lines, memory = lines_of(command + [str(WORKERS), str(BATCH), str(EPOCHS)])
    return lines, memory


def measure(programs, rounds, folder):
    """{program: {figure: its median over all counted epochs of all rounds}}."""
    figures, images = {}, set()
    for _ in PROGRESS.rounds("image_loader", rounds):
        for name in ("ours", *SETTINGS):
            lines, memory = ours(programs, folder) if name == "ours" else python(programs, name, folder)
            images.update(line["images"] for line in lines)
            of = figures.setdefault(name, {})
            of.setdefault("images_per_second", []).extend(line["images"] / line["seconds"] for line in lines[1:])
            for figure, value in memory.items():
                of.setdefault(figure, []).append(value)
    if len(images) > 1:
        sys.exit(f"compare: the programs do not load the same: epochs of {sorted(images)} images")
    return {name: {key: statistics.median(values) for key, values in of.items()} for name, of in figures.items()}


def comparisons(figures):
    mine = figures["ours"]
    for setting, same_pixels in SETTINGS.items():
        peer = figures[setting]
        yield {
            "suite": "image_loader",
            "case": f"float32/{WORKERS}workers/b{BATCH}",
            "ours": mine["images_per_second"],
            "peer_name": f"dataloader_{setting}",
            "peer": peer["images_per_second"],
            "unit": "images/s",
            "ratio": mine["images_per_second"] / peer["images_per_second"],
            "same_pixels": same_pixels,
            "max_resident_bytes": mine["max_resident_bytes"],
            "growth_bytes": mine["growth_bytes"],
            "peer_max_resident_bytes": peer["max_resident_bytes"],
        }


def markdown(rows, rounds, files):
    out = [f"{machine()}; PyTorch 2.11.0; {files}. Medians of {rounds} rounds of {EPOCHS - 1} epochs.", ""]
    out += ["| program | the same pixels | images/s | times it | memory at its peak |", "|---|---|---|---|---|"]
    out.append(f"| ours | yes | {rows[0]['ours']:.0f} | | {rows[0]['max_resident_bytes'] / 2**20:.0f} MiB |")
    for row in rows:
        same, memory = "yes" if row["same_pixels"] else "no", f"{row['peer_max_resident_bytes'] / 2**20:.0f} MiB"
        out.append(f"| {row['peer_name']} | {same} | {row['peer']:.0f} | {row['ratio']:.2f} | {memory} |")
    best = min((row for row in rows if row["same_pixels"]), key=lambda row: row["ratio"])
    growth = f"in the second half of an epoch it takes {rows[0]['growth_bytes'] / 2**20:.1f} MiB more than in the first"
    out += ["", f"Ours is {best['ratio']:.2f} times Python's best with the same pixels, {best['peer_name']}; {growth}."]
    return "\n".join(out)


def run(arguments, programs, folder):
    """The comparisons, and the table of them."""
    data = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), arguments.data) if arguments.data else None
    data = data or photographs(programs, folder)
    rows = list(comparisons(measure(programs, arguments.rounds, data)))
    return rows, markdown(rows, arguments.rounds, describe(data))
