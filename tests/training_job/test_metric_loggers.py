"""Loggers of figures, read back by the libraries themselves."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

from plimsoll_trainer import metric_loggers as loggers
from plimsoll_trainer.callbacks import (
    Ending,
    EvaluationMetrics,
    RunEnd,
    RunStart,
    StepMetrics,
)
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.metric_loggers import MLflow, TensorBoard


def start(folder: Path | None, first_step: int = 0) -> RunStart:
    """An attempt that begins."""
    return RunStart(
        first_step=first_step, num_steps=9, attempt=1, checkpoint_dir=folder
    )


def a_step(step: int) -> StepMetrics:
    """Figures of a step, whose loss is its number."""
    return StepMetrics(
        step=step,
        loss=float(step),
        gradient_norm=0.5,
        learning_rate_factor=1.0,
        step_s=0.1,
        samples_per_s=80.0,
        peak_bytes=1024,
    )


EVALUATION = EvaluationMetrics(
    step=4,
    loss=2.5,
    count=16.0,
    num_samples=16,
    evaluation_s=0.2,
    best_step=4,
    best_loss=2.5,
    num_worse=0,
)
END = RunEnd(step=4, ending=Ending.DONE)


def write(logger: Any, folder: Path) -> None:
    """Two attempts: the second goes on two steps before the end of the first."""
    logger.on_start(start(folder))
    for step in range(1, 5):
        logger.on_step(a_step(step))
    logger.on_end(END)
    logger.on_start(start(folder, 2))
    for step in range(3, 6):
        logger.on_step(a_step(step))
    logger.on_evaluation(EVALUATION)
    logger.on_end(END)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what tensorboard itself imports
def test_tensorboard_reads_every_step_once(tmp_path: Path) -> None:
    """In the folder beside the checkpoints."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    write(TensorBoard(), tmp_path)
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    read = [(one.step, one.value) for one in found.Scalars("train/loss")]
    assert read == [(step, float(step)) for step in range(1, 6)]
    [evaluation] = found.Scalars("evaluation/loss")
    assert (evaluation.step, evaluation.value) == (4, 2.5)
    assert "train/samples_per_second" in found.Tags()["scalars"]


class FakeClient:
    """MLflow's client, as far as it is used."""

    runs: ClassVar[list[str]] = []
    logged: ClassVar[list[tuple[str, str, float, int]]] = []
    ended: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, tracking_uri: str) -> None:
        """Take the place of a file."""
        assert tracking_uri.startswith("sqlite:////")

    def get_experiment_by_name(self, name: str) -> None:
        """There is none."""

    def create_experiment(self, name: str) -> str:
        """Make one."""
        return name

    def create_run(self, experiment: str, **_: Any) -> Any:
        """Make one of the experiment."""
        self.runs.append(experiment)
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run-{len(self.runs)}"))

    def log_metric(self, run_id: str, key: str, value: float, step: int) -> None:
        """Write a number down."""
        self.logged.append((run_id, key, value, step))

    def set_terminated(self, run_id: str, status: str) -> None:
        """End a run."""
        self.ended.append((run_id, status))


def test_mlflow_has_one_run_of_both_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the id that the first has left beside the checkpoints."""
    spec = ModuleSpec("mlflow", None)
    module = SimpleNamespace(MlflowClient=FakeClient, __spec__=spec)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    write(MLflow(experiment="tiny"), tmp_path)
    assert FakeClient.runs == ["tiny"]
    assert FakeClient.ended == [("run-1", "FINISHED")] * 2
    steps = [step for _, key, _, step in FakeClient.logged if key == "train/loss"]
    assert steps == [1, 2, 3, 4, 3, 4, 5]
    assert ("run-1", "evaluation/loss", 2.5, 4) in FakeClient.logged


def test_wandb_goes_on_with_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the id that the first attempt has left, in its own words."""
    begun: list[dict[str, Any]] = []
    logged: list[tuple[int, dict[str, float]]] = []

    def init(**fields: Any) -> Any:
        begun.append(fields)
        return SimpleNamespace(
            log=lambda figures, step: logged.append((step, figures)),
            finish=lambda exit_code: logged.append((exit_code, {})),
        )

    module = SimpleNamespace(init=init, __spec__=ModuleSpec("wandb", None))
    monkeypatch.setitem(sys.modules, "wandb", module)
    [logger] = loggers.metric_loggers({"wandb": {"project": "tiny"}})
    write(logger, tmp_path)
    assert begun[0] == begun[1]
    assert begun[0]["resume"] == "allow"
    assert [step for step, figures in logged if "train/loss" in figures] == [
        *(1, 2, 3, 4),
        *(3, 4, 5),
    ]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("aim", "metrics are to go to 'aim', which is not known: give one of tensor"),
        ({"wandb": {}}, "metrics, wandb: "),
        ("mlflow", "metrics are to go to MLflow, and mlflow is not installed: install"),
    ],
)
def test_what_cannot_be_logged_to(
    wanted: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, before anything is trained."""
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    with pytest.raises(WorkloadError, match=f"^{text}"):
        loggers.metric_loggers(wanted)


def test_a_logger_needs_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, or that of the checkpoints."""
    monkeypatch.setattr(loggers, "find_spec", lambda _: True)
    with pytest.raises(WorkloadError, match=r"^mlflow has no folder to write to: "):
        MLflow().on_start(start(None))
