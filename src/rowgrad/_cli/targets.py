"""Files that a command is to write: refused before anything runs, if they could not be written or must not be."""

from pathlib import Path

from rowgrad._cli.problems import BAD_USAGE, Problem


def check_target(path: Path, results: list[str], *, force: bool) -> None:
    """`path` must take arrays, as many as there are `results`, and be in a folder, and not be there already."""
    kind = path.suffix.lower()
    if kind not in (".npy", ".npz"):
        raise Problem(f"--out {path}: results are written as .npz or .npy.", code=BAD_USAGE)
    if kind == ".npy" and len(results) > 1:
        names = ", ".join(results)
        raise Problem(
            f"--out {path}: an .npy file holds one array, and there are {len(results)} results ({names}).",
            f"use --out {path.with_suffix('.npz')}",
            code=BAD_USAGE,
        )
    check_place(path, "--out", force=force)


def check_place(path: Path, option: str, *, force: bool) -> None:
    """`path`, given by `option`, must be in a folder, and not be there already."""
    if not path.parent.is_dir():
        raise Problem(f"{option} {path}: there is no folder {path.parent}.".lstrip())
    if path.is_dir():
        raise Problem(f"{option} {path} is a folder.".lstrip())
    if path.exists() and not force:
        raise Problem(f"{option} {path} already exists.".lstrip(), "--force overwrites it.")
