"""`python -m tests.kills --kills 200` kills `rloo train` and `dvc repro`, side by side, each in a workspace of its own.

It prints a table and writes a JSON file; the exit status is 1 if anything was not as it has to be.
"""

import argparse
import copy
import json
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.kills.lane import COMMANDS, Kill, Lane, run, undisturbed
from tests.tiny import save_tiny
from tests.workspace import Workspace, tiny_params

SHARE = {"train": 0.4, "repro": 0.6}  # of the kills: a flow takes longer to start


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--each", type=int, default=5, help="kills of a stage before it is let through")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--window", type=int, default=1, help="iterations of a window of `rloo train`, which prunes")
    parser.add_argument("--variants", default="train,repro", help="of train and repro")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new kills after so long")
    parser.add_argument("--out", type=Path, default=Path("kills.json"))
    parser.add_argument("--folder", type=Path, default=None, help="for the workspaces; a temporary one if not given")
    return parser.parse_args()


def make_lane(variant: str, folder: Path, model: Path, chosen: argparse.Namespace) -> Lane:
    params = copy.deepcopy(tiny_params(model))
    if variant == "train":
        params["storage"] = {"keep_last": 1}
    workspace = Workspace(folder / variant, params)
    size = ("--window", str(chosen.window)) if variant == "train" else ()
    workspace.run("rloo", "plan", str(chosen.iterations), "--evaluate-every", "2", *size)
    return Lane(variant, workspace, chosen.seed, chosen.each)


def work(lane: Lane, kills: int, seconds: float) -> None:
    """A lane's thread: what the harness itself meets counts as a violation, too."""
    try:
        undisturbed(lane)
        run(lane, kills, seconds)
    except Exception:
        lane.violated(traceback.format_exc())


def table(kills: list[Kill]) -> Table:
    """A row for each stage and way of killing."""
    rows: dict[tuple[str, str, str, str], list[Kill]] = defaultdict(list)
    for kill in kills:
        rows[kill.variant, kill.stage.split()[0], kill.target, kill.signal].append(kill)
    made = Table("command", "stage", "target", "signal", "kills", "ended", "seconds until clean (median, most)")
    for (variant, stage, target, name), group in sorted(rows.items()):
        seconds = [kill.clean for kill in group if kill.clean is not None]
        told = f"{median(seconds):.2f}  {max(seconds):.2f}" if seconds else "-"
        made.add_row(" ".join(COMMANDS[variant]), stage, target, name, str(len(group)), str(len(seconds)), told)
    return made


def report(lanes: list[Lane], seconds: float, out: Path) -> bool:
    """Show and write what was found; whether all is well."""
    console = Console(width=130)
    kills = [kill for lane in lanes for kill in lane.kills]
    violations = [text for lane in lanes for text in lane.violations]
    console.print(table(kills))
    for lane in lanes:
        console.print(
            f"{' '.join(COMMANDS[lane.variant])}: {len(lane.kills)} kills, {lane.passes} run(s) to the end with the "
            f"hashes of the undisturbed run, `rloo heal` needed {lane.healed} time(s)"
        )
    for text in violations:
        console.print(f"VIOLATION: {text}", style="red", markup=False)
    console.print(f"{len(kills)} kills in {seconds:.0f} s, {len(violations)} violations")
    found = {"seconds": round(seconds, 1), "violations": violations, "kills": [asdict(kill) for kill in kills]}
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return not violations


def main() -> int:
    chosen = options()
    began = time.monotonic()
    variants = chosen.variants.split(",")
    share = sum(SHARE[variant] for variant in variants)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        model = save_tiny(Path(folder) / "model")
        lanes = [make_lane(variant, Path(folder), model, chosen) for variant in variants]
        threads = []
        for lane in lanes:
            kills = round(chosen.kills * SHARE[lane.variant] / share)
            threads.append(threading.Thread(target=work, args=(lane, kills, chosen.seconds)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        well = report(lanes, time.monotonic() - began, chosen.out)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
