"""Callbacks that write figures where people look at them.

    TensorBoard     event files in a folder
    WeightsAndBiases
    MLflow          its server, or a folder

In: figures of steps and evaluations. Out: scalars under `train/` and `evaluation/`. A
library is looked for as its logger is made, in every process, and imported on rank 0 as
training begins. An attempt that goes on continues the run of the one before. Made by
workloads, called by `process.calls`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plimsoll_trainer.callbacks import (
    Callback,
    Ending,
    EvaluationMetrics,
    RunEnd,
    RunStart,
    StepMetrics,
)
from plimsoll_trainer.errors import WorkloadError


def require(library: str, logger: str) -> None:
    """Refuse a logger whose library is not here, before anything is trained.

    Raises:
        WorkloadError: see above.
    """
    if find_spec(library) is None:
        raise WorkloadError(
            f"metrics are to go to {logger}, and {library} is not installed: install "
            f"it in the environment of the ranks, or leave {logger} out"
        )


def scalars_of(figures: StepMetrics | EvaluationMetrics) -> Iterator[tuple[str, float]]:
    """Yield figures by their names in a log."""
    if isinstance(figures, EvaluationMetrics):
        yield "evaluation/loss", figures.loss
        yield "evaluation/seconds", figures.evaluation_s
        return
    yield "train/loss", figures.loss
    if figures.gradient_norm is not None:
        yield "train/gradient_norm", figures.gradient_norm
    yield "train/learning_rate_factor", figures.learning_rate_factor
    yield "train/step_seconds", figures.step_s
    yield "train/samples_per_second", figures.samples_per_s
    yield "train/peak_bytes", float(figures.peak_bytes)


@dataclass(kw_only=True)
class TensorBoard(Callback):
    """Event files that `tensorboard --logdir` shows."""

    folder: str = ""
    """Default: `tensorboard` in the folder of the checkpoints."""
    _writer: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Look for the library."""
        require("tensorboard", "TensorBoard")

    def on_start(self, run: RunStart) -> None:
        """Open a file; what an attempt before has written of later steps is hidden."""
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - see above

        folder = folder_for(self.folder, "tensorboard", run)
        purged = run.first_step + 1 if run.first_step else None
        self._writer = SummaryWriter(str(folder), purge_step=purged)

    def on_step(self, figures: StepMetrics) -> None:
        """Write a step."""
        self._write(figures)

    def on_evaluation(self, figures: EvaluationMetrics) -> None:
        """Write an evaluation."""
        self._write(figures)

    def on_end(self, end: RunEnd) -> None:
        """Close the file."""
        del end
        self._writer.close()

    def _write(self, figures: StepMetrics | EvaluationMetrics) -> None:
        """Write scalars."""
        for name, value in scalars_of(figures):
            self._writer.add_scalar(name, value, figures.step)


@dataclass(kw_only=True)
class WeightsAndBiases(Callback):
    """A run of W&B; where it goes is up to its own settings, such as WANDB_MODE."""

    project: str
    name: str | None = None
    mode: str | None = None
    """online, offline or disabled."""
    folder: str = ""
    """Default: `wandb` in the folder of the checkpoints."""
    _run: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Look for the library."""
        require("wandb", "W&B")

    def on_start(self, run: RunStart) -> None:
        """Begin a run, or go on with that of the attempt before."""
        init: Callable[..., Any] = import_module("wandb").init
        folder = folder_for(self.folder, "wandb", run)
        self._run = init(
            project=self.project,
            name=self.name,
            mode=self.mode,
            dir=str(folder),
            id=known_in(folder, lambda: uuid.uuid4().hex),
            resume="allow",
        )

    def on_step(self, figures: StepMetrics) -> None:
        """Write a step."""
        self._run.log(dict(scalars_of(figures)), step=figures.step)

    def on_evaluation(self, figures: EvaluationMetrics) -> None:
        """Write an evaluation."""
        self._run.log(dict(scalars_of(figures)), step=figures.step)

    def on_end(self, end: RunEnd) -> None:
        """End the run."""
        self._run.finish(exit_code=int(end.ending is Ending.FAILED))


@dataclass(kw_only=True)
class MLflow(Callback):
    """A run of MLflow."""

    uri: str = ""
    """Of its server; default: the file `mlflow.db` in `mlflow`, in the folder of the
    checkpoints."""
    experiment: str = "plimsoll"
    name: str | None = None
    _client: Any = field(default=None, init=False, repr=False)
    _run_id: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        """Look for the library."""
        require("mlflow", "MLflow")

    def on_start(self, run: RunStart) -> None:
        """Begin a run, or go on with that of the attempt before."""
        uri, folder = self.uri, None
        if run.checkpoint_dir is not None or not uri:
            folder = folder_for("", "mlflow", run)
            uri = uri or f"sqlite:///{folder.resolve()}/mlflow.db"
        self._client = import_module("mlflow").MlflowClient(tracking_uri=uri)
        self._run_id = known_in(folder, self._new_run) if folder else self._new_run()

    def _new_run(self) -> str:
        """Begin a run; give its name in the library."""
        found = self._client.get_experiment_by_name(self.experiment)
        place = (
            self._client.create_experiment(self.experiment)
            if found is None
            else found.experiment_id
        )
        made: str = self._client.create_run(place, run_name=self.name).info.run_id
        return made

    def on_step(self, figures: StepMetrics) -> None:
        """Write a step."""
        self._write(figures)

    def on_evaluation(self, figures: EvaluationMetrics) -> None:
        """Write an evaluation."""
        self._write(figures)

    def on_end(self, end: RunEnd) -> None:
        """End the run."""
        status = {Ending.FAILED: "FAILED", Ending.CHECKPOINTED: "KILLED"}
        self._client.set_terminated(self._run_id, status.get(end.ending, "FINISHED"))

    def _write(self, figures: StepMetrics | EvaluationMetrics) -> None:
        """Write scalars."""
        for name, value in scalars_of(figures):
            self._client.log_metric(self._run_id, name, value, step=figures.step)


LOGGERS: Mapping[str, Callable[..., Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
"""By name in a manifest."""


def metric_loggers(
    wanted: str | Mapping[str, Mapping[str, Any] | None] | Sequence[str],
) -> tuple[Callback, ...]:
    """Loggers by name, as a manifest gives them.

    Args:
        wanted: a name, several, or options by name: `{"tensorboard": {"folder": "."}}`.

    Raises:
        WorkloadError: there is no such logger, it has no such option, or its library
            is not installed.
    """
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, Sequence | Mapping):
        raise WorkloadError(
            f"metrics are to go to {wanted!r}, which is no name: give one of "
            f"{', '.join(LOGGERS)}"
        )
    options = names if isinstance(names, Mapping) else dict.fromkeys(names)
    made = []
    for name, given in options.items():
        if name not in LOGGERS:
            raise WorkloadError(
                f"metrics are to go to {name!r}, which is not known: give one of "
                f"{', '.join(LOGGERS)}, or a callback of your own"
            )
        try:
            made.append(LOGGERS[name](**(given or {})))
        except TypeError as error:
            raise WorkloadError(f"metrics, {name}: {error}") from None
    return tuple(made)


def folder_for(given: str, name: str, run: RunStart) -> Path:
    """The folder that a logger writes to; it is there afterwards.

    Raises:
        WorkloadError: none is given, and there are no checkpoints to lie beside.
    """
    if not given and run.checkpoint_dir is None:
        raise WorkloadError(
            f"{name} has no folder to write to: give one, or a folder for checkpoints"
        )
    folder = Path(given) if given else Path(run.checkpoint_dir or "") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def known_in(folder: Path, make: Callable[[], str]) -> str:
    """Name of the run that earlier attempts have written to; else a new one."""
    path = folder / "run-id"
    if not path.exists():
        path.write_text(make())
    return path.read_text()
