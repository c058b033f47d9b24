"""Photographs of figures, for readers who see no HTML.

`python tests/photograph.py NOTEBOOK...` takes those that are missing of the figures in the outputs of executed notebooks.
"""
import shutil, sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from notebooks import read, text  # noqa: E402
from tito_nb.views.theme import digest  # noqa: E402

PICTURES = ROOT / "tito_nb" / "pictures"
MARK = '<div class="tn-picture '  # how the text/html of a figure begins
WIDTH, SCALE = 900, 2  # px of the page, pixels a px
PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A figure</title></head><body style="margin:0">{}</body></html>'


def figures(outputs: Iterable[Mapping]) -> dict[str, str]:
    "The figures among the outputs of a cell: digest -> HTML"
    htmls = (text(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {}))
    return {digest(html): html for html in htmls if html.startswith(MARK)}


def photograph(htmls: Mapping[str, str], folder: Path = PICTURES) -> list[Path]:
    "Photograph the figures (digest -> HTML) of which `folder` has no picture; the files written"
    from playwright.sync_api import sync_playwright

    for name, html in htmls.items():
        if name != digest(html):
            raise ValueError(f"{name} is not the digest of its HTML, {digest(html)} is")
    missing = {folder / f"{name}.png": html for name, html in sorted(htmls.items()) if not (folder / f"{name}.png").exists()}
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium") or "/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": 600}, device_scale_factor=SCALE, color_scheme="light")
            page.emulate_media(media="print")  # what only a live page can use is not shown
            for path, html in missing.items():
                page.set_content(PAGE.format(html))
                page.locator(".tn-picture").screenshot(path=path, animations="disabled")
                shrink(path)
            browser.close()
    return list(missing)


def shrink(path: Path) -> None:
    "Write a PNG anew with a palette of 256 colours, if that makes it smaller"
    from PIL import Image

    small = path.with_suffix(".tmp")
    with Image.open(path) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    (small if small.stat().st_size < path.stat().st_size else path).replace(path)
    small.unlink(missing_ok=True)


def stale(htmls: Mapping[str, str], folder: Path = PICTURES) -> list[Path]:
    "Pictures in `folder` that belong to none of the figures (digest -> HTML)"
    return sorted(path for path in folder.glob("*.png") if path.stem not in htmls)


if __name__ == "__main__":
    cells = [cell for name in sys.argv[1:] for cell in read(Path(name))["cells"]]
    for written in photograph({name: html for cell in cells for name, html in figures(cell.get("outputs", [])).items()}):
        print(written.relative_to(ROOT), f"{written.stat().st_size / 1024:.0f} KB")
