"""The option that names a state directory."""

from __future__ import annotations

from pathlib import Path

import click
import platformdirs

from plimsoll_cli.options.types import FolderPath

home_option = click.option(
    "--home",
    type=FolderPath(path_type=Path),
    envvar="PLIMSOLL_HOME",
    default=Path(platformdirs.user_state_path("plimsoll")),
    help="Where plans, profiles and checkpoints are kept.  [env: PLIMSOLL_HOME]",
)
