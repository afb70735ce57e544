"""A fine-tune from YAML on a cluster, from the claim with the model to its weights.

The example as users get it: the chart, built images, and what docs/cluster.md advises
to get files into a claim and out of it. Two nodes have a device each, so that the ranks
are two pods that share the claim. Where the weights go there is something of root's at
first, so that the first attempt cannot write them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("peft")

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from examples.tiny_qwen import main
from plimsoll_cli.__main__ import main as plimsoll
from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.objects.pod_template import CHECKPOINTS
from plimsoll_trainer.huggingface import finetune
from tests.lab import gpus
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus
from tests.lab.installed import Installed, a_volume, installed

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
MANIFEST = (ROOT / "examples" / "finetune.yaml").read_text()
PLAN, CLAIM, MODEL = "finetune", "models", "tiny-qwen"
DEVICE = Gpus(count=1, memory_mib=5)
"""Of each node: two are needed."""
STEPS, NUM_EVALUATED = 10, 8
LIMIT_S = 360.0
FOREIGN = "notes"
"""File in the way."""
LOSS = re.compile(rf"evaluation after step {STEPS}: loss ([\d.]+)")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A fine-tune that has come to its end."""

    release: Installed
    namespace: str
    model: Path
    """What was put into the claim."""
    first_end: dict[str, Any]
    """Condition `Succeeded` after the first attempt."""
    first_log: str
    """Of all pods of the attempt that trained."""

    def kubectl(self, *words: str) -> str:
        """What kubectl prints, of this namespace."""
        return self.release.cluster.kubectl(*words, "-n", self.namespace)

    @property
    def uid(self) -> str:
        """Of the plan: names its folder in the claim."""
        return str(self.plan["metadata"]["uid"])

    @property
    def plan(self) -> dict[str, Any]:
        """The TrainingPlan as it is now."""
        return self.release.cluster.get("tplan", PLAN, namespace=self.namespace)


@pytest.fixture(scope="module")
def tuned(
    release_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tuned]:
    """Tune by the example, whose export fails once."""
    nodes = release_nodes
    for node in nodes.nodes:
        gpus.pretend(nodes, node, DEVICE)
    with ExitStack() as stack:
        release = stack.enter_context(installed(nodes))
        namespace = stack.enter_context(nodes.fresh_namespace())
        volume = a_volume(nodes, namespace, CLAIM)
        nodes.apply(volume, *files_manifests(), namespace=namespace)
        nodes.wait("pod/files", "condition=Ready", namespace=namespace)
        model = tmp_path_factory.mktemp("finetune") / MODEL
        main(model)
        words = ("cp", str(model), f"files:/models/{MODEL}", "-n", namespace)
        nodes.kubectl(*words)
        nodes.apply(a_plan(), namespace=namespace)
        uid = nodes.get("tplan", PLAN, namespace=namespace)["metadata"]["uid"]
        in_the_way = Path(volume["spec"]["hostPath"]["path"]) / uid / "weights"
        in_the_way.mkdir(parents=True)
        in_the_way.parent.chmod(0o777)  # whoever a pod runs as
        (in_the_way / FOREIGN).touch()
        end = first_end(release, namespace)
        labels = f"plimsoll.dev/plan={PLAN},plimsoll.dev/child=train"
        log = nodes.kubectl("logs", "-l", labels, "--tail=-1", "-n", namespace)
        shutil.rmtree(in_the_way)
        release.wait_for(namespace, PLAN, ConditionType.SUCCEEDED, timeout_s=LIMIT_S)
        yield Tuned(
            release=release,
            namespace=namespace,
            model=model,
            first_end=end,
            first_log=log,
        )


def files_manifests() -> list[dict[str, Any]]:
    """The claim and the pod that docs/cluster.md advises to make."""
    section = PAGE.partition("\n## A fine-tune\n")[2].partition("\n## ")[0]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    return list(yaml.safe_load_all(text))


def a_plan() -> dict[str, Any]:
    """The example with fewer steps, and an evaluation."""
    plan: dict[str, Any] = yaml.safe_load(MANIFEST)
    spec = plan["spec"]
    spec["training"]["steps"] = STEPS
    data = spec["workload"]["args"]["data"]
    evaluation = {"data": data, "num_samples": NUM_EVALUATED}
    spec["workload"]["args"]["evaluation"] = evaluation
    return plan


def first_end(release: Installed, namespace: str) -> dict[str, Any]:
    """Condition `Succeeded` once the first attempt has ended."""

    def found() -> dict[str, Any]:
        return release.conditions(namespace, PLAN).get(ConditionType.SUCCEEDED, {})

    def has_ended() -> bool:
        end = found()
        return end.get("reason") == "BackingOff" or end.get("status") in (
            "True",
            "False",
        )

    release.cluster.wait_until(
        "an attempt's end", has_ended, timeout_s=LIMIT_S, pause_s=1.0
    )
    return found()


def test_weights_that_are_not_written_are_told_and_written_later(tuned: Tuned) -> None:
    """The next attempt has nothing left to train."""
    message = tuned.first_end["message"]
    assert tuned.first_end["reason"] == "BackingOff"
    folder = f"{CHECKPOINTS}/{tuned.uid}"
    assert (
        f"weights cannot be written to {folder}/weights: Permission denied "
        f"({FOREIGN}); what is trained stays in {folder}/step-{STEPS:08d}"
    ) in message
    status = tuned.plan["status"]
    assert (status["attempt"], status["failures"]["application"]) == (2, 1)
    assert "weights cannot be written" in tuned.kubectl("get", "events")
    log = tuned.kubectl("logs", f"job/{PLAN}-train-2", "--tail=-1", "--all-pods")
    assert f"resumes after step {STEPS}" in log
    assert "step 1/" not in log


def test_the_weights_have_the_loss_of_the_trainer(tuned: Tuned, tmp_path: Path) -> None:
    """Two pods have trained them; copied out of the claim, transformers reads them."""
    status = tuned.plan["status"]
    assert status["plan"]["gpus"] == 2
    folder = status["checkpoints"]["weights"]
    assert folder == f"{tuned.uid}/weights"
    target = tmp_path / "weights"
    tuned.kubectl("cp", f"files:/models/{folder}", str(target))
    assert {path.name for path in target.iterdir()} == {
        path.name for path in tuned.model.iterdir() if path.name != "notes.jsonl"
    }
    load: Any = AutoModelForCausalLM.from_pretrained
    args = a_plan()["spec"]["workload"]["args"]
    data = str(tuned.model / "notes.jsonl")
    here = {"model": str(tuned.model), "data": data}
    evaluation = finetune(
        **args | here | {"evaluation": args["evaluation"] | {"data": data}}
    ).evaluation
    assert evaluation is not None
    inputs, targets = evaluation.batch(0, 0, NUM_EVALUATED)

    def loss(model: Path) -> float:
        with torch.no_grad():
            logits = load(model, dtype=torch.bfloat16)(input_ids=inputs).logits
        found = functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten()
        )
        return float(found)

    [evaluated] = LOSS.findall(tuned.first_log)
    assert loss(target) == pytest.approx(float(evaluated), rel=1e-3)
    assert abs(loss(target) - loss(tuned.model)) > 5e-3


@pytest.mark.parametrize("page", ["get", "describe", "explain", "report"])
def test_the_pages_show_it(
    page: str, tuned: Tuned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of one machine."""
    html = tmp_path / "page.html"
    more = {"get": (), "report": (PLAN, "--html", str(html))}.get(page, (PLAN,))
    kubeconfig = str(tuned.release.cluster.kubeconfig)
    place = ("--cluster", "--kubeconfig", kubeconfig, "-n", tuned.namespace)
    assert plimsoll([page, *more, *place]) == ExitCode.DONE
    text = capsys.readouterr().out + (html.read_text() if page == "report" else "")
    expected = {
        "get": "Trained",
        "explain": "2 devices",
        "describe": f"trained weights: claim {CLAIM}, folder {tuned.uid}/weights",
        "report": f"claim {CLAIM}, folder {tuned.uid}/weights",
    }
    assert expected[page] in text
