"The notebooks: where they are, how they are run, what of their outputs is committed and compared."
import base64, contextlib, io, json, re, struct, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "tito_nb" / "pictures"  # photographs of the HTML pictures, named by digest
EXPORT = {"export", "exporti", "exports"}
KERNEL = {"display_name": "python3", "language": "python", "name": "python3"}
LIVE = "application/vnd.jupyter.widget-view+json"  # names a model of one kernel run: never committed, never compared
MARK = '<div class="tn-picture '  # how the HTML of a picture begins
STILL = ("image/png", "text/plain")  # what of a widget or a picture is committed: HTML falls to pieces where notebooks are not trusted


def find(folder: Path) -> list[Path]:
    "Notebooks under `folder`, without hidden, private and checkpoint copies"
    return sorted(p for p in folder.rglob("*.ipynb") if not any(part[0] in "._" for part in p.relative_to(folder).parts))


NBS = find(ROOT / "nbs")


def name(path: Path) -> str:
    "A notebook's name in reports"
    return path.relative_to(ROOT / "nbs").as_posix()


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def text(value) -> str:
    return value if isinstance(value, str) else "".join(value)


def run(path: Path) -> tuple[bool, str]:
    "Run one notebook as `nbdev-test` does and write its outputs into it; (passed, what went wrong). Call it in a process of its own."
    from nbdev.test import test_nb

    sys.__stderr__ = err = io.StringIO()
    with contextlib.redirect_stdout(err):
        ok, _ = test_nb(path, skip_flags=["notest"], basepath=ROOT, cell_timeout=120, save=True)
    return ok, err.getvalue()


def parts(path: Path) -> tuple[str | None, list[tuple[str, str]]]:
    "Name of the exported module and the (id, source) of the cells that are not exported"
    from fastcore.nbio import read_nb

    module, cells = None, []
    for cell in read_nb(path).cells:
        if cell.cell_type != "code":
            continue
        directives = cell.directives
        if "default_exp" in directives:
            module = directives["default_exp"]
        elif not (EXPORT | {"notest"}) & set(directives) and directives.get("eval") != "false":
            cells.append((cell.id, cell.source))
    return module, cells


def run_on_module(path: Path, root: Path = ROOT) -> str:
    """Run the cells of a notebook that are not exported, with the module imported in place of those that are; what went wrong, or "".
    Finds what the module lacks but the notebook has, such as an import. Call it in a process of its own."""
    from execnb.shell import CaptureShell

    sys.path.insert(0, str(root))
    module, cells = parts(path)
    shell = CaptureShell(path)
    try:
        with contextlib.chdir(path.parent):
            names = "{k: v for k, v in vars(_module).items() if not k.startswith('__')}"
            shell.run_cell(f"import tito_nb.{module} as _module; globals().update({names})").raise_error()
            for cell_id, source in cells:
                try:
                    shell.run_cell(source).raise_error()
                except Exception as error:
                    return f"#{cell_id}: {type(error).__name__}: {error}"
    except Exception as error:
        return f"import of tito_nb.{module}: {type(error).__name__}: {error}"
    return ""


def mask(value: str) -> str:
    "Text without what differs from run to run: addresses, names of cell files, terminal colours"
    value = re.sub(r" at 0x[0-9a-fA-F]+", "", value)
    value = re.sub(r"<ipython-input-\d+-[0-9a-f]+>|/\S*/ipykernel_\d+/\d+\.py", "<cell>", value)
    return re.sub(r"\x1b\[[0-9;]*m", "", value)


def is_picture(data: dict) -> bool:
    "Is this output an HTML picture, of which a photograph is kept?"
    return text(data.get("text/html", "")).startswith(MARK)


def still(data: dict) -> dict:
    "The part of an output that is committed"
    return {k: v for k, v in data.items() if k in STILL} if LIVE in data or {"text/html", "image/png"} <= set(data) else data


def png(value) -> bytes:
    return base64.b64decode(text(value))


def bitmap(kind: str, value) -> tuple:
    "What is compared of a bitmap: its kind, and for PNG its width and height in pixels"
    data = png(value)
    return (kind, *struct.unpack(">II", data[16:24])) if kind == "image/png" else (kind, len(data) > 0)


def shown(cell: dict) -> list:
    "What a reader sees of a cell's outputs, comparable between two runs"
    out: list = []
    for o in cell.get("outputs", []):
        if o["output_type"] == "stream":
            if out and out[-1][:2] == ("stream", o["name"]):
                out[-1] = ("stream", o["name"], out[-1][2] + mask(text(o["text"])))
            else:
                out.append(("stream", o["name"], mask(text(o["text"]))))
        elif o["output_type"] == "error":
            out.append(("error", o["ename"], mask(o["evalue"])))
        else:
            for kind, value in sorted(still(o["data"]).items()):
                if kind.startswith("image/") and kind != "image/svg+xml":
                    out.append(bitmap(kind, value))
                else:
                    out.append((kind, mask(text(value) if isinstance(value, (str, list)) else json.dumps(value, sort_keys=True))))
    return out


def photographs(cell: dict) -> list[bytes]:
    "The PNG files among a cell's outputs, in order"
    return [png(o["data"]["image/png"]) for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]


def varies(cell: dict) -> bool:
    "Is the cell marked with `#| varies` (a timing, a machine's name)?"
    return any(re.fullmatch(r"#\|\s*varies\s*", line) for line in text(cell["source"]).splitlines())


def difference(cell: dict, new: dict) -> str:
    "Why a committed cell is not what a fresh run shows, or \"\""
    if varies(cell):
        return "" if bool(cell["outputs"]) == bool(new["outputs"]) else "outputs missing"
    before, after = shown(cell), shown(new)
    if before != after:
        return "\n".join(["committed:", *map(repr, before), "a fresh run:", *map(repr, after)])
    fresh = [png(o["data"]["image/png"]) for o in new["outputs"] if is_picture(o.get("data", {})) and "image/png" in o["data"]]
    return "" if set(fresh) <= set(photographs(cell)) else "the committed picture is not the photograph that lies in tito_nb/pictures"


def save(path: Path, fresh: Path) -> bool:
    "Take over from `fresh` the outputs that say something else, drop what a run leaves behind; was anything written?"
    from fastcore.nbio import nb2str, read_nb
    from nbdev.clean import clean_nb

    nb, new = read_nb(path), {c["id"]: c for c in read(fresh)["cells"]}
    for cell in nb["cells"]:
        if cell["cell_type"] != "code":
            continue
        other = new[cell["id"]]
        if (difference(cell, other) or photographs(cell) != photographs(other)) and not (varies(cell) and cell["outputs"]):
            cell["outputs"] = other["outputs"]
        for o in cell["outputs"]:
            if "data" in o:
                o["data"] = still(o["data"])
    nb["metadata"].pop("widgets", None)
    nb["metadata"]["kernelspec"] = KERNEL
    clean_nb(nb)
    after = nb2str(nb)
    if changed := after != path.read_text(encoding="utf-8"):
        path.write_text(after, encoding="utf-8")
    return changed


def hang(fresh: Path) -> None:
    "Put photographs into the outputs of a fresh run that have none"
    from tito_nb.views.theme import with_photo

    nb = read(fresh)
    for cell in nb["cells"]:
        for o in cell.get("outputs", []):
            if is_picture(o.get("data", {})) and "image/png" not in o["data"]:
                o["data"], o["metadata"] = with_photo({**o["data"], "text/html": text(o["data"]["text/html"])})
    fresh.write_text(json.dumps(nb), encoding="utf-8")
